"""The sweep: operations, given as callables, measured at one value of a knob after the other."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from perseus.actuator.guardian import guarded
from perseus.device.counter import CounterChange, Instruments, RealInstruments
from perseus.device.errors import MeasurementError
from perseus.device.protocol import EventReason
from perseus.profiler.knobs import ClockKnob, Knob
from perseus.profiler.measured import Journal, MeasuredPoint, MeasuredProfile
from perseus.profiler.windows import Estimate, Span, fit_powers, make_windows, mean

if TYPE_CHECKING:
    from perseus.device.counter import CounterWatch
    from perseus.device.protocol import Gpu

Operation = Callable[[], float | None]
"""Runs an operation to its end on the GPU; returns its time there in s if it knows it (device events), else None."""

RISES_TO_STOP = 5
_CLOCK_SAMPLE_S = 0.010
_NOT_HELD_SHARE = 0.05
_LEAST_WINDOWS = 4


class SweepProgress(NamedTuple):
    """How far a sweep is."""

    done: int
    """Points measured or left out."""
    total: int
    """Points at most: a sweep may stop early."""
    stage: int
    kind: str
    value: float
    left_s: float
    """Time left at most, from the time that the points so far took; NaN at first."""


@dataclass(frozen=True, kw_only=True)
class Precision:
    """When a point is good enough.

    Attributes
    ----------
    half_width:
        Bar for the relative half-widths of the 95 % confidence intervals of time and energy.
    least_s, most_s:
        Time spent on a point, at least and at most.
    """

    half_width: float = 0.01
    least_s: float = 0.5
    most_s: float = 20.0


@dataclass
class _ClockSampler:
    """Looks at the clock while an operation runs."""

    gpu: Gpu
    clocks_mhz: list[int] = field(default_factory=list)
    reasons: EventReason = EventReason.NONE
    working: bool = False

    def sample(self) -> None:
        if self.working:
            self.clocks_mhz.append(self.gpu.achieved_clock_mhz())
            self.reasons |= self.gpu.event_reasons().slowing


def sweep(
    gpu: Gpu,
    operations: Mapping[tuple[int, str], Operation],
    *,
    knob: Knob | None = None,
    precision: Precision | None = None,
    blocking_power_w: float | None = None,
    journal: str | os.PathLike[str] | None = None,
    progress: Callable[[SweepProgress], None] | None = None,
    instruments: Instruments | None = None,
) -> MeasuredProfile:
    """Measure operations over a knob, from the fastest value to the slowest.

    The GPU's settings are restored at the end, and by a guardian if this process dies.

    Parameters
    ----------
    gpu:
        The GPU that the operations run on.
    operations:
        Callables by (stage, kind). Each runs its operation once and waits for the GPU.
    knob:
        What to turn; None: the core clock, at all supported values. An operation whose energy has risen five times in a
        row is done, where the knob allows that.
    precision:
        When a point is good enough.
    blocking_power_w:
        The blocking power if known; None: measured first, while the GPU has nothing to do.
    journal:
        File to note each point in. If it exists, the sweep goes on where that one ended.
    progress:
        Called before each point.
    instruments:
        Time and pollers; None: real time.

    Raises
    ------
    MeasurementError
        If the journal is another sweep's, or the counter stands still or starts again too often.
    DeviceError
        If the GPU fails.
    """
    run = _Sweep(
        gpu, operations, knob or ClockKnob(), precision or Precision(), progress, instruments or RealInstruments()
    )
    return run.run(journal, blocking_power_w)


def measure_blocking_power_w(gpu: Gpu, *, duration_s: float = 1.0, instruments: Instruments | None = None) -> float:
    """Return the power of a GPU that has a context and nothing to do, in W."""
    instruments = instruments or RealInstruments()
    with closing(instruments.watch_counter(gpu)) as watch:
        changes = _await_changes(gpu, watch, instruments, duration_s)
    return (changes[-1].energy_j - changes[0].energy_j) / (changes[-1].time_s - changes[0].time_s)


def _await_changes(gpu: Gpu, watch: CounterWatch, instruments: Instruments, duration_s: float) -> list[CounterChange]:
    """Wait for changes that are at least `duration_s` apart."""
    changes: list[CounterChange] = []
    until_s = instruments.now_s() + max(5.0, 10.0 * duration_s)
    while len(changes) < 2 or changes[-1].time_s - changes[0].time_s < duration_s:
        if instruments.now_s() > until_s:
            raise MeasurementError(_standing_still(gpu))
        instruments.sleep_s(0.02)
        changes += watch.take_changes()
    return changes


def _standing_still(gpu: Gpu) -> str:
    return (
        f"the energy counter of GPU {gpu.uuid} stands still; it should change every 20 to 100 ms; "
        "run perseus doctor, and restart the driver if it stays so"
    )


class _Sweep:
    """One sweep. `run` reads as the procedure; each other method is a step of it."""

    def __init__(
        self,
        gpu: Gpu,
        operations: Mapping[tuple[int, str], Operation],
        knob: Knob,
        precision: Precision,
        progress: Callable[[SweepProgress], None] | None,
        instruments: Instruments,
    ) -> None:
        if not operations:
            raise MeasurementError("there is no operation to measure; give at least one callable by (stage, kind)")
        self._gpu = gpu
        self._operations = dict(operations)
        self._knob = knob
        self._precision = precision
        self._progress = progress
        self._instruments = instruments
        self._sampler = _ClockSampler(gpu)

    def run(self, journal_path: str | os.PathLike[str] | None, blocking_power_w: float | None) -> MeasuredProfile:
        """Measure everything and return it."""
        values = self._knob.values(self._gpu)
        journal = Journal(journal_path, self._identity())
        with ExitStack() as stack:
            stack.enter_context(guarded(self._gpu))
            self._blocking_power_w = self._blocking_power(journal, blocking_power_w)
            self._watch = stack.enter_context(closing(self._instruments.watch_counter(self._gpu)))
            stack.enter_context(closing(self._instruments.repeat(self._sampler.sample, _CLOCK_SAMPLE_S)))
            self._measure_all(values, journal)
        return MeasuredProfile(
            knob=self._knob.name,
            gpu_uuid=self._gpu.uuid,
            gpu_name=self._gpu.name,
            blocking_power_w=self._blocking_power_w,
            points=tuple(journal.points),
        )

    def _identity(self) -> dict[str, object]:
        kinds = [[stage, kind] for stage, kind in self._operations]
        return {"gpu": self._gpu.uuid, "knob": self._knob.name, "operations": kinds}

    def _blocking_power(self, journal: Journal, given_w: float | None) -> float:
        if given_w is None and journal.blocking_power_w is not None:
            return journal.blocking_power_w
        power_w = given_w
        if power_w is None:
            power_w = measure_blocking_power_w(self._gpu, instruments=self._instruments)
        journal.set_blocking_power_w(power_w)
        return power_w

    def _measure_all(self, values: list[float], journal: Journal) -> None:
        energies_j: dict[tuple[int, str], list[float]] = {key: [] for key in self._operations}
        total, done, spent_s, measured = len(values) * len(self._operations), 0, 0.0, 0
        for value in values:
            applied = False
            for key in self._operations:
                done += 1
                if self._is_finished(energies_j[key]):
                    continue
                point = journal.find(*key, value)
                if point is None:
                    left_s = (total - done + 1) * spent_s / measured if measured else math.nan
                    self._report(SweepProgress(done - 1, total, *key, value, left_s))
                    start_s = self._instruments.now_s()
                    if not applied:
                        self._knob.apply(self._gpu, value, self._instruments)
                        applied = True
                    point = self._measure(key, value)
                    journal.add(point)
                    spent_s, measured = spent_s + self._instruments.now_s() - start_s, measured + 1
                energies_j[key].append(point.energy_j)

    def _report(self, progress: SweepProgress) -> None:
        if self._progress is not None:
            self._progress(progress)

    def _is_finished(self, energies_j: list[float]) -> bool:
        return self._knob.stops_early and has_risen(energies_j, RISES_TO_STOP)

    def _measure(self, key: tuple[int, str], value: float) -> MeasuredPoint:
        """Run one operation again and again until its time and energy are known well enough."""
        operation = self._operations[key]
        operation()  # the first one after a change of clock isn't like the others
        resets = self._gpu.counter_resets
        self._watch.take_changes()
        self._sampler.clocks_mhz.clear()
        self._sampler.reasons = EventReason.NONE
        start_s = self._instruments.now_s()
        spans: list[Span] = []
        changes: list[CounterChange] = []
        time_s = power_w = Estimate(value=math.nan, half_width=math.inf)
        windows, good = 0, False
        while True:
            spans.append(self._run_once(operation))
            new = self._watch.take_changes()
            elapsed_s = self._instruments.now_s() - start_s
            if not new and elapsed_s < self._precision.most_s:
                continue
            changes += new
            time_s, power_w, windows = self._estimate(spans, changes)
            good = windows >= _LEAST_WINDOWS and max(time_s.relative, power_w.relative) <= self._precision.half_width
            if elapsed_s >= self._precision.most_s or (good and elapsed_s >= self._precision.least_s):
                break
        if windows < 2 or not math.isfinite(power_w.value):
            raise MeasurementError(_standing_still(self._gpu))
        self._gpu.energy_j()
        if self._gpu.counter_resets != resets:
            raise MeasurementError(
                f"the energy counter of GPU {self._gpu.uuid} started again in a measurement; try again"
            )
        return self._point(key, value, time_s, power_w, windows, good)

    def _run_once(self, operation: Operation) -> Span:
        self._sampler.working = True
        start_s = self._instruments.now_s()
        try:
            device_s = operation()
        finally:
            self._sampler.working = False
        end_s = self._instruments.now_s()
        return Span("operation", start_s if device_s is None else end_s - device_s, end_s)

    def _estimate(self, spans: list[Span], changes: list[CounterChange]) -> tuple[Estimate, Estimate, int]:
        time_s = mean([span.end_s - span.start_s for span in spans])
        windows = make_windows(changes, spans)
        if len(windows) < 2:
            return time_s, Estimate(value=math.nan, half_width=math.inf), len(windows)
        powers_w, _ = fit_powers(windows, ["operation"], self._blocking_power_w)
        return time_s, powers_w["operation"], len(windows)

    def _point(
        self, key: tuple[int, str], value: float, time_s: Estimate, power_w: Estimate, windows: int, good: bool
    ) -> MeasuredPoint:
        clocks = self._sampler.clocks_mhz
        astray = sum(not self._knob.tolerates(value, mhz) for mhz in clocks)
        held = astray <= _NOT_HELD_SHARE * len(clocks)
        return MeasuredPoint(
            stage=key[0],
            kind=key[1],
            value=value,
            time_s=time_s.value,
            energy_j=power_w.value * time_s.value,
            time_half_width=time_s.relative,
            energy_half_width=math.hypot(time_s.relative, power_w.relative),
            windows=windows,
            accepted=good,
            held=held,
            achieved_mhz=sum(clocks) / len(clocks) if clocks else 0.0,
            reasons="" if held else self._sampler.reasons.describe(),
        )


def has_risen(energies_j: list[float], times: int) -> bool:
    """Whether the energy has risen so many times in a row at the end."""
    last = energies_j[-times - 1 :]
    return len(last) > times and all(a < b for a, b in pairwise(last))
