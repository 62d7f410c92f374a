"""Measuring in the simulated machine's own time, where nothing has to wait.

In virtual time no thread can poll, because time stands still between calls. So waiting is cut into slices, and at each
slice those who would poll are called, which sees exactly what a poller sees in real time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseus.device.counter import CounterChange, CounterPoller
from perseus.device.simulated.kernel import Kernel

if TYPE_CHECKING:
    from perseus.device.protocol import Gpu
    from perseus.device.simulated.machine import SimulatedMachine

SLICE_S = 0.001


class SimulatedWatch:
    """A watch of the energy counter that is polled by `SimulatedClock`."""

    def __init__(self, gpu: Gpu, clock: SimulatedClock) -> None:
        self._poller = CounterPoller(gpu)
        self._clock = clock
        clock.watches.append(self)

    def poll(self) -> None:
        """Look at the counter now."""
        self._poller.poll(self._clock.now_s())

    def take_changes(self) -> list[CounterChange]:
        """Return the changes since the last call, oldest first."""
        return self._poller.take()

    def close(self) -> None:
        """End the watch."""
        self._clock.watches.remove(self)


class SimulatedClock:
    """The clock of a machine in virtual time. Runs kernels, so that watches see time pass.

    Parameters
    ----------
    machine:
        A machine made with ``time_scale=0``.
    """

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine
        self.watches: list[SimulatedWatch] = []

    def now_s(self) -> float:
        """Return the present time in s."""
        return self._machine.now_s()

    def sleep_s(self, duration_s: float) -> None:
        """Let time pass."""
        until_s = self.now_s() + duration_s
        while (left_s := until_s - self.now_s()) > 0:
            self._step(left_s)

    def watch(self, gpu: Gpu) -> SimulatedWatch:
        """Watch a GPU's energy counter."""
        return SimulatedWatch(gpu, self)

    def run(self, gpu_index: int, kernel: Kernel) -> tuple[float, float]:
        """Run a kernel to its end; return its start and end on the GPU."""
        gpu = self._machine.gpu(gpu_index)
        ticket = gpu.launch(kernel)
        while (left_s := gpu.time_left_s(ticket)) > 0:
            self._step(left_s)
        return gpu.wait(ticket)

    def _step(self, left_s: float) -> None:
        slice_s = min(left_s, SLICE_S) if self.watches else left_s
        self._machine.sleep_s(max(slice_s, 1e-9))
        for watch in self.watches:
            watch.poll()
