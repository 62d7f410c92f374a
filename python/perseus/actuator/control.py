"""The actuator: a native thread that sets a GPU's clock, and a guardian that restores it."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from perseus.actuator.guardian import Guardian
from perseus.actuator.records import reset_stale_locks, restore
from perseus.device.errors import DeviceError, GuardianError, NotSupportedError, PowerLimitError, nvml_error
from perseus.device.native import native_address
from perseus.device.protocol import EventReason

if TYPE_CHECKING:
    from perseus import _runtime
    from perseus.device.protocol import Gpu


class ClockRecord(NamedTuple):
    """A clock that the driver was asked for."""

    requested_s: float
    """When it was requested, on the monotonic clock."""
    applied_s: float
    """When the driver's call returned."""
    requested_mhz: int
    achieved_mhz: int
    """As read back; 0 when it couldn't be."""
    reasons: EventReason
    """Why the clock was what it was."""
    code: int
    """NVML's return code; 0 is success."""

    @property
    def held(self) -> bool:
        """Whether the GPU ran at the requested clock."""
        return self.achieved_mhz == self.requested_mhz


@dataclass(frozen=True, kw_only=True)
class ActuatorStatistics:
    """Counts since the start.

    Attributes
    ----------
    requests:
        Calls of ``request``.
    applied:
        Clocks that the driver set.
    coalesced:
        Requests that a newer one replaced, or that named the clock already set.
    skipped:
        Requests whose time to hold was shorter than the driver's latency.
    failed:
        Calls that the driver refused.
    missed_deadlines:
        Clocks that came after the time to hold was over.
    latency_s:
        The driver's latency, averaged; 0 before the first call.
    requested_mhz, achieved_mhz:
        The latest request and reading; 0: none yet.
    last_code:
        NVML's code of the latest refusal; 0: none.
    gave_up:
        Whether the driver refused so often that the clocks were unlocked for good.
    """

    requests: int
    applied: int
    coalesced: int
    skipped: int
    failed: int
    missed_deadlines: int
    latency_s: float
    requested_mhz: int
    achieved_mhz: int
    last_code: int
    gave_up: bool


class Actuator:
    """Controls the clock of one GPU until closed; then everything is as it was.

    Parameters
    ----------
    gpu:
        The GPU. One process at a time may control it.
    original_clocks_mhz:
        A lock (lowest and highest clock) to put back at the end, for machines whose administrator locks clocks: NVML
        can't tell a lock. None: the clocks are unlocked at the end. The power limit is put back as found.

    Raises
    ------
    NoPermissionError
        If this process may not set the GPU. Nothing was changed.
    GpuBusyError
        If another live process controls it.
    DeviceError
        If the GPU or the guardian fails.
    """

    request: Callable[..., None]
    """``request(mhz, hold_s=0.0)``: ask for a clock and return at once; the latest request wins.

    ``mhz`` is a supported clock. ``hold_s`` is how long it will be wanted, in s: a request that the driver couldn't
    fulfil in that time is dropped; 0: until the next request. After the end, and in a forked child, it does nothing. It
    is a native function, so that a call costs less than a microsecond.
    """

    def __init__(self, gpu: Gpu, *, original_clocks_mhz: tuple[int, int] | None = None) -> None:
        self._gpu = gpu
        self._original_clocks_mhz = original_clocks_mhz
        self._closed = False
        self._close_lock = threading.Lock()
        _probe_permission(gpu)
        _reset_other_stale_locks()
        self._original_limit_w = _power_limit_or_none(gpu)
        self._guardian = Guardian(gpu, original_clocks_mhz)
        try:
            self._worker = _start_worker(gpu)
        except BaseException:
            self._guardian.release()
            raise
        self.request = self._worker.requester()
        _live.add(self)

    @property
    def gpu(self) -> Gpu:
        """The GPU that is controlled."""
        return self._gpu

    @property
    def recovered(self) -> bool:
        """Whether the GPU was first freed from what an earlier, dead process had left."""
        return self._guardian.recovered

    def set_power_limit_w(self, limit_w: float) -> None:
        """Set the power limit; the original one is put back at the end."""
        self._gpu.set_power_limit_w(limit_w)

    def drain(self, timeout_s: float = 10.0) -> bool:
        """Wait until the requests so far are dealt with; whether they are."""
        return self._worker.drain(timeout_s)

    def statistics(self) -> ActuatorStatistics:
        """Return the counts since the start."""
        return ActuatorStatistics(**self._worker.statistics())  # type: ignore[arg-type]

    def take_records(self) -> list[ClockRecord]:
        """Return the clocks asked of the driver since the last call, oldest first; at most 4096 are kept."""
        return [
            ClockRecord(asked_s, applied_s, mhz, achieved, EventReason(reasons & _KNOWN_REASONS), code)
            for asked_s, applied_s, mhz, achieved, reasons, code in self._worker.take_records()
        ]

    def close(self) -> None:
        """End the thread and restore the original clocks and power limit.

        Raises
        ------
        DeviceError
            If they can't be restored; the record stays, and ``perseus clocks reset`` tries again.
        """
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
        self._worker.stop()
        try:
            self._guardian.release()
        except GuardianError:  # somebody killed it: restore from here
            restore(self._gpu, self._original_clocks_mhz, self._original_limit_w)
            reset_stale_locks()

    def __enter__(self) -> Actuator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _abandon(self) -> None:
        """In a forked child: thread and guardian are the parent's; requests do nothing here."""
        self._closed = True
        self._worker.abandon()
        self._guardian.forget()


_KNOWN_REASONS = sum(EventReason)
_live: weakref.WeakSet[Actuator] = weakref.WeakSet()


def _abandon_all() -> None:
    for actuator in list(_live):
        actuator._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


def _start_worker(gpu: Gpu) -> _runtime.ClockWorker:
    from perseus import _runtime

    address = native_address(gpu)
    if address is None:
        raise DeviceError(f"{gpu!r} can't be controlled from native code; open it with perseus.device.open_gpus")
    try:
        return _runtime.ClockWorker(address)
    except _runtime.CodeError as error:
        raise nvml_error(*error.args) from error


def _power_limit_or_none(gpu: Gpu) -> float | None:
    try:
        return gpu.power_limit_w()
    except NotSupportedError:
        return None


def _probe_permission(gpu: Gpu) -> None:
    """Find out whether this process may set the GPU, by setting the power limit to what it is."""
    limit_w = _power_limit_or_none(gpu)
    if limit_w is None:
        return
    try:
        gpu.set_power_limit_w(limit_w)
    except (NotSupportedError, PowerLimitError):
        return


def _reset_other_stale_locks() -> None:
    """Free GPUs that dead processes left changed. For the actuator's own GPU the guardian insists on it."""
    try:
        reset_stale_locks()
    except DeviceError:
        return
