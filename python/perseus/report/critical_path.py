"""The operations that decide an iteration's time: those without slack in a realized schedule.

An operation has zero slack if and only if it ends at the makespan, or a successor with zero slack starts the moment
it may (the edge between them is *tight*). So the critical operations are those from which tight edges lead to an
operation that ends last: one backward search, O(operations + edges), whatever the number of critical paths.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

# Start times are sums of thousands of durations: they agree to rounding, relative to the makespan.
RELATIVE_TOLERANCE: Final = 1e-9


def critical_operations(
    start_times_s: NDArray[np.float64],
    durations_s: NDArray[np.float64],
    edges: NDArray[np.int32],
    latency_s: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Mark the operations with zero slack.

    Parameters
    ----------
    start_times_s, durations_s:
        Shape (num_operations,), seconds; each operation starts as early as its predecessors let it.
    edges:
        Shape (num_edges, 2), predecessor and successor.
    latency_s:
        Shape (num_edges,), seconds between the end of the predecessor and the earliest start of the successor.

    Returns
    -------
    NDArray
        bool, shape (num_operations,).
    """
    is_critical: NDArray[np.bool_] = np.zeros(start_times_s.size, dtype=np.bool_)
    if start_times_s.size == 0:
        return is_critical
    end_times_s = start_times_s + durations_s
    makespan_s = float(end_times_s.max())
    tolerance_s = RELATIVE_TOLERANCE * makespan_s
    predecessor, successor = edges[:, 0], edges[:, 1]
    is_tight = start_times_s[successor] - (end_times_s[predecessor] + latency_s) <= tolerance_s
    is_critical[end_times_s >= makespan_s - tolerance_s] = True
    _mark_ancestors(is_critical, predecessor[is_tight], successor[is_tight])
    return is_critical


def _mark_ancestors(is_marked: NDArray[np.bool_], predecessor: NDArray[np.int32], successor: NDArray[np.int32]) -> None:
    """Mark every operation from which the edges lead to a marked one."""
    by_successor = np.argsort(successor, kind="stable")
    sources = predecessor[by_successor].tolist()
    bounds = np.searchsorted(successor[by_successor], np.arange(is_marked.size + 1)).tolist()
    open_operations = np.flatnonzero(is_marked).tolist()
    while open_operations:
        operation = open_operations.pop()
        for source in sources[bounds[operation] : bounds[operation + 1]]:
            if not is_marked[source]:
                is_marked[source] = True
                open_operations.append(source)
