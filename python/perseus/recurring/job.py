"""A job that recurs, and looks for its best batch size and power limit while it does."""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from perseus.recurring.cost import Preference
from perseus.recurring.errors import JobError
from perseus.recurring.gpus import GpuGroup, PowerGpu, limits_between_w, own_gpus
from perseus.recurring.policy import PolicySettings
from perseus.recurring.power_limits import Measurement, SweepTiming
from perseus.recurring.ranks import Ranks, current_ranks
from perseus.recurring.recorder import TrialRecorder
from perseus.recurring.run import Run, RunPlan, RunResult
from perseus.recurring.store import JobKey, JobSettings, TrialStore, default_path
from perseus.recurring.trial import Trial, TrialResult

logger = logging.getLogger("perseus.recurring")

_NO_GPU_POWER_W = 1.0  # a run without GPU costs its time: one joule a second


class Job:
    """A training job that runs again and again.

    Every run is a trial of one batch size, at the power limit that costs least for it.  What the runs
    cost is kept in the trial log, from which the next batch size follows.

    Parameters
    ----------
    name:
        Names the job in the trial log.
    batch_sizes, default:
        The candidates, and the one among them that is known to work.
    target, better:
        The validation metric that a run must reach, and which direction is better.
    max_epochs:
        A run that has not reached the target by then has failed.
    eta:
        Weight of energy against time, 0 to 1.
    beta:
        A run is stopped before the epoch that would make it cost more than this many times the least
        known cost; infinity never stops one.
    window:
        How many trials count, the last ones; 0 counts all.  10 follows a job that drifts.
    seed:
        Seed of the job's random stream; follows from the name if not given.
    store:
        File of the trial log; by default ``$PERSEUS_RECURRING_STORE`` or one in the user's state
        directory.
    gpus:
        The GPUs of this process; by default those that it trains on.
    power_limits_w:
        The power limits to try; by default the highest and every multiple of 25 W that the GPUs can be
        set to.  An empty sequence leaves the power limit alone.
    lease_s:
        A run that has died counts as running for this long.
    timing:
        How long to measure power limits.

    Raises
    ------
    JobError
        If a setting breaks a rule.  This is the only error that using a job can raise besides `RunError`:
        whatever happens to the log or to a GPU is written to the log ``perseus.recurring`` and training
        goes on.
    """

    def __init__(
        self,
        name: str,
        *,
        batch_sizes: Sequence[int],
        default: int,
        target: float,
        better: Literal["higher", "lower"] = "higher",
        max_epochs: int = 100,
        eta: float = 0.5,
        beta: float = 2.0,
        window: int = 0,
        seed: int | None = None,
        store: str | os.PathLike[str] | None = None,
        gpus: Sequence[PowerGpu] | None = None,
        power_limits_w: Sequence[float] | None = None,
        lease_s: float = 120.0,
        timing: SweepTiming | None = None,
    ) -> None:
        if not name:
            raise JobError("the job has no name; its trials are kept under its name")
        if better not in ("higher", "lower"):
            raise JobError(f"better is {better!r}; say 'higher' or 'lower'")
        if max_epochs < 1:
            raise JobError(f"max_epochs is {max_epochs}; give at least 1")
        if not lease_s > 0.0:
            raise JobError(f"lease_s is {lease_s}; give the seconds after which a silent run counts as dead")
        if not math.isfinite(target):
            raise JobError(f"target is {target}; give the metric to reach")
        Preference(eta=eta, max_power_w=1.0)  # checks eta
        self.name = name
        self.settings = JobSettings(
            policy=PolicySettings(
                batch_sizes=tuple(batch_sizes),
                default=default,
                beta=beta,
                window=window,
                seed=zlib.crc32(name.encode()) if seed is None else seed,
            ),
            eta=eta,
            target=float(target),
            better=better,
            max_epochs=max_epochs,
        )
        self.store = TrialStore(default_path() if store is None else store)
        self._gpus = gpus
        self._power_limits_w = None if power_limits_w is None else tuple(power_limits_w)
        self._lease_s = lease_s
        self._timing = timing

    @contextlib.contextmanager
    def run(self) -> Iterator[Run]:
        """Lease a trial and yield its run; whatever happens, restore the power limit and enter the result.

        A run that leaves the block by an exception is abandoned: it teaches nothing, and its trial is
        given out again.  One that leaves it without having reached the target has failed.
        """
        ranks = current_ranks()
        gpus = self._gpu_group(ranks)
        hardware = _Hardware.of(gpus, ranks)
        lease = ranks.from_first(lambda: self._lease(hardware))
        recorder = None
        if ranks.rank == 0 and lease.trial is not None:
            recorder = TrialRecorder(self.store, hardware.key(self.name), lease.trial, self._lease_s)
        run = Run(
            self._plan(lease, hardware),
            gpus,
            ranks,
            timing=self._timing,
            on_measured=recorder.add_measurement if recorder else None,
        )
        atexit.register(gpus.close)
        try:
            yield run
            run.close()
        except BaseException:
            run.close(abandoned=True)
            raise
        finally:
            self._end(gpus, recorder, run.result)

    def _gpu_group(self, ranks: Ranks) -> GpuGroup:
        gpus = GpuGroup(own_gpus() if self._gpus is None else self._gpus, guard=self._power_limits_w != ())
        uuids = [uuid for part in ranks.gather(tuple(gpus.ranges_w)) for uuid in part]
        gpus.correct_originals_w(ranks.from_first(lambda: self._unrestored_limits_w(uuids)))
        return gpus

    def _unrestored_limits_w(self, uuids: list[str]) -> dict[str, float]:
        if not uuids or not self.store.path.exists():
            return {}
        try:
            return self.store.take_unrestored_limits_w(uuids)
        except Exception:  # other ranks wait for an answer
            return {}  # the lease will say what is wrong with the log

    def _lease(self, hardware: _Hardware) -> _Lease:
        """Lease a trial; if the log fails, say so and let the default batch size run outside it."""
        key = hardware.key(self.name)
        try:
            trial = self.store.lease(
                key,
                self.settings,
                max_power_w=hardware.max_power_w,
                lease_s=self._lease_s,
                original_limits_w=hardware.originals_w,
            )
            past = self.store.trials(key)
            measurements = self.store.measurements(key, trial.batch_size)
        except Exception as error:  # other ranks wait for an answer
            logger.warning("%s; this run trains with the default batch size and is not recorded", error)
            return _Lease(None, math.nan, ())
        return _Lease(trial, _epoch_cost_j(past, trial.batch_size, self.settings.eta), tuple(measurements))

    def _plan(self, lease: _Lease, hardware: _Hardware) -> RunPlan:
        trial = lease.trial
        limits_w = self._limits_w(hardware)
        measured = {m.point.limit_w: m.point for m in lease.measurements if m.point.limit_w in limits_w}
        return RunPlan(
            trial_number=trial.number if trial else None,
            batch_size=trial.batch_size if trial else self.settings.policy.default,
            target=self.settings.target,
            higher_is_better=self.settings.better == "higher",
            max_epochs=self.settings.max_epochs,
            cap_j=trial.cap_j if trial else math.inf,
            preference=Preference(eta=self.settings.eta, max_power_w=hardware.max_power_w),
            epoch_cost_j=lease.epoch_cost_j,
            measured=tuple(measured.values()),
            to_measure_w=tuple(limit for limit in limits_w if limit not in measured),
            has_gpu=bool(hardware.ranges_w),
        )

    def _limits_w(self, hardware: _Hardware) -> tuple[float, ...]:
        if self._power_limits_w is None:
            return limits_between_w(hardware.ranges_w)
        lowest = max((low for low, _ in hardware.ranges_w), default=math.inf)
        highest = min((high for _, high in hardware.ranges_w), default=-math.inf)
        return tuple(sorted({w for w in self._power_limits_w if lowest <= w <= highest}, reverse=True))

    def _end(self, gpus: GpuGroup, recorder: TrialRecorder | None, result: RunResult | None) -> None:
        restored = gpus.close()
        atexit.unregister(gpus.close)
        if recorder is None or result is None:
            return
        recorder.finish(
            TrialResult(
                ending=result.ending,
                epochs=result.epochs,
                energy_j=result.energy_j,
                time_s=result.time_s,
                metric=result.metric,
                power_limit_w=result.power_limit_w,
            ),
            restored=restored,
        )


@dataclass(frozen=True, kw_only=True)
class _Hardware:
    """The GPUs of all ranks together."""

    ranges_w: tuple[tuple[float, float], ...]
    originals_w: dict[str, float]

    @classmethod
    def of(cls, gpus: GpuGroup, ranks: Ranks) -> _Hardware:
        ranges_w: dict[str, tuple[float, float]] = {}
        originals_w: dict[str, float] = {}
        for part_ranges, part_originals in ranks.gather((gpus.ranges_w, gpus.originals_w)):
            ranges_w.update(part_ranges)
            originals_w.update(part_originals)
        return cls(ranges_w=tuple(ranges_w.values()), originals_w=originals_w)

    @property
    def max_power_w(self) -> float:
        return sum(highest for _, highest in self.ranges_w) or _NO_GPU_POWER_W

    def key(self, job: str) -> JobKey:
        """Return the key of a job; what was learned on other GPUs does not hold on these."""
        if not self.ranges_w:
            return JobKey(job=job, hardware="no GPU")
        return JobKey(job=job, hardware=f"{len(self.ranges_w)} GPU, {self.max_power_w:g} W")


@dataclass(frozen=True)
class _Lease:
    """What rank 0 got from the log."""

    trial: Trial | None
    epoch_cost_j: float
    measurements: tuple[Measurement, ...]


def _epoch_cost_j(trials: list[Trial], batch_size: int, eta: float) -> float:
    """Return the least cost per epoch of past trials of a batch size, in joules; NaN if there is none."""
    costs = [
        trial.cost_j(eta) / trial.result.epochs
        for trial in trials
        if trial.batch_size == batch_size
        and trial.result is not None
        and trial.result.epochs
        and trial.result.ending not in ("abandoned", "unmeasured")
    ]
    return min(costs, default=math.nan)
