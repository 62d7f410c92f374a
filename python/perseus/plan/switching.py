"""Plans for GPUs on which a change of clock costs time.

Problem.  Between two operations of a GPU at different clocks lies a pause (`switch_latency_s`); a clock is kept for at
least `min_dwell_s`; a GPU changes its clock at most `max_changes` times an iteration. The least energy within a
deadline.
Method.   At the optimum without restrictions every operation's time has a price, the slope of its energy. With those
prices, each GPU's program order is cut into runs of one clock by dynamic programming: a run costs energy plus price
times time, a change the price of its pause. While the realized iteration misses the deadline, operations on paths that
are too long become dearer (a subgradient step on the Lagrangian) and the order is cut again. Then runs are slowed down
one by one while the deadline is still met. Several prices of changes are tried, and the best plan is kept.
Limits.   The clock at the beginning of an iteration is set during the pause between iterations and costs nothing here.
Cost.     O(n^2) for a GPU of n operations, for each of a few dozen price vectors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perseus.dag import precedence
from perseus.errors import InfeasibleTimeError, PlanError
from perseus.plan.choices import collect_choices
from perseus.plan.frequency_plan import FrequencyPlan
from perseus.plan.planner import Costs, Planner, checked_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

# How much dearer than its pause a change is made, until a plan meets the deadline.
_CHANGE_FACTORS = (0.5, 1.0, 2.0, 4.0, 16.0)
_ROUNDS = 48
# Prices of operations on paths that are too long grow by this factor and this share of the mean price.
_DEARER = (1.12, 0.04)
_TIME_TOLERANCE = 1e-12


class Switching(NamedTuple):
    """What a change of clock costs, and how often it may happen."""

    latency_s: float
    min_dwell_s: float
    max_changes: int | None

    @classmethod
    def checked(cls, latency_s: float, min_dwell_s: float, max_changes: int | None) -> Switching:
        """Return the restrictions, or raise `PlanError` where one is out of range."""
        if max_changes is not None and max_changes < 0:
            raise PlanError(f"max_changes is {max_changes!r}; it must be a whole number of at least 0, or None")
        return cls(checked_time("switch_latency_s", latency_s), checked_time("min_dwell_s", min_dwell_s), max_changes)


@dataclass(frozen=True, kw_only=True, eq=False)
class SwitchAwarePlan:
    """A plan that counts its changes of clock, beside the plan that does not.

    Attributes
    ----------
    plan:
        Its time, starts and energy include the pauses, at blocking power.
    unrestricted:
        The plan at the same deadline if changes cost nothing.
    unrestricted_time_s:
        What that plan would take on GPUs whose changes do cost time.
    changes:
        (num_ranks,): changes of clock of each GPU in an iteration.
    unrestricted_changes:
        The same of the unrestricted plan.
    """

    plan: FrequencyPlan
    unrestricted: FrequencyPlan
    unrestricted_time_s: float
    changes: NDArray[np.int64]
    unrestricted_changes: NDArray[np.int64]

    @property
    def price(self) -> float:
        """The share of energy that the restriction costs, both until the deadline."""
        power_w = float(self.plan.blocking_power_w.sum())
        mine_j, free_j = (
            plan.energy_j + power_w * (plan.deadline_s - plan.time_s) for plan in (self.plan, self.unrestricted)
        )
        return mine_j / free_j - 1.0


class Clocks:
    """The knobs that each GPU's operations have in common, and what they cost.

    Raises
    ------
    PlanError
        Two operations of a GPU have no order.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        dag, profiles = planner.dag, planner.profiles
        self.table = collect_choices(
            dag, profiles, planner.powers_w, lambda stage, kind: np.arange(len(profiles[stage, kind].times_s))
        )
        settings = list(zip(*(values.tolist() for values in self.table.knobs.values()), strict=True))
        numbers: dict[Any, int] = {}
        self.is_fixed = ~np.isnan(dag.fixed_time_s)
        self.setting_of = np.array([numbers.setdefault(_comparable(s), len(numbers)) for s in settings], dtype=np.int64)
        self.num_settings = len(numbers)
        order = np.lexsort((_positions(dag.topological_order()), dag.rank))
        bounds = np.searchsorted(dag.rank[order], np.arange(dag.num_ranks + 1))
        self.orders = [order[start:end] for start, end in itertools.pairwise(bounds)]
        self._sweep = precedence.sweep_order(dag.edges, dag.topological_order())
        place = _positions(dag.topological_order())
        self._sweep_back = np.argsort(-place[dag.edges[self._sweep][:, 1]], kind="stable")
        edge_of = {pair: edge for edge, pair in enumerate(map(tuple, dag.edges[self._sweep].tolist()))}
        self._edge_before = np.full(dag.num_operations, -1, dtype=np.int64)
        for before, after in itertools.chain.from_iterable(itertools.pairwise(o.tolist()) for o in self.orders):
            if (before, after) not in edge_of:
                raise PlanError(
                    f"operations {before} and {after} of one GPU stand in no order; changes of clock need one: add an "
                    "edge between them"
                )
            self._edge_before[after] = edge_of[before, after]
        self._entry_at = self._entries_by_setting()

    def _entries_by_setting(self) -> NDArray[np.int64]:
        """Return for each menu and setting the fastest entry, -1 where there is none; a fixed one has all settings."""
        offsets = self.table.offsets
        entry_at = np.full((len(offsets) - 1, self.num_settings), -1, dtype=np.int64)
        for menu, (first, end) in enumerate(itertools.pairwise(offsets.tolist())):
            for entry in range(end - 1, first - 1, -1):
                entry_at[menu, self.setting_of[entry]] = entry
        for menu in np.unique(self.table.menu_of[self.is_fixed]).tolist():
            entry_at[menu] = offsets[menu]
        return entry_at

    def entries(self, settings: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return each operation's entry in the table, given its setting."""
        return np.asarray(self._entry_at[self.table.menu_of, settings], dtype=np.int64)

    def costs(self, rank: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return times (s) and effective energies (J) of a GPU's operations at each setting; infinite where none."""
        entries = self._entry_at[self.table.menu_of[self.orders[rank]]]
        missing = entries < 0
        times_s = np.where(missing, np.inf, self.table.times_s[entries])
        return times_s, np.where(missing, np.inf, self.table.effective_energies_j[entries])

    def changed(self, settings: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mark the operations before which their GPU changes its clock. Operations of fixed time keep the clock."""
        is_changed = np.zeros(len(settings), dtype=np.bool_)
        for order in self.orders:
            free = order[~self.is_fixed[order]]
            is_changed[free[1:]] = settings[free[1:]] != settings[free[:-1]]
        return is_changed

    def starts_s(self, entries: NDArray[np.int64], changed: NDArray[np.bool_], latency_s: float) -> NDArray[np.float64]:
        """Return earliest starts with a pause before each change."""
        edges, latencies_s = self.planner.dag.edges[self._sweep], self.planner.dag.latency_s[self._sweep]
        latencies_s[self._edge_before[changed]] += latency_s
        return precedence.earliest_starts(self.table.times_s[entries], edges, latencies_s)

    def time_s(self, settings: NDArray[np.int64], latency_s: float) -> float:
        """Return the iteration time with pauses."""
        entries = self.entries(settings)
        starts_s = self.starts_s(entries, self.changed(settings), latency_s)
        return float((starts_s + self.table.times_s[entries]).max())

    def longest_through_s(self, settings: NDArray[np.int64], latency_s: float) -> NDArray[np.float64]:
        """Return the longest path through each operation, with pauses, s; (num_operations,)."""
        durations_s = self.table.times_s[self.entries(settings)]
        edges, latencies_s = self.planner.dag.edges[self._sweep], self.planner.dag.latency_s[self._sweep]
        latencies_s[self._edge_before[self.changed(settings)]] += latency_s
        before_s = precedence.earliest_starts(durations_s, edges, latencies_s)
        # The same backwards needs edges by their successor's place, last first.
        backwards = self._sweep_back
        behind_s = precedence.earliest_starts(durations_s, edges[backwards][:, ::-1], latencies_s[backwards])
        return np.asarray(before_s + durations_s + behind_s, dtype=np.float64)

    def settings_of(self, plan: FrequencyPlan) -> NDArray[np.int64]:
        """Return the settings of a plan made from the same profile."""
        numbers = {_comparable(s): n for s, n in zip(self._all_settings(), self.setting_of.tolist(), strict=True)}
        rows = zip(*(values.tolist() for values in plan.knobs.values()), strict=True)
        return np.array([numbers[_comparable(row)] for row in rows], dtype=np.int64)

    def _all_settings(self) -> Iterator[tuple[Any, ...]]:
        return zip(*(values.tolist() for values in self.table.knobs.values()), strict=True)


def switch_aware_plan(
    planner: Planner,
    unrestricted: FrequencyPlan,
    planned_s: NDArray[np.float64],
    lower_bound: Callable[[float], float],
    switching: Switching,
) -> SwitchAwarePlan:
    """Return the plan; `Frontier.switch_aware_plan_at` explains it."""
    if switching == Switching(0.0, 0.0, None):
        return _unchanged(planner, unrestricted)
    clocks = Clocks(planner)
    deadline_s = unrestricted.deadline_s
    best: NDArray[np.int64] | None = None
    shortest_s = math.inf
    for settings in _candidates(clocks, planned_s, deadline_s, switching):
        time_s = clocks.time_s(settings, switching.latency_s)
        shortest_s = min(shortest_s, time_s)
        if time_s > deadline_s * (1.0 + _TIME_TOLERANCE):
            continue
        slowed = _slowed(clocks, settings, deadline_s, switching)
        if best is None or _energy_j(clocks, slowed) < _energy_j(clocks, best):
            best = slowed
    if best is None:
        raise InfeasibleTimeError(
            f"no plan of {deadline_s:.9g} s was found whose changes of clock fit in; the shortest takes "
            f"{shortest_s:.9g} s: ask for that or more, or allow shorter pauses or dwells",
            shortest_s,
        )
    entries, changed = clocks.entries(best), clocks.changed(best)
    costs = Costs.of(clocks.table, entries)
    starts_s = clocks.starts_s(entries, changed, switching.latency_s)
    time_s = min(float((starts_s + costs.durations_s).max()), deadline_s)
    plan = planner.plan_of(costs, starts_s, time_s, lower_bound, deadline_s, None)
    free = clocks.settings_of(unrestricted)
    ranks, num_ranks = planner.dag.rank, planner.dag.num_ranks
    return SwitchAwarePlan(
        plan=plan,
        unrestricted=unrestricted,
        unrestricted_time_s=clocks.time_s(free, switching.latency_s),
        changes=np.bincount(ranks[changed], minlength=num_ranks),
        unrestricted_changes=np.bincount(ranks[clocks.changed(free)], minlength=num_ranks),
    )


def _unchanged(planner: Planner, plan: FrequencyPlan) -> SwitchAwarePlan:
    clocks = Clocks(planner)
    changed = clocks.changed(clocks.settings_of(plan))
    changes = np.bincount(planner.dag.rank[changed], minlength=planner.dag.num_ranks)
    return SwitchAwarePlan(
        plan=plan,
        unrestricted=plan,
        unrestricted_time_s=plan.time_s,
        changes=changes,
        unrestricted_changes=changes,
    )


def _candidates(
    clocks: Clocks, planned_s: NDArray[np.float64], deadline_s: float, switching: Switching
) -> Iterator[NDArray[np.int64]]:
    """Yield settings with prices that rise until the deadline is met, for dearer and dearer changes."""
    for factor in _CHANGE_FACTORS:
        prices_w = _prices(clocks.planner, planned_s)
        more_w = _DEARER[1] * float(prices_w.mean())
        for _ in range(_ROUNDS):
            settings = _cut_into_runs(clocks, prices_w, factor, switching)
            yield settings
            late = clocks.longest_through_s(settings, switching.latency_s) > deadline_s * (1.0 + _TIME_TOLERANCE)
            if not late.any():
                break
            prices_w[late] = _DEARER[0] * prices_w[late] + more_w
    yield from _uniform(clocks)


def _uniform(clocks: Clocks) -> Iterator[NDArray[np.int64]]:
    """Yield the settings of each GPU at its fastest one clock."""
    settings = np.zeros(clocks.planner.dag.num_operations, dtype=np.int64)
    for rank, order in enumerate(clocks.orders):
        times_s, _ = clocks.costs(rank)
        total_s = times_s.sum(axis=0)
        if not np.isfinite(total_s).any():
            return
        settings[order] = int(np.argmin(total_s))
    yield settings


def _prices(planner: Planner, durations_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the price of each operation's time in W: the slope of its curve, between slopes at a vertex."""
    dag, prices_w = planner.dag, np.zeros(planner.dag.num_operations)
    measured = np.isnan(dag.fixed_time_s)
    for stage, code in np.unique(np.column_stack((dag.stage, dag.kind_code))[measured], axis=0).tolist():
        curve = planner.profiles.curve(stage, dag.kinds[code])
        here = measured & (dag.stage == stage) & (dag.kind_code == code)
        if len(curve.times_s) < 2:
            continue
        slopes_w = -np.diff(curve.effective_energies_j) / np.diff(curve.times_s)
        around_w = np.concatenate(([4.0 * slopes_w[0]], slopes_w, [0.0]))
        slip_s = 1e-9 * float(curve.times_s[-1])
        left = np.searchsorted(curve.times_s, durations_s[here] - slip_s, side="left")
        right = np.searchsorted(curve.times_s, durations_s[here] + slip_s, side="right")
        prices_w[here] = (around_w[left] + around_w[right]) / 2.0
    return prices_w


def _cut_into_runs(
    clocks: Clocks, prices_w: NDArray[np.float64], factor: float, switching: Switching
) -> NDArray[np.int64]:
    settings = np.zeros(len(prices_w), dtype=np.int64)
    for rank, order in enumerate(clocks.orders):
        times_s, energies_j = clocks.costs(rank)
        costs = energies_j + prices_w[order, np.newaxis] * times_s
        around_w = np.maximum(prices_w[order], np.concatenate(([0.0], prices_w[order[:-1]])))
        pauses = factor * around_w * switching.latency_s
        settings[order] = _best_runs(costs, times_s, pauses, switching)
    return settings


def _best_runs(
    costs: NDArray[np.float64], times_s: NDArray[np.float64], pauses: NDArray[np.float64], switching: Switching
) -> NDArray[np.int64]:
    """Return the cheapest setting of each operation in a row, (n,), when each change costs a pause.

    With least[c, i] the least cost of the first i operations in c + 1 runs, least[c, j] is the least over i of
    least[c - 1, i] + pause before operation i + cheapest[i, j], the cost of operations i to j at their best setting.
    """
    count = len(costs)
    cheapest, setting = _cheapest_runs(costs, times_s, switching.min_dwell_s)
    runs = count if switching.max_changes is None else min(switching.max_changes + 1, count)
    least = np.concatenate(([np.inf], cheapest[0]))
    came_from = [np.zeros(count + 1, dtype=np.int64)]
    rows = [least]
    for _ in range(1, runs):
        through = (least[:-1] + pauses)[:, np.newaxis] + cheapest
        came_from.append(np.concatenate(([0], np.argmin(through, axis=0))))
        following = np.concatenate(([np.inf], through.min(axis=0)))
        if not (following < np.minimum.reduce(rows)).any():
            break
        least = following
        rows.append(least)
    best = int(np.argmin([row[count] for row in rows]))
    chosen, end = np.zeros(count, dtype=np.int64), count
    for level in range(best, -1, -1):
        start = int(came_from[level][end])
        chosen[start:end] = setting[start, end - 1]
        end = start
    return chosen


def _cheapest_runs(
    costs: NDArray[np.float64], times_s: NDArray[np.float64], min_dwell_s: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return for operations i to j, (n, n), the least cost at one setting that lasts long enough, and that setting.

    The whole row may be one run however short it is.
    """
    count = len(costs)
    cheapest = np.full((count, count), np.inf)
    setting = np.zeros((count, count), dtype=np.int64)
    for first in range(count):
        total = np.cumsum(costs[first:], axis=0)
        if min_dwell_s > 0.0:
            short = np.cumsum(times_s[first:], axis=0) < min_dwell_s
            if first == 0:
                short[-1] = False
            total[short] = np.inf
        setting[first, first:] = np.argmin(total, axis=1)
        cheapest[first, first:] = np.min(total, axis=1)
    return cheapest, setting


def _slowed(clocks: Clocks, settings: NDArray[np.int64], deadline_s: float, switching: Switching) -> NDArray[np.int64]:
    """Slow runs down, largest saving first, while the deadline is met; the runs stay as they are."""
    settings = settings.copy()
    runs = _runs(clocks, settings)
    for _ in range(clocks.num_settings):
        moves = []
        for operations in runs:
            entries = clocks._entry_at[clocks.table.menu_of[operations]]
            totals_j = np.where(entries < 0, np.inf, clocks.table.effective_energies_j[entries]).sum(axis=0)
            times_s = np.where(entries < 0, np.inf, clocks.table.times_s[entries]).sum(axis=0)
            now = int(settings[operations[0]])
            better = np.flatnonzero((totals_j < totals_j[now]) & (times_s > times_s[now]))
            if better.size:
                target = int(better[np.argmin(times_s[better])])
                moves.append((totals_j[target] - totals_j[now], operations, target))
        kept = 0
        for _, operations, target in sorted(moves, key=lambda move: move[0]):
            before = settings[operations].copy()
            settings[operations] = target
            if clocks.time_s(settings, switching.latency_s) <= deadline_s * (1.0 + _TIME_TOLERANCE):
                kept += 1
            else:
                settings[operations] = before
        if not kept:
            break
    return settings


def _runs(clocks: Clocks, settings: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """Return the operations of each run of one clock."""
    changed = clocks.changed(settings)
    return [
        run
        for order in clocks.orders
        for run in np.split(order, np.flatnonzero(changed[order]))
        if run.size and not clocks.is_fixed[run].all()
    ]


def _energy_j(clocks: Clocks, settings: NDArray[np.int64]) -> float:
    return float(clocks.table.effective_energies_j[clocks.entries(settings)].sum())


def _positions(order: NDArray[np.int32]) -> NDArray[np.int64]:
    positions = np.empty(len(order), dtype=np.int64)
    positions[order] = np.arange(len(order))
    return positions


def _comparable(setting: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a setting that equals itself: NaN, of operations of fixed time, does not."""
    return tuple(None if value != value else value for value in setting)
