"""The iteration time-energy frontier of a pipeline, and the questions it answers."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from perseus.errors import InfeasibleTimeError, PlanError
from perseus.plan import FrequencyPlan
from perseus.plan.blocking import rank_powers_w
from perseus.plan.effort import EFFORTS, Effort
from perseus.plan.plan_search import PlanSearch
from perseus.plan.planner import Planner
from perseus.plan.series import PlanSeries
from perseus.plan.switching import SwitchAwarePlan, Switching, switch_aware_plan
from perseus.replacement import replacement

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perseus import _native
    from perseus.dag import PipelineDag
    from perseus.profiles import Profiles
    from perseus.steady_state import SteadyState

# A time this close to the shortest one, relatively, is taken as the shortest: the caller computed it in doubles.
_TIME_TOLERANCE = 1e-12
_DEFAULT_PLANS = 50


class Frontier:
    """Every optimal trade of iteration time against energy, exactly.

    Made by `perseus.solve_frontier`; immutable. With E_eff(T) the least total effective energy (energy minus blocking
    power times time, summed over operations), the pipeline's energy until time T is E_eff(T) + P * T, where P is the
    blocking power of all ranks together. E_eff is convex and piecewise linear, falls until ``max_time_s`` and is
    constant from there.

    Attributes
    ----------
    dag, profiles:
        What was solved.
    times_s:
        (n,) float64, seconds, increasing: every breakpoint.
    energies_j:
        (n,) float64, joules: energy of the whole pipeline, blocking included, until that time.
    blocking_power_w:
        Blocking power of all ranks together, W.
    statistics:
        How the solve went: phases, certified, time quantum (s), slope unit (W), solve time (s) and so on.
    """

    def __init__(
        self,
        *,
        dag: PipelineDag,
        profiles: Profiles,
        solution: _native.TradeoffSolution,
        steady: SteadyState | None,
        statistics: Mapping[str, Any],
    ) -> None:
        self.dag = dag
        self.profiles = profiles
        self.statistics: Mapping[str, Any] = MappingProxyType(dict(statistics))
        self._solution = solution
        self._steady = steady
        solved = dag if steady is None else steady.small  # has the same ranks; its arrays are cheap
        self.blocking_power_w = float(rank_powers_w(solved, profiles).sum())
        self.times_s: NDArray[np.float64] = solution.times_s[::-1].copy()
        self._effective_j = solution.energies_j[::-1] + _fixed_effective_energy_j(solved, profiles)
        self._slopes_w = solution.slopes_w[::-1].copy()  # -dE_eff/dT between times_s[i] and times_s[i + 1]
        self.energies_j: NDArray[np.float64] = self._effective_j + self.blocking_power_w * self.times_s
        self.times_s.setflags(write=False)
        self.energies_j.setflags(write=False)

    @property
    def min_time_s(self) -> float:
        """The shortest iteration time, seconds."""
        return float(self.times_s[0])

    @property
    def max_time_s(self) -> float:
        """The time (s) beyond which effective energy falls no more: every operation runs at its most efficient."""
        return float(self.times_s[-1])

    @property
    def min_energy_time_s(self) -> float:
        """T*: the iteration time (s) of least total energy; the shortest one if several tie."""
        return float(self.times_s[int(np.argmin(self.energies_j))])

    def energy_at(self, time_s: float, wait_until_s: float | None = None) -> float:
        """Least energy (J) of the pipeline when it may take ``time_s``, exactly.

        Parameters
        ----------
        time_s:
            Iteration time, seconds. Beyond ``max_time_s`` the GPUs wait at blocking power.
        wait_until_s:
            Time of a straggler for which all GPUs wait, seconds; at least ``time_s``. Default: ``time_s``.

        Raises
        ------
        InfeasibleTimeError
            ``time_s`` is below the shortest iteration time.
        PlanError
            ``wait_until_s`` is below ``time_s``, or a time is not a number.
        """
        time_s = self._feasible(time_s)
        until_s = time_s if wait_until_s is None else finite_time_s(wait_until_s, "wait_until_s")
        if until_s < time_s * (1.0 - _TIME_TOLERANCE):
            raise PlanError(
                f"wait_until_s={until_s:g} is before time_s={time_s:g}; a straggler ends no earlier than the pipeline "
                "that waits for it. Pass the straggler's iteration time, or a shorter time_s."
            )
        effective_j = float(np.interp(min(time_s, self.max_time_s), self.times_s, self._effective_j))
        return effective_j + self.blocking_power_w * max(until_s, time_s)

    def durations_at(self, time_s: float) -> NDArray[np.float64]:
        """Optimal durations (s) for an iteration time, shape (num_operations,), in ``dag.operations`` order.

        Continuous: `plan_at` turns them into knobs. Beyond ``max_time_s``, those at ``max_time_s``.

        Raises
        ------
        InfeasibleTimeError
            ``time_s`` is below the shortest iteration time.
        """
        time_s = self._feasible(time_s)
        interval, share = self._locate(time_s)
        durations_s = self._solution.durations_s(interval, share)
        if self._steady is None:
            return durations_s
        slots = self._solution.repeated_slots.reshape(-1, self._steady.num_regions)[interval]
        return durations_s[self._steady.small_operation(slots)]

    def plan_at(
        self,
        time_s: float,
        *,
        wait_until_s: float | None = None,
        effort: Effort = "best",
        time_limit_s: float | None = None,
    ) -> FrequencyPlan:
        """One profiled knob for each operation, such that the iteration takes no longer than ``time_s``.

        Rounds the optimal durations to profiled ones, reclaims the slack that is left and searches from there
        (``docs/plans.md``). Beyond ``max_time_s``, the plan of ``max_time_s``.

        Parameters
        ----------
        time_s:
            Deadline of the iteration, seconds.
        wait_until_s:
            Time of a straggler for which all GPUs wait, seconds: the plan's energies count until then.
        effort:
            ``"best"`` searches until nothing helps any more; ``"fast"`` rounds once, for plans in a hurry.
        time_limit_s:
            The search starts nothing new after this many seconds. Without it, equal inputs give equal plans.

        Raises
        ------
        InfeasibleTimeError
            ``time_s`` is below the shortest iteration time, which the error gives.
        PlanError
            The effort is unknown, or a time is not a number.
        """
        deadline_s = min(self._feasible(time_s), self.max_time_s)
        if effort not in EFFORTS:
            raise PlanError(f"effort={effort!r} is unknown; choose one of {', '.join(map(repr, EFFORTS))}")
        limit_s = None if time_limit_s is None else finite_time_s(time_limit_s, "time_limit_s")
        until_s = None if wait_until_s is None else finite_time_s(wait_until_s, "wait_until_s")
        choices = self._search.at(deadline_s, effort, limit_s)
        return self._planner.finish(choices, self.energy_at, deadline_s, until_s)

    def plans(
        self,
        n: int | None = None,
        *,
        step_s: float | None = None,
        effort: Effort = "best",
        workers: int | None = None,
    ) -> PlanSeries:
        """Plans for the whole frontier: each next one takes longer and, until any common time, costs less.

        Parameters
        ----------
        n:
            Number of deadlines, evenly from the shortest to the longest useful time; 50 by default. Plans that
            another one beats in time and energy are left out, so there may be fewer.
        step_s:
            Instead of `n`: the distance of the deadlines, seconds.
        effort:
            As in `plan_at`.
        workers:
            Threads that search at the same time; by default as many as the process may use cores.

        Raises
        ------
        PlanError
            Both `n` and `step_s` are given, or one is out of range.
        """
        if effort not in EFFORTS:
            raise PlanError(f"effort={effort!r} is unknown; choose one of {', '.join(map(repr, EFFORTS))}")
        deadlines_s = self._deadlines_s(n, step_s)
        if workers is None:
            workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

        def plan(deadline_s: float) -> FrequencyPlan:
            return self._planner.finish(self._search.at(deadline_s, effort), self.energy_at, deadline_s)

        first = plan(deadlines_s[0])  # prepares what all share
        with ThreadPoolExecutor(max_workers=max(workers, 1)) as pool:
            return PlanSeries([first, *pool.map(plan, deadlines_s[1:])], self._planner, self.energy_at)

    def switch_aware_plan_at(
        self,
        time_s: float,
        *,
        switch_latency_s: float = 0.0,
        min_dwell_s: float = 0.0,
        max_changes: int | None = None,
        effort: Effort = "best",
    ) -> SwitchAwarePlan:
        """A plan for GPUs on which a change of clock takes time, and what that restriction costs.

        Parameters
        ----------
        time_s:
            Deadline of the iteration, pauses included, seconds.
        switch_latency_s:
            Pause of a GPU between two operations at different clocks, seconds (10 to 20 ms on today's GPUs).
        min_dwell_s:
            A clock is kept for at least this long, seconds.
        max_changes:
            A GPU changes its clock at most this many times in an iteration.
        effort:
            Of the unrestricted plan that it is compared with.

        Raises
        ------
        InfeasibleTimeError
            ``time_s`` is below the shortest iteration time, or no plan that counts its changes meets it.
        PlanError
            A restriction is out of range, or operations of a GPU stand in no order.
        """
        switching = Switching.checked(switch_latency_s, min_dwell_s, max_changes)
        free = self.plan_at(time_s, effort=effort)
        planned_s = self.durations_at(free.deadline_s)
        return switch_aware_plan(self._planner, free, planned_s, self.energy_at, switching)

    def _deadlines_s(self, n: int | None, step_s: float | None) -> list[float]:
        if n is not None and step_s is not None:
            raise PlanError("n and step_s exclude each other; give one of them")
        if step_s is not None:
            if not (math.isfinite(step_s) and step_s > 0.0):
                raise PlanError(f"step_s={step_s!r} is not a positive number of seconds")
            return [*map(float, np.arange(self.min_time_s, self.max_time_s, step_s)), self.max_time_s]
        n = _DEFAULT_PLANS if n is None else n
        if n < 1:
            raise PlanError(f"n={n!r} is not a number of plans of at least 1")
        return [max(float(time_s), self.min_time_s) for time_s in np.linspace(self.min_time_s, self.max_time_s, n)]

    def knee(self) -> float:
        """The iteration time (s) where the frontier bends most between the shortest time and T*.

        The breakpoint farthest from the straight line between those two ends, both axes scaled to their range: before
        it a second saved costs much energy, behind it little is left to save (Satopää et al., Finding a "kneedle" in a
        haystack, 2011).
        """
        end = int(np.argmin(self.energies_j))
        if end == 0:
            return self.min_time_s
        times, energies = self.times_s[: end + 1], self.energies_j[: end + 1]
        along = (times - times[0]) / (times[-1] - times[0])
        fallen = (energies[0] - energies) / (energies[0] - energies[-1])
        return float(times[int(np.argmax(fallen - along))])

    @cached_property
    def _planner(self) -> Planner:
        return Planner(self.dag, self.profiles)

    @cached_property
    def _search(self) -> PlanSearch:
        return PlanSearch(self._planner, self.durations_at, self.energy_at, self.min_time_s, self.max_time_s)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the breakpoints: columns ``iteration_time_s`` and ``energy_j``, shortest time first."""
        with replacement(path) as file:
            writer = csv.writer(file)
            writer.writerow(["iteration_time_s", "energy_j"])
            writer.writerows(zip(self.times_s.tolist(), self.energies_j.tolist(), strict=True))

    def __len__(self) -> int:
        """Return the number of breakpoints."""
        return len(self.times_s)

    def __repr__(self) -> str:
        return (
            f"Frontier({len(self)} breakpoints, {self.min_time_s:.6g} to {self.max_time_s:.6g} s, "
            f"{self.energies_j[0]:.6g} J at the shortest time, least energy {self.energies_j.min():.6g} J "
            f"at {self.min_energy_time_s:.6g} s)"
        )

    def _locate(self, time_s: float) -> tuple[int, float]:
        """Return the solution's interval (0 is the one of the longest times) and how far into it a time lies."""
        if time_s >= self.max_time_s:
            return 0, 0.0
        above = int(np.searchsorted(self.times_s, time_s, side="right"))  # times_s[above - 1] <= time_s < [above]
        later_s, earlier_s = self.times_s[above], self.times_s[above - 1]
        return len(self) - 1 - above, float((later_s - time_s) / (later_s - earlier_s))

    def _feasible(self, time_s: float) -> float:
        time_s = finite_time_s(time_s, "time_s")
        if time_s < self.min_time_s * (1.0 - _TIME_TOLERANCE):
            raise InfeasibleTimeError(
                f"An iteration time of {time_s:.9g} s is below the shortest possible, {self.min_time_s:.9g} s, which "
                "every operation at its fastest profiled knob gives. Ask for that or more.",
                self.min_time_s,
            )
        return max(time_s, self.min_time_s)


def finite_time_s(value: object, name: str) -> float:
    """Return a time as a float; raises `PlanError` if it is not a finite number."""
    try:
        number = math.nan if isinstance(value, str) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise PlanError(f"{name}={value!r} is not a finite number of seconds; pass a time such as frontier.min_time_s.")
    return number


def _fixed_effective_energy_j(dag: PipelineDag, profiles: Profiles) -> float:
    """Effective energy of the operations of fixed time, a constant of the problem."""
    fixed = ~np.isnan(dag.fixed_time_s)
    powers_w = rank_powers_w(dag, profiles)[dag.rank[fixed]]
    return float(np.sum(dag.fixed_energy_j[fixed] - powers_w * dag.fixed_time_s[fixed]))
