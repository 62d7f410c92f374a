"""Measurement of power limits inside a running training job.

The limits are measured one after the other, the highest first, while training goes on: set the limit, let
it settle, then watch a window of steps until time per step and power are known well enough.  All limits
are measured: of real cost curves only half have a single minimum.

Power comes from the energy counter, which ticks every 20 to 100 ms.  A window therefore starts and ends
where the counter was seen to change, and the remaining uncertainty of when it really did, over the length
of the window, is the uncertainty of the power.  Nothing waits for the counter, as training must not.

A window may span epochs: `PowerLimitSweep.pause` closes its segment, the next step opens another.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perseus.recurring.errors import JobError
from perseus.recurring.gpus import GpuGroup, synchronize
from perseus.recurring.power_profile import PowerPoint
from perseus.recurring.ranks import Ranks, sum_distinct

LONGEST_TICK_S = 0.1  # the slowest energy counter known
_NORMAL_95 = 1.96
# the 95 % half-width of the difference of two moments, each uniformly late by up to one tick
_LAG_95 = _NORMAL_95 / math.sqrt(6.0)


@dataclass(frozen=True, kw_only=True)
class SweepTiming:
    """How long to measure.

    Parameters
    ----------
    settle_s:
        Time after a change of limit that is not measured.
    precision:
        Accepted half-width of the 95 % interval of the energy per step, relative.
    min_steps, max_window_s:
        A window has at least so many steps, and ends after this time whatever its precision.
    check_every:
        With several ranks, they agree on the next move about once a second, but at least once in this
        many steps.

    Raises
    ------
    JobError
        If a value makes no sense.
    """

    settle_s: float = 1.0
    precision: float = 0.01
    min_steps: int = 5
    max_window_s: float = 30.0
    check_every: int = 10

    def __post_init__(self) -> None:
        if not (self.settle_s >= 0.0 and self.precision > 0.0 and self.max_window_s > 0.0):
            raise JobError(f"{self} cannot be kept; give times and a precision above 0 (settle_s may be 0)")
        if self.min_steps < 2 or self.check_every < 1:
            raise JobError(f"{self} cannot be kept; give at least 2 min_steps and 1 for check_every")


class Measurement(NamedTuple):
    """A measured power limit, and the half-width of the 95 % interval of its energy per step, relative."""

    point: PowerPoint
    half_width: float


class _Report(NamedTuple):
    """What one rank tells the others about its window."""

    settled: bool
    finished: bool
    powers_w: Mapping[str, float]
    step_s: float
    half_width: float
    failed: bool
    pace_s: float  # duration of the last step, measured or not


class _Counter:
    """One energy counter within one segment of a window, read at the ends of steps."""

    def __init__(self, energy_j: float) -> None:
        self._seen_j = energy_j
        self._first: tuple[float, float] | None = None
        self.span_s = 0.0
        self.span_j = 0.0

    def read(self, now_s: float, energy_j: float) -> None:
        if energy_j < self._seen_j:  # the driver was reloaded: begin again
            self._first, self.span_s, self.span_j = None, 0.0, 0.0
        elif energy_j > self._seen_j:
            if self._first is None:
                self._first = (now_s, energy_j)
            self.span_s = now_s - self._first[0]
            self.span_j = energy_j - self._first[1]
        self._seen_j = energy_j


class Window:
    """Steps at one power limit, in one or several segments."""

    def __init__(self) -> None:
        self._counters: dict[str, _Counter] = {}
        self._closed: dict[str, tuple[float, float]] = {}  # span in s and J of earlier segments
        self._segments = 0
        self._last_step_s: float | None = None
        self._steps = 0
        self._sum_s = 0.0
        self._sum_squares_s2 = 0.0

    @property
    def is_open(self) -> bool:
        """Whether a segment is open."""
        return self._last_step_s is not None

    @property
    def steps(self) -> int:
        """Number of whole steps seen."""
        return self._steps

    @property
    def time_s(self) -> float:
        """Time of those steps, in seconds."""
        return self._sum_s

    def open(self, now_s: float, energies_j: Mapping[str, float]) -> None:
        """Begin a segment at the end of a step."""
        self._last_step_s = now_s
        self._segments += 1
        self._counters = {uuid: _Counter(energy_j) for uuid, energy_j in energies_j.items()}

    def step(self, now_s: float, energies_j: Mapping[str, float]) -> None:
        """Count a step that ends now."""
        if self._last_step_s is None:
            return
        duration_s = now_s - self._last_step_s
        self._last_step_s = now_s
        self._steps += 1
        self._sum_s += duration_s
        self._sum_squares_s2 += duration_s**2
        for uuid, counter in self._counters.items():
            counter.read(now_s, energies_j[uuid])

    def add_wait(self, wait_s: float) -> None:
        """Add the time that steps already counted took to finish on the GPU."""
        self._sum_s += wait_s
        if self._last_step_s is not None:
            self._last_step_s += wait_s

    def close(self) -> None:
        """End the segment."""
        self._closed = self._spans()
        self._counters = {}
        self._last_step_s = None

    def powers_w(self) -> dict[str, float]:
        """Return the average power, in watts, by UUID; NaN while unknown."""
        return {uuid: joules / seconds if seconds else math.nan for uuid, (seconds, joules) in self._spans().items()}

    def half_width(self) -> float:
        """Return the relative half-width of the 95 % interval of the energy per step."""
        shortest_s = min((seconds for seconds, _ in self._spans().values()), default=math.inf)
        if self._steps < 2 or not shortest_s:
            return math.inf
        mean_s = self._sum_s / self._steps
        lag_s = min(mean_s, LONGEST_TICK_S)
        of_power = _LAG_95 * lag_s * math.sqrt(self._segments) / shortest_s
        variance = max(self._sum_squares_s2 - self._steps * mean_s**2, 0.0) / (self._steps - 1)
        of_time = _student_95(self._steps - 1) * math.sqrt(variance / self._steps) / mean_s if mean_s else math.inf
        return math.hypot(of_power, of_time)

    def _spans(self) -> dict[str, tuple[float, float]]:
        spans = dict(self._closed)
        for uuid, counter in self._counters.items():
            seconds, joules = spans.get(uuid, (0.0, 0.0))
            spans[uuid] = (seconds + counter.span_s, joules + counter.span_j)
        return spans


def _student_95(freedom: int) -> float:
    """Return the two-sided 95 % point of Student's t, to two terms of its expansion (3 % low at 4)."""
    return _NORMAL_95 + 2.372 / freedom + 2.823 / freedom**2


class PowerLimitSweep:
    """Measures power limits one after the other; driven by `step` at the end of every training step.

    Parameters
    ----------
    gpus, ranks:
        The GPUs of this process, and the processes of the job.
    limits_w:
        The limits to measure, in the order to measure them.
    timing:
        How long to measure.
    on_measured:
        Called, on every rank, with each measurement.
    stop_early:
        Asked after each measurement whether the remaining limits can be skipped.
    clock:
        Gives the time in seconds.
    """

    def __init__(
        self,
        gpus: GpuGroup,
        ranks: Ranks,
        limits_w: Sequence[float],
        *,
        timing: SweepTiming | None = None,
        on_measured: Callable[[Measurement], None] | None = None,
        stop_early: Callable[[], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gpus = gpus
        self._ranks = ranks
        self._remaining_w = list(limits_w)
        self._timing = timing or SweepTiming()
        self._on_measured = on_measured
        self._stop_early = stop_early
        self._clock = clock
        self._window: Window | None = None  # None while settling
        self._set_at_s: float | None = None  # None before the limit has been set
        self._steps = 0
        self._next_check = 1
        self._last_step_s: float | None = None
        self._pace_s = 0.0
        self._resets = gpus.counter_resets()
        self.failed = False

    @property
    def done(self) -> bool:
        """Whether there is nothing left to measure."""
        return not self._remaining_w

    def step(self) -> bool:
        """Note that a training step has ended; return whether nothing is left to measure."""
        if self.done:
            return True
        if self._set_at_s is None:
            self._begin_limit()
            return False
        self._steps += 1
        now_s = self._clock()
        self._pace_s = now_s - self._last_step_s if self._last_step_s is not None else 0.0
        self._last_step_s = now_s
        if self._window is not None:
            self._watch(self._window, now_s)
        if self._ranks.size == 1 or self._steps >= self._next_check:
            self._agree(self._ranks.gather(self._report(now_s)))
        return self.done

    def pause(self) -> None:
        """Note that what follows, such as an evaluation, is no training step."""
        self._last_step_s = None
        if self._window is not None and self._window.is_open:
            self._window.close()

    def _watch(self, window: Window, now_s: float) -> None:
        energies_j, resets = self._gpus.energies_j(), self._gpus.counter_resets()
        if resets != self._resets:
            self._resets = resets
            self._window = window = Window()  # what it has seen is void
        if window.is_open:
            window.step(now_s, energies_j)
        else:
            window.open(now_s, energies_j)

    @property
    def _is_broken(self) -> bool:
        return not (self._gpus.measurable and self._gpus.settable)

    def _begin_limit(self) -> None:
        self._gpus.set_limit_w(self._remaining_w[0])
        self._set_at_s = self._clock()
        self._window = None

    def _report(self, now_s: float) -> _Report:
        settled = self._set_at_s is not None and now_s - self._set_at_s >= self._timing.settle_s
        window = self._window
        if window is None:
            return _Report(settled, False, {}, math.nan, math.inf, self._is_broken, self._pace_s)
        half_width = window.half_width()
        measured = bool(window.steps) and not any(math.isnan(power) for power in window.powers_w().values())
        finished = measured and (
            (window.steps >= self._timing.min_steps and half_width <= self._timing.precision)
            or window.time_s >= self._timing.max_window_s
        )
        if finished:  # steps that were only queued so far count as done once their time is in
            synchronize()
            window.add_wait(self._clock() - now_s)
        # a counter that has not moved for a whole window is a broken one; two steps may be too few to tell
        stuck = window.steps > 2 and window.time_s >= self._timing.max_window_s and not measured
        step_s = window.time_s / window.steps if window.steps else math.nan
        failed = self._is_broken or stuck
        return _Report(settled, finished, window.powers_w(), step_s, half_width, failed, self._pace_s)

    def _agree(self, reports: list[_Report]) -> None:
        slowest_s = max(report.pace_s for report in reports)
        steps_per_s = int(1.0 / slowest_s) if slowest_s > 0.0 else self._timing.check_every
        self._next_check = self._steps + min(max(steps_per_s, 1), self._timing.check_every)
        if any(report.failed for report in reports):
            self.failed = True
            self._remaining_w = []
        elif self._window is None:
            if all(report.settled for report in reports):
                synchronize()
                self._window = Window()
                self._window.open(self._clock(), self._gpus.energies_j())
        elif all(report.finished for report in reports):
            self._finish_limit(reports)

    def _finish_limit(self, reports: list[_Report]) -> None:
        point = PowerPoint(
            limit_w=self._remaining_w.pop(0),
            average_power_w=sum_distinct(report.powers_w for report in reports),
            rate_per_s=1.0 / max(report.step_s for report in reports),
        )
        if self._on_measured is not None:
            self._on_measured(Measurement(point, max(report.half_width for report in reports)))
        if self._stop_early is not None and self._stop_early():
            self._remaining_w = []
        self._window, self._set_at_s = None, None
        if self._remaining_w:
            self._begin_limit()
