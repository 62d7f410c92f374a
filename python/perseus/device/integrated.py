"""Energy from power readings, for GPUs without an energy counter.

A power sensor keeps its value until the next update, so the readings are integrated as what they are: each value
holds until the next reading ("hold last value"), and the first and last one extend to the edges of the window. The
trapezoid rule over de-duplicated readings, which looks more refined, reads 0 J for a constant 250 W.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

POLL_S = 0.05  # faster polling can make some drivers answer NotSupported or zero


class PowerIntegrator:
    """The integral of power readings.

    Parameters
    ----------
    time_s, power_w:
        The first reading; energy is counted from there.
    """

    def __init__(self, time_s: float, power_w: float) -> None:
        self._time_s = time_s
        self._power_w = power_w
        self._energy_j = 0.0

    def add(self, time_s: float, power_w: float) -> None:
        """Take in a reading. Readings that are not newer than the last one are ignored."""
        if time_s > self._time_s:
            self._energy_j += self._power_w * (time_s - self._time_s)
            self._time_s, self._power_w = time_s, power_w

    def energy_j(self, time_s: float) -> float:
        """Return the energy up to a time at or after the last reading, in J."""
        return self._energy_j + self._power_w * max(0.0, time_s - self._time_s)


class IntegratedEnergy:
    """An energy counter made of power readings, by a thread that polls them.

    Parameters
    ----------
    power_w:
        Returns the present power in W.
    poll_s:
        Time between two readings in s.
    """

    def __init__(self, power_w: Callable[[], float], poll_s: float = POLL_S) -> None:
        self._power_w = power_w
        self._poll_s = poll_s
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._integrator = PowerIntegrator(time.monotonic(), power_w())
        self._thread = threading.Thread(target=self._poll, name="perseus-power", daemon=True)
        self._thread.start()

    def energy_j(self) -> float:
        """Return the energy since this object was made, in J. Raises what a reading raised."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            return self._integrator.energy_j(time.monotonic())

    @property
    def of_this_process(self) -> bool:
        """Whether the polling thread is in this process (it isn't after a fork)."""
        return self._pid == os.getpid()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self.wait()

    def wait(self) -> None:
        """Wait until the thread has ended, by `close` or because a reading failed."""
        self._thread.join()

    def _poll(self) -> None:
        while not self._stop.wait(self._poll_s):
            try:
                power_w = self._power_w()
            except Exception as error:  # told to the reader of the energy: this thread has nobody to tell
                self._failure = error
                return
            with self._lock:
                self._integrator.add(time.monotonic(), power_w)
