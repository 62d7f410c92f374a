"""One run of a recurring job: its batch size, its epochs and steps, and when it ends."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, SupportsFloat, TypeVar

from perseus.recurring.cost import Preference
from perseus.recurring.errors import RunError
from perseus.recurring.gpus import GpuGroup, synchronize
from perseus.recurring.policy import Ending
from perseus.recurring.power_limits import Measurement, PowerLimitSweep, SweepTiming
from perseus.recurring.power_profile import PowerPoint, cheapest_point
from perseus.recurring.ranks import Ranks, sum_distinct

logger = logging.getLogger("perseus.recurring")

Batch = TypeVar("Batch")


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What a run is to do; the same on all ranks.

    Attributes
    ----------
    trial_number:
        Its number in the trial log; None for a run outside it.
    batch_size:
        The batch size to train with.
    target, higher_is_better, max_epochs:
        When it has reached its target, and when it has failed.
    cap_j:
        Cost that it must not pass, in joules; may be infinite.
    preference:
        How energy and time make the cost.
    epoch_cost_j:
        Expected cost of the first epoch, in joules; NaN if unknown.
    measured:
        Power limits already measured at this batch size.
    to_measure_w:
        Power limits still to be measured, in watts, in the order of measurement.
    has_gpu:
        Without one, every second counts as the cost of one joule.
    """

    trial_number: int | None
    batch_size: int
    target: float
    higher_is_better: bool
    max_epochs: int
    cap_j: float
    preference: Preference
    epoch_cost_j: float
    measured: tuple[PowerPoint, ...]
    to_measure_w: tuple[float, ...]
    has_gpu: bool


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """How a run ended.

    Attributes
    ----------
    trial_number:
        Its number in the trial log; None if it ran outside it.
    batch_size, power_limit_w:
        What it ran with; the limit is in watts, None if none was chosen.
    ending:
        ``reached``, ``capped``, ``exhausted``, ``abandoned`` or ``unmeasured``; see `TrialResult`.
    reached:
        Whether it reached the target, measured or not.
    epochs:
        Complete epochs.
    energy_j, time_s, cost_j:
        Of all GPUs, from the first epoch to the end of the last.
    metric:
        The last metric that was reported; None if there was none.
    """

    trial_number: int | None
    batch_size: int
    power_limit_w: float | None
    ending: Ending
    reached: bool
    epochs: int
    energy_j: float
    time_s: float
    cost_j: float
    metric: float | None


class _Reading(NamedTuple):
    """Time and energy counters at one moment."""

    time_s: float
    energies_j: Mapping[str, float]
    counter_resets: int

    def energies_until(self, later: _Reading) -> dict[str, float]:
        """Return the energies used since, by UUID; NaN if a counter began anew in between."""
        if later.counter_resets != self.counter_resets:
            return dict.fromkeys(self.energies_j, math.nan)
        differences_j = {uuid: later.energies_j[uuid] - before_j for uuid, before_j in self.energies_j.items()}
        return {uuid: used_j if used_j >= 0.0 else math.nan for uuid, used_j in differences_j.items()}


class _EpochReport(NamedTuple):
    """What one rank tells the others about an epoch."""

    energies_j: Mapping[str, float]
    time_s: float
    metric: float | None


class Run:
    """A run in progress; made by `Job.run`.

    Attributes
    ----------
    plan:
        What it is to do.
    result:
        How it ended; None until the ``with`` block has been left.
    """

    def __init__(
        self,
        plan: RunPlan,
        gpus: GpuGroup,
        ranks: Ranks,
        *,
        timing: SweepTiming | None = None,
        on_measured: Callable[[Measurement], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan = plan
        self.result: RunResult | None = None
        self._gpus = gpus
        self._ranks = ranks
        self._on_measured = on_measured
        self._clock = clock
        self._points = list(plan.measured)
        self._power_limit_w: float | None = None
        self._sweep = PowerLimitSweep(
            gpus, ranks, plan.to_measure_w, timing=timing, on_measured=self._add_measurement, clock=clock
        )
        self._ending: Ending | None = None
        self._epochs = 0
        self._steps = 0  # of the epoch in progress
        self._energy_j = 0.0
        self._time_s = 0.0
        self._next_epoch_cost_j = plan.epoch_cost_j
        self._metric: float | None = None
        self._new_metric: float | None = None  # reported in the epoch in progress
        self._warned = False
        self._start: _Reading | None = None  # when the epoch in progress began
        self._swept_in_epoch = False
        if self._sweep.done:
            self._choose_limit()

    @property
    def batch_size(self) -> int:
        """The batch size to train with, over all ranks together or per rank as the job defines it."""
        return self.plan.batch_size

    @property
    def power_limit_w(self) -> float | None:
        """The power limit that was chosen, in watts; None while it is being measured."""
        return self._power_limit_w

    @property
    def ended(self) -> bool:
        """Whether the run has reached its target, its cost cap or its last epoch."""
        return self._ending is not None

    @property
    def cost_j(self) -> float:
        """Cost of the complete epochs, in joules."""
        return self.plan.preference.cost_j(self._energy_j, self._time_s)

    def epochs(self) -> Iterator[int]:
        """Yield the number of each epoch, from 0, until the run has ended."""
        while self.begin_epoch():
            yield self._epochs
            self.end_epoch()

    def steps(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches of ``loader``, measuring power limits meanwhile as long as some are unknown."""
        try:
            for batch in loader:
                yield batch
                self.step()
        finally:
            self._sweep.pause()

    def begin_epoch(self) -> bool:
        """Note that an epoch begins; return False if the run has ended and it must not.

        For loops that `epochs` does not fit, together with `step`, `pause` and `end_epoch`.
        """
        if self._start is not None:
            raise RunError("an epoch has begun while another is in progress; call end_epoch() first")
        if self._epochs == 0 and self._ending is None and self.plan.epoch_cost_j > self.plan.cap_j:
            self._ending = "capped"
        if self._ending is not None:
            return False
        self._start = self._read()
        self._steps = 0
        self._swept_in_epoch = not self._sweep.done
        return True

    def step(self) -> None:
        """Note that a training step has ended."""
        self._steps += 1
        if self._sweep.done:
            return
        if self._sweep.step():
            self._choose_limit()

    def pause(self) -> None:
        """Note that what follows, such as an evaluation, is no training step; the next step ends it."""
        self._sweep.pause()

    def report(self, metric: SupportsFloat) -> None:
        """Report the metric of the epoch in progress; on one rank or on all.

        Raises
        ------
        RunError
            If no epoch is in progress.
        """
        if self._start is None:
            raise RunError("a metric was reported outside an epoch; call report() inside the loop over epochs()")
        self._new_metric = float(metric)

    def end_epoch(self) -> None:
        """Note that the epoch in progress has ended; decides whether the run has."""
        if self._start is None:
            raise RunError("an epoch ended that had not begun; call begin_epoch() first")
        self._sweep.pause()
        synchronize()
        before, now = self._start, self._read()
        report = _EpochReport(before.energies_until(now), now.time_s - before.time_s, self._new_metric)
        self._start, self._new_metric = None, None
        self._add_epoch(self._ranks.gather(report))

    def close(self, *, abandoned: bool = False) -> RunResult:
        """End the run and return its result; `Job.run` calls this when the ``with`` block is left."""
        self._sweep.pause()
        if self._start is not None and self._new_metric is not None and not abandoned:
            self.end_epoch()  # left by a break, after its metric was reported
        self._start = None
        reached = self._ending == "reached"
        ending = self._final_ending(abandoned)
        self.result = RunResult(
            trial_number=self.plan.trial_number,
            batch_size=self.plan.batch_size,
            power_limit_w=self._power_limit_w,
            ending=ending,
            reached=reached and not abandoned,
            epochs=self._epochs,
            energy_j=self._energy_j,
            time_s=self._time_s,
            cost_j=self.cost_j,
            metric=self._metric,
        )
        return self.result

    def _read(self) -> _Reading:
        return _Reading(self._clock(), self._gpus.energies_j(), self._gpus.counter_resets())

    def _final_ending(self, abandoned: bool) -> Ending:
        if abandoned or (self._ending is None and not self._epochs):
            return "abandoned"
        if math.isnan(self._energy_j):
            return "unmeasured"
        return self._ending or "exhausted"

    def _add_epoch(self, reports: list[_EpochReport]) -> None:
        time_s = reports[0].time_s
        energy_j = sum_distinct(report.energies_j for report in reports) if self.plan.has_gpu else time_s
        metric = next((report.metric for report in reports if report.metric is not None), None)
        self._epochs += 1
        self._time_s += time_s
        self._energy_j += energy_j
        self._next_epoch_cost_j = self._predict_epoch_j(self.plan.preference.cost_j(energy_j, time_s))
        if metric is not None:
            self._metric = metric
        elif self._metric is None and not self._warned:
            self._warned = True
            logger.warning("no metric was reported for epoch %d: call run.report(metric)", self._epochs - 1)
        self._decide(metric)

    def _predict_epoch_j(self, last_epoch_j: float) -> float:
        """Return the expected cost of the next epoch: that of the last, or less if that measured limits."""
        if not (self._swept_in_epoch and self._sweep.done and self._points):
            return last_epoch_j
        best = cheapest_point(self._points, self.plan.preference)
        step_j = self.plan.preference.cost_rate_w(best.average_power_w) / best.rate_per_s
        return min(last_epoch_j, self._steps * step_j)

    def _decide(self, metric: float | None) -> None:
        if metric is not None and self._meets(metric):
            self._ending = "reached"
        elif self._epochs >= self.plan.max_epochs:
            self._ending = "exhausted"
        elif self.cost_j + self._next_epoch_cost_j > self.plan.cap_j:
            self._ending = "capped"

    def _meets(self, metric: float) -> bool:
        return metric >= self.plan.target if self.plan.higher_is_better else metric <= self.plan.target

    def _add_measurement(self, measurement: Measurement) -> None:
        self._points.append(measurement.point)
        if self._on_measured is not None:
            self._on_measured(measurement)

    def _choose_limit(self) -> None:
        """Train on at the best power limit; at the original one if they could not all be measured."""
        if self._sweep.failed:
            logger.warning("the power limits could not be measured; training goes on at the original one")
            self._gpus.restore()
        elif self._points:
            chosen_w = cheapest_point(self._points, self.plan.preference).limit_w
            if self._gpus.set_limit_w(chosen_w):
                self._power_limit_w = chosen_w
