"""The clock of measurements: real, or that of a simulation in virtual time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells and passes time."""

    def now_s(self) -> float:
        """Return the present time, from any start, in s."""

    def sleep_s(self, duration_s: float) -> None:
        """Let time pass."""


class MonotonicClock:
    """The machine's monotonic clock, which the native parts use, too."""

    def now_s(self) -> float:
        """Return the present time in s."""
        return time.monotonic()

    def sleep_s(self, duration_s: float) -> None:
        """Let time pass."""
        time.sleep(duration_s)
