"""Topological order, cycles and earliest starts of operations joined by edges; no recursion, O(N + E).

Everywhere, `edges` is an int32 array of shape (num_edges, 2), predecessor and successor.

The loops run over Python lists and not level by level with numpy: a pipeline's graph is deep and narrow (a
level has about as many operations as there are stages), where a numpy call for each level costs more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Starting points tried for a short cycle: it is for a message, so near the shortest is enough.
_CYCLE_TRIES: Final = 8


def topological_order(num_operations: int, edges: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the operations so that each comes after all its predecessors (Kahn 1962).

    The result is shorter than `num_operations` exactly if there is a cycle: it then lacks the operations on
    cycles and those behind them.
    """
    first, successors = _successor_lists(num_operations, edges)
    waits_for = np.bincount(edges[:, 1], minlength=num_operations)
    ready: list[int] = np.flatnonzero(waits_for == 0).tolist()
    waiting: list[int] = waits_for.tolist()
    for operation in ready:  # grows while it is walked
        for successor in successors[first[operation] : first[operation + 1]]:
            waiting[successor] -= 1
            if not waiting[successor]:
                ready.append(successor)
    return np.array(ready, dtype=np.int32)


def _successor_lists(num_operations: int, edges: NDArray[np.int32]) -> tuple[list[int], list[int]]:
    """Return `first` and `successors`: those of operation i are successors[first[i] : first[i + 1]]."""
    by_predecessor = np.argsort(edges[:, 0], kind="stable")
    first = np.zeros(num_operations + 1, dtype=np.int64)
    np.cumsum(np.bincount(edges[:, 0], minlength=num_operations), out=first[1:])
    return first.tolist(), edges[by_predecessor, 1].tolist()


def find_short_cycle(num_operations: int, edges: NDArray[np.int32], order: NDArray[np.int32]) -> list[int]:
    """Return the operations of one cycle, in the direction of the edges.

    Parameters
    ----------
    order:
        The result of `topological_order`, which left operations out.

    Returns
    -------
    list
        A shortest cycle through at least one of the operations tried, its smallest number first.
    """
    unordered = np.ones(num_operations, dtype=np.bool_)
    unordered[order] = False
    inner = edges[unordered[edges[:, 0]] & unordered[edges[:, 1]]]
    cycle = _any_cycle(num_operations, inner, int(np.flatnonzero(unordered)[0]))
    first, successors = _successor_lists(num_operations, inner)
    for start in cycle[:: max(1, len(cycle) // _CYCLE_TRIES)][:_CYCLE_TRIES]:
        shorter = _shortest_cycle_through(start, first, successors, limit=len(cycle))
        cycle = shorter or cycle
    smallest = cycle.index(min(cycle))
    return cycle[smallest:] + cycle[:smallest]


def _any_cycle(num_operations: int, inner: NDArray[np.int32], start: int) -> list[int]:
    """Walk back from `start` until an operation repeats; every operation here has a predecessor."""
    some_predecessor = np.full(num_operations, -1, dtype=np.int64)
    some_predecessor[inner[:, 1]] = inner[:, 0]
    step_of: dict[int, int] = {}
    walk: list[int] = []
    operation = start
    while operation not in step_of:
        step_of[operation] = len(walk)
        walk.append(operation)
        operation = int(some_predecessor[operation])
    return walk[step_of[operation] :][::-1]


def _shortest_cycle_through(start: int, first: list[int], successors: list[int], limit: int) -> list[int]:
    """Return the shortest cycle through `start` that is shorter than `limit`, or an empty list."""
    came_from = {start: start}
    frontier = [start]
    for _ in range(limit - 1):
        reached: list[int] = []
        for operation in frontier:
            for successor in successors[first[operation] : first[operation + 1]]:
                if successor == start:
                    return _path(start, operation, came_from)
                if successor not in came_from:
                    came_from[successor] = operation
                    reached.append(successor)
        frontier = reached
    return []


def _path(start: int, end: int, came_from: dict[int, int]) -> list[int]:
    path = [end]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return path[::-1]


def sweep_order(edges: NDArray[np.int32], order: NDArray[np.int32]) -> NDArray[np.intp]:
    """Return the edges sorted by the place of their predecessor in `order`, for `earliest_starts`."""
    place = np.empty(order.size, dtype=np.int32)
    place[order] = np.arange(order.size, dtype=np.int32)
    return np.argsort(place[edges[:, 0]], kind="stable")


def earliest_starts(
    durations_s: NDArray[np.float64], edges: NDArray[np.int32], latency_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return each operation's earliest start: the longest path to it, in seconds.

    Parameters
    ----------
    durations_s:
        Shape (num_operations,).
    edges, latency_s:
        In the order of `sweep_order`: when an edge is met, its predecessor's start is final.
    """
    durations: list[float] = durations_s.tolist()
    starts = [0.0] * len(durations)
    predecessors, successors = edges[:, 0].tolist(), edges[:, 1].tolist()
    for predecessor, successor, latency in zip(predecessors, successors, latency_s.tolist(), strict=True):
        start = starts[predecessor] + durations[predecessor] + latency
        if start > starts[successor]:
            starts[successor] = start
    return np.array(starts, dtype=np.float64)


def cycle_text(cycle: list[int], name_of: Callable[[int], str], reason_of: Callable[[int, int], str]) -> str:
    """Write a cycle as "A -> B (reason) -> ... -> A (reason)", its middle left out where it is long."""
    hops = [
        f"{name_of(after)}{reason_of(before, after)}"
        for before, after in zip(cycle, cycle[1:] + cycle[:1], strict=True)
    ]
    if len(hops) > 10:
        hops = [*hops[:5], f"... {len(hops) - 10} more ...", *hops[-5:]]
    return " -> ".join([name_of(cycle[0]), *hops])
