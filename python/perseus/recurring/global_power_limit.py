"""One power limit for a training loop: the least energy with a bounded slowdown."""

from __future__ import annotations

import atexit
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TypeVar

from perseus.recurring.errors import JobError
from perseus.recurring.gpus import GpuGroup, PowerGpu, limits_between_w, own_gpus
from perseus.recurring.power_limits import Measurement, PowerLimitSweep, SweepTiming
from perseus.recurring.power_profile import PowerPoint, least_energy_point
from perseus.recurring.ranks import Ranks, current_ranks

logger = logging.getLogger("perseus.recurring")

Batch = TypeVar("Batch")


class GlobalPowerLimit:
    """Finds and sets the power limit of least energy that slows training by at most ``max_slowdown``.

    >>> for batch in GlobalPowerLimit(max_slowdown=0.05).steps(loader):  # doctest: +SKIP
    ...     train(batch)

    For several epochs make it once; the limit, once found, stays until the ``with`` block is left, `close`
    is called or the process ends, and is then set back to what it was:

    >>> with GlobalPowerLimit(max_slowdown=0.05) as limit:  # doctest: +SKIP
    ...     for epoch in range(10):
    ...         for batch in limit.steps(loader):
    ...             train(batch)

    Where the loop is another's, call `step` after every training step.

    Parameters
    ----------
    max_slowdown:
        Accepted loss of speed against the highest power limit: 0.05 accepts 5 % more time per step.
    gpus:
        The GPUs of this process; by default those that it trains on.
    timing:
        How long to measure.
    clock:
        Gives the time in seconds.

    Raises
    ------
    JobError
        If ``max_slowdown`` is negative.  Nothing else raises: a GPU that fails is logged and left alone.
    """

    def __init__(
        self,
        *,
        max_slowdown: float = 0.0,
        gpus: Sequence[PowerGpu] | None = None,
        timing: SweepTiming | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not max_slowdown >= 0.0:
            raise JobError(f"max_slowdown is {max_slowdown}; give a fraction, such as 0.05 for 5 %")
        self._max_slowdown = max_slowdown
        self._requested_gpus = gpus
        self._timing = timing
        self._clock = clock
        self._gpus: GpuGroup | None = None  # until the first step: the process group may come late
        self._sweep: PowerLimitSweep | None = None
        self._closed = False
        self._measurements: list[Measurement] = []
        self._chosen: PowerPoint | None = None

    @property
    def power_limit_w(self) -> float | None:
        """The power limit that was chosen, in watts; None while it is being measured."""
        return self._chosen.limit_w if self._chosen else None

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """What has been measured; the rate is in steps per second."""
        return tuple(self._measurements)

    def steps(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches of ``loader``, measuring meanwhile."""
        try:
            for batch in loader:
                yield batch
                self.step()
        finally:
            self.pause()

    def step(self) -> None:
        """Note that a training step has ended."""
        if self._closed or self._chosen is not None:
            return
        if self._sweep is None:
            self._sweep = self._begin(current_ranks())
        if self._sweep.done:
            return
        if self._sweep.step():
            self._choose(self._sweep)

    def pause(self) -> None:
        """Note that what follows, such as an evaluation, is no training step; the next step ends it."""
        if self._sweep is not None:
            self._sweep.pause()

    def close(self) -> None:
        """Set the power limit back to what it was; further steps change nothing."""
        self._closed = True
        if self._gpus is not None:
            self._gpus.close()
            atexit.unregister(self._gpus.close)

    def __enter__(self) -> GlobalPowerLimit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, ranks: Ranks) -> PowerLimitSweep:
        self._gpus = GpuGroup(own_gpus() if self._requested_gpus is None else self._requested_gpus, guard=True)
        atexit.register(self._gpus.close)
        ranges_w = {uuid: limits for part in ranks.gather(self._gpus.ranges_w) for uuid, limits in part.items()}
        return PowerLimitSweep(
            self._gpus,
            ranks,
            limits_between_w(ranges_w.values()),
            timing=self._timing,
            on_measured=self._measurements.append,
            stop_early=self._is_too_slow,
            clock=self._clock,
        )

    def _is_too_slow(self) -> bool:
        """Tell whether the last two limits are both beyond the bound; lower ones are slower still."""
        fastest_per_s = max(m.point.rate_per_s for m in self._measurements)
        margin = 1.0 + self._max_slowdown
        return len(self._measurements) > 2 and all(
            m.point.rate_per_s * margin * (1.0 + m.half_width) < fastest_per_s for m in self._measurements[-2:]
        )

    def _choose(self, sweep: PowerLimitSweep) -> None:
        assert self._gpus is not None
        if sweep.failed or not self._measurements:
            logger.warning("the power limits could not be measured; training goes on at the original one")
            self._gpus.restore()
            return
        chosen = least_energy_point((m.point for m in self._measurements), self._max_slowdown)
        if self._gpus.set_limit_w(chosen.limit_w):
            self._chosen = chosen
