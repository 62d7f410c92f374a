"""When a GPU's energy counter changes.

A counter moves every 20 to 100 ms. The energy between two of its *changes* belongs to a known span of time; the
energy between two arbitrary readings doesn't. So measurements use changes only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from perseus.device.errors import nvml_error
from perseus.device.native import native_address
from perseus.device.timing import MonotonicClock, Repeater

if TYPE_CHECKING:
    from perseus.device.protocol import Gpu

POLL_S = 0.001


class CounterChange(NamedTuple):
    """A change of the counter, which happened between `after_s` and `by_s`."""

    after_s: float
    by_s: float
    energy_j: float

    @property
    def time_s(self) -> float:
        """The middle of the two times."""
        return 0.5 * (self.after_s + self.by_s)


class CounterWatch(Protocol):
    """A watch that runs until closed."""

    def take_changes(self) -> list[CounterChange]:
        """Return the changes since the last call, oldest first."""

    def close(self) -> None:
        """End the watch."""


class CounterPoller:
    """Recognises changes in readings; the part that all watches share."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._last_j: float | None = None
        self._previous_s = 0.0
        self._changes: list[CounterChange] = []

    def poll(self, before_s: float) -> None:
        """Take a reading; `before_s` is the time just before this call."""
        energy_j = self._gpu.energy_j()
        if self._last_j is not None and energy_j != self._last_j:
            self._changes.append(CounterChange(self._previous_s, before_s, energy_j))
        self._last_j, self._previous_s = energy_j, before_s

    def take(self) -> list[CounterChange]:
        """Return and forget the changes so far."""
        taken, self._changes = self._changes, []
        return taken


class NativeWatch:
    """A watch by a native thread, undisturbed by Python's interpreter lock."""

    def __init__(self, gpu: Gpu, poll_s: float = POLL_S) -> None:
        from perseus import _runtime

        address = native_address(gpu)
        if address is None:
            raise TypeError(f"{gpu!r} isn't reached by native code")
        self._gpu = gpu
        try:
            self._watcher = _runtime.CounterWatcher(address, poll_s)
        except _runtime.CodeError as error:
            raise nvml_error(*error.args) from error

    def take_changes(self) -> list[CounterChange]:
        """Return the changes since the last call, oldest first."""
        if code := self._watcher.code():
            raise nvml_error(code, f"watch the energy counter of GPU {self._gpu.uuid}")
        changes = [(after_s, by_s, mj / 1000.0) for after_s, by_s, mj in self._watcher.take_changes()]
        # A fall is a driver reload: the change is kept, with a fall, and its reader voids the window.
        return [CounterChange(*change) for change in changes]

    def close(self) -> None:
        """End the watch."""
        self._watcher.stop()


class ThreadWatch:
    """A watch by a Python thread, for GPUs that native code can't read. Changes of integrated energy are its polls."""

    def __init__(self, gpu: Gpu, poll_s: float = 0.02) -> None:
        self._poller = CounterPoller(gpu)
        self._lock = threading.Lock()
        self._clock = MonotonicClock()
        self._repeater = Repeater(self._poll, poll_s)

    def take_changes(self) -> list[CounterChange]:
        """Return the changes since the last call, oldest first."""
        if self._repeater.failure is not None:
            raise self._repeater.failure
        with self._lock:
            return self._poller.take()

    def close(self) -> None:
        """End the watch."""
        self._repeater.close()

    def _poll(self) -> None:
        with self._lock:
            self._poller.poll(self._clock.now_s())


class Closable(Protocol):
    """Something that goes on until closed."""

    def close(self) -> None:
        """End it."""


class Instruments(Protocol):
    """What a measurement needs besides the GPU: time, and things that go on while an operation runs."""

    def now_s(self) -> float:
        """Return the present time in s."""

    def sleep_s(self, duration_s: float) -> None:
        """Let time pass."""

    def watch_counter(self, gpu: Gpu) -> CounterWatch:
        """Watch a GPU's energy counter."""

    def repeat(self, function: Callable[[], None], period_s: float) -> Closable:
        """Call a function again and again until closed."""


class RealInstruments(MonotonicClock):
    """Instruments in real time."""

    def watch_counter(self, gpu: Gpu) -> CounterWatch:
        """Start the best watch for a GPU."""
        if gpu.has_energy_counter and native_address(gpu) is not None:
            return NativeWatch(gpu)
        return ThreadWatch(gpu)

    def repeat(self, function: Callable[[], None], period_s: float) -> Closable:
        """Call a function from a thread."""
        return Repeater(function, period_s)
