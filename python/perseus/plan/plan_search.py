"""The search for the best plan at a deadline: many starts, each improved, the best kept.

Rounding is lucky at some iteration times and not at others: in a pipeline's steady state all ranks have the same period
to fill, and few periods are filled well by the clocks that were measured. So the search starts

1. from the optimal durations of the deadline and of times around it, and
2. from *splices*: two good plans of a shorter and a longer time, called anchors, of which the early part of the
   iteration is taken from one and the late part from the other, so that the deadline is just met.

Least energy is convex in time, so a splice of two neighbouring anchors loses next to nothing against them.
Anchors lie on a fixed grid of times and are kept, so a plan does not depend on which ones were made before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from perseus.plan.effort import EXHAUSTIVE, QUICK, THOROUGH, Effort, RoundingEffort, rounding_options, spliced_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perseus.plan.planner import Choices, Planner

# Starts around the deadline, in shares of the range of times that the frontier covers.
_OFFSETS: Final = (0.001, -0.001, 0.002, -0.002, 0.003, -0.003, 0.004, 0.006, -0.007, -0.01, 0.016, -0.02)
_NUM_ANCHORS: Final = 200
_ANCHORS_AROUND: Final = 20  # to each side
_NUM_PAIRS: Final = 6
# Plans that are refined: fewer in large pipelines, where each takes long and splices are fine already.
_NUM_FINALISTS: Final = {"small": 8, "large": 3}
_LARGE_OPERATIONS: Final = 500
_NUM_REFINEMENTS: Final = 8
# The search ends at this distance from the bound, relative to the energy of the pipeline.
_GAP_ENOUGH: Final = 1e-6


class PlanSearch:
    """Searches plans of one frontier. Safe to use from several threads.

    Parameters
    ----------
    planner:
        The pipeline and its choices.
    durations_at:
        Gives the optimal durations (s), shape (num_operations,), for an iteration time (s).
    energy_at:
        Gives the least energy (J) of the pipeline for an iteration time (s).
    min_time_s, max_time_s:
        Between these an iteration time makes a difference.
    """

    def __init__(
        self,
        planner: Planner,
        durations_at: Callable[[float], NDArray[np.float64]],
        energy_at: Callable[[float], float],
        min_time_s: float,
        max_time_s: float,
    ) -> None:
        self._planner = planner
        self._durations_at = durations_at
        self._energy_at = energy_at
        self._min_time_s = min_time_s
        self._max_time_s = max_time_s
        self._power_w = float(planner.powers_w.sum())
        self._anchors: dict[int, Choices] = {}

    def at(self, deadline_s: float, effort: Effort, time_limit_s: float | None = None) -> Choices:
        """Return the best choices found within a deadline (between the shortest and the longest time).

        Raises
        ------
        InfeasibleTimeError
            Even the fastest choices take longer.
        """
        if effort == "fast":
            return self._rounded(deadline_s, deadline_s, QUICK)
        started_s = time.perf_counter()
        enough_j = self._energy_at(deadline_s) * (1.0 + _GAP_ENOUGH) - self._power_w * deadline_s
        found = [self._rounded(deadline_s, deadline_s, THOROUGH)]
        for choices in self._search(deadline_s, found):
            if choices is not None:
                found.append(choices)
            out_of_time = time_limit_s is not None and time.perf_counter() - started_s >= time_limit_s
            if out_of_time or found[-1].effective_energy_j <= enough_j:
                break
        return min(found, key=_energy_j)

    def _search(self, deadline_s: float, found: list[Choices]) -> Iterator[Choices | None]:
        """Yield choices, each when asked for, and None where time has passed without any."""
        yield None
        for planned_s in self._times_around(deadline_s):
            yield self._rounded(planned_s, deadline_s, THOROUGH)
        space, options = self._planner.space, rounding_options(THOROUGH)
        parts = spliced_parts()
        for index in self._indices_around(deadline_s):
            self._anchor(index)
            yield None
        for shorter, longer in self._pairs(deadline_s):
            for part in parts:
                spliced = space.splice(shorter.choices, longer.choices, part, deadline_s, options)
                yield self._planner.checked(spliced, deadline_s)
        distinct = {choices.effective_energy_j: choices for choices in found}
        size = "large" if self._planner.dag.num_operations > _LARGE_OPERATIONS else "small"
        for _, choices in sorted(distinct.items())[: _NUM_FINALISTS[size]]:
            yield from self._refined(choices, deadline_s)

    def _refined(self, choices: Choices, deadline_s: float) -> Iterator[Choices]:
        """Improve a plan and round its own durations anew, in turns, until neither helps."""
        space, table, exhaustive = self._planner.space, self._planner.table, rounding_options(EXHAUSTIVE)
        best = self._planner.checked(space.improve(choices.choices, deadline_s, exhaustive), deadline_s)
        yield best
        for _ in range(_NUM_REFINEMENTS):
            durations_s = table.times_s[table.entries(best.choices)]
            again = self._planner.checked(space.round(durations_s, deadline_s, exhaustive), deadline_s)
            if again.effective_energy_j >= best.effective_energy_j:
                break
            best = again
            yield best

    def _rounded(self, planned_s: float, deadline_s: float, effort: RoundingEffort) -> Choices:
        rounded = self._planner.space.round(self._durations_at(planned_s), deadline_s, rounding_options(effort))
        return self._planner.checked(rounded, deadline_s)

    def _anchor(self, index: int) -> Choices:
        if index not in self._anchors:
            share = index / (_NUM_ANCHORS - 1)
            time_s = self._min_time_s * (1.0 - share) + self._max_time_s * share
            self._anchors[index] = self._rounded(time_s, time_s, THOROUGH)
        return self._anchors[index]

    def _times_around(self, time_s: float) -> list[float]:
        """Return the times around a deadline that the frontier covers."""
        times_s = (time_s + offset * (self._max_time_s - self._min_time_s) for offset in _OFFSETS)
        return [time_s for time_s in times_s if self._min_time_s <= time_s <= self._max_time_s]

    def _indices_around(self, deadline_s: float) -> range:
        """Return which anchors lie around a deadline."""
        span_s = self._max_time_s - self._min_time_s
        if span_s <= 0.0:
            return range(0)
        here = int((deadline_s - self._min_time_s) / span_s * (_NUM_ANCHORS - 1))
        return range(max(here - _ANCHORS_AROUND, 0), min(here + _ANCHORS_AROUND, _NUM_ANCHORS - 1) + 1)

    def _pairs(self, deadline_s: float) -> list[tuple[Choices, Choices]]:
        """Return the pairs of anchors around a deadline between which the least energy lies, best first."""
        anchors = [self._anchor(index) for index in self._indices_around(deadline_s)]
        shorter = [a for a in anchors if a.makespan_s <= deadline_s]
        longer = [a for a in anchors if a.makespan_s > deadline_s]
        pairs = [(_energy_between(a, b, deadline_s), i, j) for i, a in enumerate(shorter) for j, b in enumerate(longer)]
        return [(shorter[i], longer[j]) for _, i, j in sorted(pairs)[:_NUM_PAIRS]]


def _energy_between(shorter: Choices, longer: Choices, time_s: float) -> float:
    """Return the energy at a time on the line through two plans, J."""
    share = (time_s - shorter.makespan_s) / (longer.makespan_s - shorter.makespan_s)
    return (1.0 - share) * shorter.effective_energy_j + share * longer.effective_energy_j


def _energy_j(choices: Choices) -> float:
    return choices.effective_energy_j
