"""Measuring a training that runs anyway.

The integration with a training framework calls `begin_iteration` and `end_iteration`, and `record` for each operation.
One clock holds for whole iterations; when the energy of every kind is known well enough at it, the next lower one
follows. The model trains meanwhile as it would, only slower.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perseus.actuator.guardian import Guardian
from perseus.device.counter import CounterChange, Instruments, RealInstruments
from perseus.device.protocol import EventReason
from perseus.profiler.knobs import ClockKnob, Knob
from perseus.profiler.measured import Journal, MeasuredPoint, MeasuredProfile
from perseus.profiler.sweep import RISES_TO_STOP, has_risen
from perseus.profiler.windows import Estimate, Span, Window, fit_powers, make_windows, mean

if TYPE_CHECKING:
    from perseus.device.counter import Closable, CounterWatch
    from perseus.device.protocol import Gpu

_CLOCK_SAMPLE_S = 0.010
_NOT_HELD_SHARE = 0.05


class InTrainingProfiler:
    """Profiles the operations of one GPU's stages while a training runs.

    Parameters
    ----------
    gpu:
        The GPU of this rank.
    knob:
        What to turn; None: the core clock, at all supported values.
    half_width:
        Bar for the relative half-widths of the 95 % confidence intervals of time and energy.
    least_iterations, most_iterations:
        Iterations at a clock, at least and at most.
    blocking_power_w:
        The blocking power if known; None: fitted from the time in which the GPU waits.
    journal:
        File to note each point in. If it exists, clocks that it has are not measured again.
    instruments:
        Time and pollers; None: real time.

    Notes ----- Operations whose time isn't theirs alone (a backward that contains an all-reduce) are recorded under a
    kind that begins with ``"_"``: it takes part in the regression, so that its energy isn't charged to others, but
    makes no point.
    """

    def __init__(
        self,
        gpu: Gpu,
        *,
        knob: Knob | None = None,
        half_width: float = 0.01,
        least_iterations: int = 2,
        most_iterations: int = 50,
        blocking_power_w: float | None = None,
        journal: str | os.PathLike[str] | None = None,
        instruments: Instruments | None = None,
    ) -> None:
        self._gpu = gpu
        self._knob = knob or ClockKnob()
        self._half_width = half_width
        self._iterations_range = (least_iterations, most_iterations)
        self._given_blocking_w = blocking_power_w
        self._instruments = instruments or RealInstruments()
        self._journal = Journal(journal, {"gpu": gpu.uuid, "knob": self._knob.name, "operations": "in training"})
        self._blocking: list[tuple[float, float]] = []  # (power in W, weight)
        self._fitted_blocking_w: Estimate | None = None
        self._fitted_windows: list[Window] = []
        self._lock = threading.Lock()
        self._spans: list[Span] = []
        self._changes: list[CounterChange] = []
        self._clocks_mhz: list[int] = []
        self._reasons = EventReason.NONE
        self._iterations = 0
        self._in_iteration = False
        self._energies_j: dict[str, list[float]] = {}
        self._values = self._knob.values(gpu)
        self._next = 0
        self._skip_known()
        self._guardian: Guardian | None = None
        self._watch: CounterWatch | None = None
        self._sampling: Closable | None = None

    @property
    def finished(self) -> bool:
        """Whether all points are measured. The clocks are then as they were."""
        return self._next >= len(self._values)

    @property
    def value(self) -> float | None:
        """The knob's present value; None when finished."""
        return None if self.finished else self._values[self._next]

    def begin_iteration(self) -> None:
        """Say that an iteration begins. The first one at a clock waits until the clock is in effect."""
        if self.finished:
            return
        if self._watch is None:
            self._open()
        if self._iterations == 0:
            self._begin_clock()
        self._in_iteration = True

    def record(self, stage: int, kind: str, start_s: float, end_s: float) -> None:
        """Say that an operation ran on the GPU.

        Parameters
        ----------
        stage, kind:
            The operation; see the notes of the class for kinds to leave out.
        start_s, end_s:
            When it ran, on the monotonic clock. May be told later, but before `end_iteration`.
        """
        with self._lock:
            self._spans.append(Span(f"{stage}:{kind}", start_s, end_s))

    def end_iteration(self) -> bool:
        """Say that the iteration ended; whether the clock will now change (or all is measured)."""
        if self.finished or not self._in_iteration:
            return False
        self._in_iteration = False
        self._iterations += 1
        assert self._watch is not None
        self._changes += self._watch.take_changes()
        least, most = self._iterations_range
        if self._iterations < least:
            return False
        points, good = self._estimate()
        if not points or (not good and self._iterations < most):
            return self._iterations >= most and self._advance([])
        return self._advance(points)

    def close(self) -> None:
        """End the measurement, finished or not, and restore the GPU."""
        for part in (self._watch, self._sampling):
            if part is not None:
                part.close()
        self._watch = self._sampling = None
        guardian, self._guardian = self._guardian, None
        if guardian is not None:
            guardian.release()

    def result(self) -> MeasuredProfile:
        """Return what has been measured so far."""
        return MeasuredProfile(
            knob=self._knob.name,
            gpu_uuid=self._gpu.uuid,
            gpu_name=self._gpu.name,
            blocking_power_w=self._blocking_power_w(),
            points=tuple(self._journal.points),
        )

    def _open(self) -> None:
        self._guardian = Guardian(self._gpu)
        self._watch = self._instruments.watch_counter(self._gpu)
        self._sampling = self._instruments.repeat(self._sample, _CLOCK_SAMPLE_S)

    def _begin_clock(self) -> None:
        assert self._watch is not None
        self._knob.apply(self._gpu, self._values[self._next], self._instruments)
        with self._lock:
            self._spans.clear()
        self._watch.take_changes()
        self._changes = []
        self._clocks_mhz = []
        self._reasons = EventReason.NONE

    def _sample(self) -> None:
        if self._in_iteration:
            self._clocks_mhz.append(self._gpu.achieved_clock_mhz())
            self._reasons |= self._gpu.event_reasons().slowing

    def _estimate(self) -> tuple[list[MeasuredPoint], bool]:
        """Return a point for each kind, and whether all are known well enough."""
        with self._lock:
            spans = sorted(self._spans, key=lambda span: span.end_s)
        kinds = sorted({span.kind for span in spans})
        windows = make_windows(self._changes, spans)
        if not kinds or len(windows) <= len(kinds) + 1:
            return [], False
        powers_w, blocking_w = fit_powers(windows, kinds, self._given_blocking_w)
        shown = [kind for kind in kinds if not kind.partition(":")[2].startswith("_")]
        points = [self._point(kind, spans, powers_w[kind], len(windows)) for kind in shown]
        self._fitted_blocking_w, self._fitted_windows = blocking_w, windows
        return points, all(point.accepted for point in points)

    def _point(self, key: str, spans: Sequence[Span], power_w: Estimate, windows: int) -> MeasuredPoint:
        time_s = mean([span.end_s - span.start_s for span in spans if span.kind == key])
        stage, _, kind = key.partition(":")
        value = self._values[self._next]
        astray = sum(not self._knob.tolerates(value, mhz) for mhz in self._clocks_mhz)
        held = astray <= _NOT_HELD_SHARE * len(self._clocks_mhz)
        return MeasuredPoint(
            stage=int(stage),
            kind=kind,
            value=value,
            time_s=time_s.value,
            energy_j=power_w.value * time_s.value,
            time_half_width=time_s.relative,
            energy_half_width=math.hypot(time_s.relative, power_w.relative),
            windows=windows,
            accepted=max(time_s.relative, power_w.relative) <= self._half_width,
            held=held,
            achieved_mhz=sum(self._clocks_mhz) / len(self._clocks_mhz) if self._clocks_mhz else 0.0,
            reasons="" if held else self._reasons.describe(),
        )

    def _advance(self, points: list[MeasuredPoint]) -> bool:
        """Keep the points and go to the next value."""
        for point in points:
            if not math.isfinite(point.energy_j):
                continue
            self._journal.add(point)
            self._energies_j.setdefault(f"{point.stage}:{point.kind}", []).append(point.energy_j)
        self._note_blocking_power()
        self._iterations = 0
        self._next += 1
        if self._all_rose():
            self._next = len(self._values)
        if self.finished:
            self.close()
        return True

    def _note_blocking_power(self) -> None:
        estimate, self._fitted_blocking_w = self._fitted_blocking_w, None
        if estimate is None or not math.isfinite(estimate.value) or not math.isfinite(estimate.half_width):
            return
        self._blocking.append((estimate.value, _waiting_s(self._fitted_windows)))
        self._journal.set_blocking_power_w(self._blocking_power_w())

    def _blocking_power_w(self) -> float:
        """Return the blocking power: as given, else the fits at all clocks, weighted by the time waited."""
        if self._given_blocking_w is not None:
            return self._given_blocking_w
        weight = sum(w for _, w in self._blocking)
        if weight > 0:
            return sum(power_w * w for power_w, w in self._blocking) / weight
        return math.nan if self._journal.blocking_power_w is None else self._journal.blocking_power_w

    def _all_rose(self) -> bool:
        if not self._knob.stops_early or not self._energies_j:
            return False
        return all(has_risen(energies_j, RISES_TO_STOP) for energies_j in self._energies_j.values())

    def _skip_known(self) -> None:
        """Go on where an earlier profiler ended."""
        for point in self._journal.points:
            self._energies_j.setdefault(f"{point.stage}:{point.kind}", []).append(point.energy_j)
        known = {point.value for point in self._journal.points}
        while self._next < len(self._values) and self._values[self._next] in known:
            self._next += 1
        if self._all_rose():
            self._next = len(self._values)


def _waiting_s(windows: Sequence[Window]) -> float:
    return sum(max(0.0, window.duration_s - sum(window.busy_s.values())) for window in windows)
