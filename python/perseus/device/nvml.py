"""GPUs through NVML (the package ``nvidia-ml-py``, whose module is ``pynvml``)."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from typing import Any

from perseus.device.errors import EnergyIntegratedWarning, NotSupportedError, PowerLimitError, nvml_error
from perseus.device.integrated import IntegratedEnergy
from perseus.device.protocol import EventReason
from perseus.device.visible import GpuIdentity

# What is open belongs to one process: after a fork, NVML's handles are void.
_open_pid: int | None = None
_open_lock = threading.Lock()
_FIELD_POWER_INSTANT = 186


def _pynvml() -> Any:
    """Return the module ``pynvml``, initialised in this process."""
    global _open_pid
    import pynvml  # type: ignore[import-untyped,unused-ignore]

    if _open_pid != os.getpid():
        with _open_lock:
            if _open_pid != os.getpid():
                try:
                    pynvml.nvmlInit()
                except pynvml.NVMLError as error:
                    raise nvml_error(error.value, "initialise NVML") from error
                _open_pid = os.getpid()
    return pynvml


def _renew_lock() -> None:
    global _open_lock
    _open_lock = threading.Lock()  # another thread may have held it when the process forked


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _call(doing: str, function: str, *arguments: object) -> Any:
    """Call a function of ``pynvml``; its failure becomes a typed error that says what was being done."""
    pynvml = _pynvml()
    try:
        return getattr(pynvml, function)(*arguments)
    except pynvml.NVMLError as error:
        raise nvml_error(error.value, doing) from error


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


class NvmlGpu:
    """A GPU through NVML. See `perseus.device.Gpu` for what the methods do.

    Parameters
    ----------
    uuid:
        The GPU's UUID as NVML gives it.
    """

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._handle: Any = None
        self._handle_pid: int | None = None
        self._integrated: IntegratedEnergy | None = None
        self._counter: bool | None = None
        self._instant_power: bool | None = None
        self._last_mj = 0
        self._lost_mj = 0
        self._resets = 0
        self._counter_lock = threading.Lock()
        self._index = int(_call(f"find GPU {uuid}", "nvmlDeviceGetIndex", self._device()))
        self._name = _text(_call(f"find GPU {uuid}", "nvmlDeviceGetName", self._device()))

    def __reduce__(self) -> tuple[type[NvmlGpu], tuple[str]]:
        return type(self), (self._uuid,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._uuid!r})"

    @property
    def uuid(self) -> str:
        """See `perseus.device.Gpu`."""
        return self._uuid

    @property
    def index(self) -> int:
        """See `perseus.device.Gpu`."""
        return self._index

    @property
    def name(self) -> str:
        """See `perseus.device.Gpu`."""
        return self._name

    @property
    def has_energy_counter(self) -> bool:
        """See `perseus.device.Gpu`."""
        if self._counter is None:
            try:
                self._read("read the energy counter of", "nvmlDeviceGetTotalEnergyConsumption")
            except NotSupportedError:
                self._counter = False
            else:
                self._counter = True
        return self._counter

    @property
    def counter_resets(self) -> int:
        """See `perseus.device.Gpu`."""
        return self._resets

    def energy_j(self) -> float:
        """See `perseus.device.Gpu`."""
        if not self.has_energy_counter:
            return self._integrated_energy_j()
        with self._counter_lock:
            now_mj = int(self._read("read the energy counter of", "nvmlDeviceGetTotalEnergyConsumption"))
            if now_mj < self._last_mj:  # the driver was loaded anew
                self._resets += 1
                self._lost_mj += self._last_mj
            self._last_mj = now_mj
            return (self._lost_mj + now_mj) / 1000.0

    def power_w(self) -> float:
        """See `perseus.device.Gpu`."""
        if self._instant_power is not False:
            field = self._read("read the power of", "nvmlDeviceGetFieldValues", [_FIELD_POWER_INSTANT])[0]
            self._instant_power = field.nvmlReturn == 0
            if self._instant_power:
                return int(field.value.uiVal) / 1000.0
        return int(self._read("read the power of", "nvmlDeviceGetPowerUsage")) / 1000.0

    def supported_clocks_mhz(self) -> tuple[int, ...]:
        """See `perseus.device.Gpu`."""
        doing = "list the supported clocks of"
        memory_mhz = max(self._read(doing, "nvmlDeviceGetSupportedMemoryClocks"))
        clocks = self._read(doing, "nvmlDeviceGetSupportedGraphicsClocks", memory_mhz)
        return tuple(sorted((int(clock) for clock in clocks), reverse=True))

    def lock_clocks_mhz(self, min_mhz: int, max_mhz: int) -> None:
        """See `perseus.device.Gpu`."""
        self._read(f"lock to {min_mhz}-{max_mhz} MHz the clocks of", "nvmlDeviceSetGpuLockedClocks", min_mhz, max_mhz)

    def reset_clocks(self) -> None:
        """See `perseus.device.Gpu`."""
        self._read("reset the clocks of", "nvmlDeviceResetGpuLockedClocks")

    def achieved_clock_mhz(self) -> int:
        """See `perseus.device.Gpu`."""
        sm_clock = 1
        return int(self._read("read the clock of", "nvmlDeviceGetClockInfo", sm_clock))

    def event_reasons(self) -> EventReason:
        """See `perseus.device.Gpu`."""
        known = sum(EventReason)
        return EventReason(self._read("read the event reasons of", "nvmlDeviceGetCurrentClocksEventReasons") & known)

    def power_limit_w(self) -> float:
        """See `perseus.device.Gpu`."""
        return int(self._read("read the power limit of", "nvmlDeviceGetPowerManagementLimit")) / 1000.0

    def default_power_limit_w(self) -> float:
        """See `perseus.device.Gpu`."""
        return int(self._read("read the default power limit of", "nvmlDeviceGetPowerManagementDefaultLimit")) / 1000.0

    def power_limit_range_w(self) -> tuple[float, float]:
        """See `perseus.device.Gpu`."""
        low, high = self._read("read the power limit's range of", "nvmlDeviceGetPowerManagementLimitConstraints")
        return low / 1000.0, high / 1000.0

    def set_power_limit_w(self, limit_w: float) -> None:
        """See `perseus.device.Gpu`."""
        check_power_limit(self, limit_w)
        self._read(
            f"set to {limit_w:g} W the power limit of", "nvmlDeviceSetPowerManagementLimit", round(limit_w * 1e3)
        )

    def _device(self) -> Any:
        """Return NVML's handle in this process. Never None: NVML would crash the interpreter."""
        if self._handle_pid != os.getpid():
            self._handle = _call(f"find GPU {self._uuid}", "nvmlDeviceGetHandleByUUID", self._uuid)
            self._handle_pid = os.getpid()
        return self._handle

    def _read(self, doing: str, function: str, *arguments: object) -> Any:
        return _call(f"{doing} GPU {self._uuid}", function, self._device(), *arguments)

    def _integrated_energy_j(self) -> float:
        if self._integrated is None or not self._integrated.of_this_process:
            if self._integrated is None:
                warn_integrated(self)
            itself = weakref.proxy(self)  # the polling thread ends when this object does
            self._integrated = IntegratedEnergy(lambda: float(itself.power_w()))
        return self._integrated.energy_j()


_warned_uuids: set[str] = set()


def warn_integrated(gpu: NvmlGpu) -> None:
    """Say once for each GPU that its energy is integrated from power readings."""
    if gpu.uuid in _warned_uuids:
        return
    _warned_uuids.add(gpu.uuid)
    warnings.warn(
        f"GPU {gpu.uuid} ({gpu.name}) has no energy counter; its energy is integrated from power readings every 50 ms, "
        "which is less exact for operations shorter than a second",
        EnergyIntegratedWarning,
        stacklevel=4,
    )


def check_power_limit(gpu: Any, limit_w: float) -> None:
    """Raise `PowerLimitError` for a limit outside of the GPU's range."""
    low_w, high_w = gpu.power_limit_range_w()
    if not low_w <= limit_w <= high_w:
        raise PowerLimitError(
            f"a power limit of {limit_w:g} W was asked for; GPU {gpu.uuid} takes {low_w:g} to {high_w:g} W; "
            "choose a limit within that range"
        )


def list_identities() -> list[GpuIdentity]:
    """Return all GPUs of this machine in NVML's order."""
    count = int(_call("count the GPUs", "nvmlDeviceGetCount"))
    return [_identity(index) for index in range(count)]


def _identity(index: int) -> GpuIdentity:
    doing = f"identify GPU {index}"
    handle = _call(doing, "nvmlDeviceGetHandleByIndex", index)
    uuid = _text(_call(doing, "nvmlDeviceGetUUID", handle))
    return GpuIdentity(index=index, uuid=uuid, name=_text(_call(doing, "nvmlDeviceGetName", handle)))


def pci_address(gpu: Any) -> str:
    """Return a GPU's PCI address as ``lspci -D`` prints it, such as ``0000:3b:00.0``."""
    doing = f"read the PCI address of GPU {gpu.uuid}"
    info = _call(doing, "nvmlDeviceGetPciInfo", _call(doing, "nvmlDeviceGetHandleByUUID", gpu.uuid))
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def driver_version() -> str:
    """Return the driver's version."""
    return _text(_call("read the driver's version", "nvmlSystemGetDriverVersion"))


def persistence_mode(gpu: Any) -> bool:
    """Whether settings stay when the GPU's last client ends."""
    doing = f"read the persistence mode of GPU {gpu.uuid}"
    return bool(_call(doing, "nvmlDeviceGetPersistenceMode", _call(doing, "nvmlDeviceGetHandleByUUID", gpu.uuid)))
