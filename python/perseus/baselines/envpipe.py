"""EnvPipe: the outer envelope of the pipeline at the highest clocks, everything inside as slow as that allows.

Reference: Choi et al., EnvPipe: performance-preserving DNN training framework for saving energy, USENIX ATC 2023. The
envelope is what no schedule can hide: the first operation of each GPU, the last one, and all of the last stage.
Operations inside start at the clock of least energy; as long as the critical path leaves the envelope, the slowest
clocks on it are raised by one step. Published descriptions loop for ever when a critical path at the highest clocks
leaves the envelope; here that ends the search, and every step raises at least one clock, so it always ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perseus.baselines.clocks import LowerBound, ascending_clocks, knob_of, plan_of_costs
from perseus.plan.choices import ChoiceTable, collect_choices
from perseus.plan.planner import Costs, Planner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perseus.dag import PipelineDag
    from perseus.plan import FrequencyPlan
    from perseus.profiles import Profiles

# Ends of operations are sums of thousands of durations: they agree to rounding, relative to the iteration time.
_RELATIVE_TOLERANCE = 1e-9


def envpipe(
    dag: PipelineDag,
    profiles: Profiles,
    *,
    knob: str | None = None,
    wait_until_s: float | None = None,
    lower_bound: LowerBound | None = None,
) -> FrequencyPlan:
    """Return the plan of EnvPipe.

    Parameters
    ----------
    knob:
        The clock that is raised, a numeric knob; the profile's first, usually ``frequency``, by default.
    wait_until_s, lower_bound:
        As in `perseus.max_clock_plan`.

    Raises
    ------
    ProfileError
        The profile lacks the knob or an operation, or the knob is text.
    """
    planner, knob = Planner(dag, profiles), knob_of(profiles, knob)
    table = collect_choices(
        dag, profiles, planner.powers_w, lambda stage, kind: ascending_clocks(profiles[stage, kind], knob)
    )
    clocks = _Clocks(dag, table)
    while clocks.raise_critical():
        pass
    costs = Costs.of(table, clocks.entries)
    return plan_of_costs(planner, costs, wait_until_s=wait_until_s, lower_bound=lower_bound)


class _Clocks:
    """The clock of each operation while they are raised."""

    def __init__(self, dag: PipelineDag, table: ChoiceTable) -> None:
        self._dag = dag
        self._table = table
        self._is_outer = _envelope(dag)
        first, last = table.offsets[:-1], table.offsets[1:] - 1
        ends = zip(first, last, strict=True)
        thriftiest = [start + np.argmin(table.energies_j[start : end + 1]) for start, end in ends]
        self._highest = last[table.menu_of]
        self.entries: NDArray[np.int64] = np.where(
            self._is_outer, self._highest, np.array(thriftiest, dtype=np.int64)[table.menu_of]
        )
        order = np.argsort(dag.edges[:, 1], kind="stable")
        self._sources = dag.edges[order, 0]
        self._latency_s = dag.latency_s[order]
        self._bounds = np.searchsorted(dag.edges[order, 1], np.arange(dag.num_operations + 1))

    def raise_critical(self) -> bool:
        """Raise the lowest clocks of a critical path by one step; False if the search is over."""
        path = self._critical_path()
        if self._is_outer[path].all():
            return False
        below = path[self.entries[path] < self._highest[path]]
        if not below.size:
            return False
        steps = self._highest[below] - self.entries[below]
        self.entries[below[steps == steps.max()]] += 1
        return True

    def _critical_path(self) -> NDArray[np.intp]:
        """Return a longest path, along the envelope where that is as long."""
        durations_s = self._table.times_s[self.entries]
        ends_s = self._dag.earliest_starts(durations_s) + durations_s
        tolerance_s = _RELATIVE_TOLERANCE * float(ends_s.max())
        operation = self._preferred(np.flatnonzero(ends_s >= ends_s.max() - tolerance_s))
        path = [operation]
        while self._bounds[operation] < self._bounds[operation + 1]:
            into = slice(self._bounds[operation], self._bounds[operation + 1])
            arrivals_s = ends_s[self._sources[into]] + self._latency_s[into]
            if arrivals_s.max() < ends_s[operation] - durations_s[operation] - tolerance_s:
                break
            operation = self._preferred(self._sources[into][arrivals_s >= arrivals_s.max() - tolerance_s])
            path.append(operation)
        return np.array(path, dtype=np.intp)

    def _preferred(self, operations: NDArray[np.integer]) -> int:
        """Return one of them, on the envelope if possible."""
        outer = operations[self._is_outer[operations]]
        return int((outer if outer.size else operations)[0])


def _envelope(dag: PipelineDag) -> NDArray[np.bool_]:
    """Mark the first and the last operation of each rank, and all of the last stage."""
    position = np.empty(dag.num_operations, dtype=np.intp)
    position[dag.topological_order()] = np.arange(dag.num_operations)
    order = np.lexsort((position, dag.rank))
    is_outer = np.asarray(dag.stage == dag.stage.max())
    changes = np.flatnonzero(np.diff(dag.rank[order]))
    is_outer[order[np.concatenate(([0], changes + 1))]] = True
    is_outer[order[np.concatenate((changes, [len(order) - 1]))]] = True
    return is_outer
