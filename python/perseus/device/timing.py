"""The clock of measurements: real, or that of a simulation in virtual time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
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


class Repeater:
    """Calls a function again and again from a thread, until closed. What it raises ends the calls and is kept.

    Parameters
    ----------
    function:
        What to call.
    period_s:
        Pause between two calls in s.
    """

    def __init__(self, function: Callable[[], None], period_s: float) -> None:
        self._function = function
        self._period_s = period_s
        self._stop = threading.Event()
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="perseus-repeater", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the calls."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            try:
                self._function()
            except Exception as error:  # kept for whoever uses what the calls gather
                self.failure = error
                return
