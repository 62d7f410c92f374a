"""Measuring in the simulated machine's own time, where nothing has to wait.

In virtual time no thread can poll, because time stands still between calls. So waiting is cut into slices, and at each
slice those who would poll are called, which sees exactly what a poller sees in real time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from perseus.device.counter import CounterChange, CounterPoller
from perseus.device.simulated.kernel import Kernel

if TYPE_CHECKING:
    from perseus.device.protocol import Gpu
    from perseus.device.simulated.machine import SimulatedMachine

SLICE_S = 0.001


class SimulatedRepeater:
    """Calls a function each time that a period of virtual time is over."""

    def __init__(self, function: Callable[[], None], period_s: float, owner: SimulatedInstruments) -> None:
        self._function = function
        self._period_s = period_s
        self._owner = owner
        self._next_s = owner.now_s()
        owner.repeaters.append(self)

    def turn(self, now_s: float) -> None:
        """Call the function if it is time."""
        if now_s >= self._next_s:
            self._next_s = now_s + self._period_s
            self._function()

    def close(self) -> None:
        """End the calls."""
        self._owner.repeaters.remove(self)


class SimulatedWatch:
    """A watch of the energy counter in virtual time."""

    def __init__(self, gpu: Gpu, owner: SimulatedInstruments) -> None:
        self._poller = CounterPoller(gpu)
        self._repeater = SimulatedRepeater(lambda: self._poller.poll(owner.now_s()), 0.0, owner)

    def take_changes(self) -> list[CounterChange]:
        """Return the changes since the last call, oldest first."""
        return self._poller.take()

    def close(self) -> None:
        """End the watch."""
        self._repeater.close()


class SimulatedInstruments:
    """Instruments in the time of a machine made with ``time_scale=0``. Its kernels are run with `run`.

    Parameters
    ----------
    machine:
        The machine.
    """

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine
        self.repeaters: list[SimulatedRepeater] = []

    def now_s(self) -> float:
        """Return the present time in s."""
        return self._machine.now_s()

    def sleep_s(self, duration_s: float) -> None:
        """Let time pass."""
        until_s = self.now_s() + duration_s
        while (left_s := until_s - self.now_s()) > 0:
            self._step(left_s)

    def watch_counter(self, gpu: Gpu) -> SimulatedWatch:
        """Watch a GPU's energy counter."""
        return SimulatedWatch(gpu, self)

    def repeat(self, function: Callable[[], None], period_s: float) -> SimulatedRepeater:
        """Call a function again and again."""
        return SimulatedRepeater(function, period_s, self)

    def run(self, gpu_index: int, kernel: Kernel) -> float:
        """Run a kernel to its end; return its time on the GPU in s."""
        gpu = self._machine.gpu(gpu_index)
        ticket = gpu.launch(kernel)
        while (left_s := gpu.time_left_s(ticket)) > 0:
            self._step(left_s)
        start_s, end_s = gpu.wait(ticket)
        return end_s - start_s

    def _step(self, left_s: float) -> None:
        slice_s = min(left_s, SLICE_S) if self.repeaters else left_s
        self._machine.sleep_s(max(slice_s, 1e-9))
        now_s = self.now_s()
        for repeater in list(self.repeaters):
            repeater.turn(now_s)
