"""What a sweep turns: the core clock, or the power limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from perseus.device.errors import MeasurementError

if TYPE_CHECKING:
    from perseus.device.counter import Instruments
    from perseus.device.protocol import Gpu

_SETTLE_S = 1.0
_SETTLE_POLL_S = 0.002


class Knob(Protocol):
    """A setting and its values, from the fastest to the slowest."""

    name: str
    """Column of the profile."""
    stops_early: bool
    """Whether energy has one minimum over the values, so that a sweep may end after rises in a row."""

    def values(self, gpu: Gpu) -> list[float]:
        """Return the values to measure at, fastest first."""

    def apply(self, gpu: Gpu, value: float, instruments: Instruments) -> None:
        """Set the value and wait until it is in effect."""

    def tolerates(self, value: float, achieved_mhz: int) -> bool:
        """Whether a clock seen while the GPU works agrees with the value."""


class ClockKnob:
    """The core clock.

    Parameters
    ----------
    clocks_mhz:
        The clocks to measure at; None: all supported ones.
    every:
        Of those, take each `every`-th, from the highest on.
    """

    name = "frequency"
    stops_early = True

    def __init__(self, clocks_mhz: Sequence[int] | None = None, *, every: int = 1) -> None:
        self._clocks_mhz = clocks_mhz
        self._every = every
        self._step_mhz = 15

    def values(self, gpu: Gpu) -> list[float]:
        """Return the clocks, highest first."""
        supported = gpu.supported_clocks_mhz()
        self._step_mhz = max((a - b for a, b in pairwise(supported)), default=15)
        chosen = supported if self._clocks_mhz is None else sorted(self._clocks_mhz, reverse=True)
        unknown = sorted(set(chosen) - set(supported))
        if unknown:
            raise MeasurementError(
                f"GPU {gpu.uuid} doesn't support {unknown} MHz; choose from its clocks between {supported[-1]} and "
                f"{supported[0]} MHz (perseus clocks show)"
            )
        return [float(mhz) for mhz in chosen[:: self._every]]

    def apply(self, gpu: Gpu, value: float, instruments: Instruments) -> None:
        """Lock the clock and wait until it reads back, or a second has passed: the sweep then sees it isn't held."""
        gpu.lock_clocks_mhz(int(value), int(value))
        until_s = instruments.now_s() + _SETTLE_S
        while gpu.achieved_clock_mhz() != int(value) and instruments.now_s() < until_s:
            instruments.sleep_s(_SETTLE_POLL_S)

    def tolerates(self, value: float, achieved_mhz: int) -> bool:
        """Whether the clock is less than a step below the one asked for."""
        return achieved_mhz > value - self._step_mhz


class PowerLimitKnob:
    """The power limit. Real cost curves over it have several minima half of the time, so a sweep doesn't stop early.

    Parameters
    ----------
    step_w:
        Distance of two limits in W. The lowest and the highest that the GPU takes are always among them.
    """

    name = "power_limit"
    stops_early = False

    def __init__(self, step_w: float = 25.0) -> None:
        if not step_w > 0:
            raise MeasurementError(f"step_w is {step_w}; the distance of two power limits is above 0 W")
        self._step_w = step_w

    def values(self, gpu: Gpu) -> list[float]:
        """Return the limits, highest first, all within the GPU's range."""
        low_w, high_w = gpu.power_limit_range_w()
        count = math.floor((high_w - low_w) / self._step_w)
        limits_w = [high_w - i * self._step_w for i in range(count + 1)]
        return limits_w if limits_w[-1] == low_w else [*limits_w, low_w]

    def apply(self, gpu: Gpu, value: float, instruments: Instruments) -> None:
        """Set the limit and give the power controller a moment."""
        gpu.set_power_limit_w(value)
        instruments.sleep_s(0.05)

    def tolerates(self, value: float, achieved_mhz: int) -> bool:
        """Any clock: throttling is what a power limit is for."""
        return True
