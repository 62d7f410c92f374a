"""Every exception that has to do with a GPU, in one tree under `PerseusError`.

``DeviceError``
 ├── ``NvmlError``                one subclass for each NVML return code, each with its remedy
 ├── ``VisibleDevicesError``      CUDA_VISIBLE_DEVICES can't be resolved safely
 │    └── ``MigDeviceError``      it names a MIG instance, whose clocks can't be set on their own
 ├── ``PowerLimitError``          a power limit outside of what the GPU takes
 ├── ``ZeusdError``               the daemon can't be reached, or doesn't know the GPU
 ├── ``GpuBusyError``             another process controls the GPU's clocks
 ├── ``GuardianError``            the process that restores the clocks can't be started, or failed
 ├── ``MeasurementError``         a profile can't be measured
 └── ``SimulationError``          the simulated driver refused a request
"""

from __future__ import annotations

import os
from pathlib import Path

from perseus.errors import PerseusError


class DeviceError(PerseusError, RuntimeError):
    """Something about a GPU, its driver or its settings failed."""


class VisibleDevicesError(DeviceError):
    """``CUDA_VISIBLE_DEVICES`` names GPUs in a way that can't be resolved without guessing."""


class MigDeviceError(VisibleDevicesError):
    """A MIG instance is visible. Clocks belong to the whole GPU, which others may be using."""


class PowerLimitError(DeviceError, ValueError):
    """A power limit outside of the range that the GPU takes; the driver was not asked."""


class ZeusdError(DeviceError):
    """The zeusd daemon can't be reached, refused a request, or doesn't know the GPU."""


class GpuBusyError(DeviceError):
    """Another live process controls this GPU's clocks."""


class GuardianError(DeviceError):
    """The process that restores the clocks after a trainer's death can't do its work."""


class MeasurementError(DeviceError):
    """Time or energy can't be measured well enough to be used."""


class SimulationError(DeviceError):
    """The simulated driver isn't there or refused a request."""


class DeviceWarning(UserWarning):
    """Something about a GPU is worse than expected, but work goes on."""


class EnergyIntegratedWarning(DeviceWarning):
    """A GPU has no energy counter: its energy is integrated from power readings."""


class ClockNotHeldWarning(DeviceWarning):
    """A GPU ran slower than the clock that it was locked to."""


class NvmlError(DeviceError):
    """A call into NVML failed.

    Attributes
    ----------
    code:
        NVML's return code.
    doing:
        What was being done.
    """

    code = 999
    meaning = "the driver failed for a reason that it doesn't give"
    remedy = "look at the kernel log (dmesg, lines with NVRM or Xid); restart the driver if it goes on"

    def __init__(self, doing: str, code: int | None = None) -> None:
        self.doing = doing
        if code is not None:
            self.code = code
        super().__init__(f"cannot {doing}: {self.meaning} (NVML code {self.code}); {self.remedy}")

    def __reduce__(self) -> tuple[type[NvmlError], tuple[str, int]]:
        return type(self), (self.doing, self.code)


class UninitializedError(NvmlError):
    """NVML was not initialised in this process (code 1)."""

    code = 1
    meaning = "NVML is not initialised in this process"
    remedy = "open the GPU again; after a fork this happens by itself"


class InvalidArgumentError(NvmlError):
    """NVML refused a value (code 2)."""

    code = 2
    meaning = "NVML refused a value"
    remedy = "use a clock from the supported ones and a power limit within the range (perseus clocks show)"


class NotSupportedError(NvmlError):
    """The GPU can't do it (code 3)."""

    code = 3
    meaning = "this GPU doesn't offer that"
    remedy = "locked clocks and the energy counter need Volta or newer; not every board offers every setting"


class NoPermissionError(NvmlError):
    """The user may not do it (code 4). The message says what was tried."""

    code = 4
    meaning = "this user may not change the GPU's settings"
    remedy = "run as root, give CAP_SYS_ADMIN (docker: --cap-add SYS_ADMIN), or run zeusd and set ZEUSD_SOCK_PATH"

    def __init__(self, doing: str, code: int | None = None) -> None:
        super().__init__(doing, code)
        self.args = (f"{self.args[0]}; tried as {describe_privileges()}",)


class AlreadyInitializedError(NvmlError):
    """NVML was initialised twice (code 5)."""

    code = 5
    meaning = "NVML is already initialised"
    remedy = "nothing needs to be done; report it if work stops here"


class NotFoundError(NvmlError):
    """There is no such GPU or value (code 6)."""

    code = 6
    meaning = "there is no such GPU or value"
    remedy = "compare with the output of nvidia-smi -L"


class InsufficientSizeError(NvmlError):
    """A buffer was too small (code 7)."""

    code = 7
    meaning = "a buffer was too small for the answer"
    remedy = "update nvidia-ml-py (pip install -U nvidia-ml-py)"


class InsufficientPowerError(NvmlError):
    """A power cable is not attached (code 8)."""

    code = 8
    meaning = "the GPU lacks external power"
    remedy = "attach its power cables"


class DriverNotLoadedError(NvmlError):
    """The kernel driver is not loaded (code 9)."""

    code = 9
    meaning = "the NVIDIA kernel driver is not loaded"
    remedy = "load it (modprobe nvidia), or try without a GPU: perseus simulate --gpu a100 -- COMMAND"


class DriverTimeoutError(NvmlError):
    """The driver didn't answer in time (code 10)."""

    code = 10
    meaning = "the driver didn't answer in time"
    remedy = "try again; if it goes on, look for Xid lines in dmesg and reset the GPU"


class IrqIssueError(NvmlError):
    """The kernel has trouble with the GPU's interrupts (code 11)."""

    code = 11
    meaning = "the kernel has trouble with the GPU's interrupts"
    remedy = "look at dmesg; reseat the board or change its slot's interrupt settings"


class LibraryNotFoundError(NvmlError):
    """``libnvidia-ml.so.1`` can't be loaded (code 12)."""

    code = 12
    meaning = "libnvidia-ml.so.1 can't be loaded"
    remedy = (
        "install the NVIDIA driver (in a container: start it with --gpus), "
        "or try without a GPU: perseus simulate --gpu a100 -- COMMAND"
    )


class FunctionNotFoundError(NvmlError):
    """The installed driver is too old for a call (code 13)."""

    code = 13
    meaning = "the installed driver doesn't have this call"
    remedy = "update the driver to 535 or newer"


class CorruptedInforomError(NvmlError):
    """The board's information memory is damaged (code 14)."""

    code = 14
    meaning = "the board's information memory is damaged"
    remedy = "have the board repaired; nvidia-smi -q shows which part of it"


class GpuLostError(NvmlError):
    """The GPU fell off the bus (code 15)."""

    code = 15
    meaning = "the GPU fell off the bus or can't be reached"
    remedy = "look for Xid 79 in dmesg; reset the GPU or restart the machine"


class ResetRequiredError(NvmlError):
    """The GPU needs a reset (code 16)."""

    code = 16
    meaning = "the GPU needs a reset before it can be used"
    remedy = "stop its processes and run nvidia-smi --gpu-reset"


class OperatingSystemError(NvmlError):
    """The operating system blocked access (code 17)."""

    code = 17
    meaning = "the operating system or a cgroup blocked access to the GPU"
    remedy = "allow /dev/nvidia* for this container or cgroup; after systemctl daemon-reload start the container anew"


class DriverMismatchError(NvmlError):
    """Library and kernel driver have different versions (code 18)."""

    code = 18
    meaning = "libnvidia-ml.so.1 and the kernel driver have different versions"
    remedy = (
        "restart the machine (or reload the nvidia modules) after the driver's update; in a container start it anew"
    )


class InUseError(NvmlError):
    """The GPU is in use (code 19)."""

    code = 19
    meaning = "the GPU is in use by another request"
    remedy = "try again when the other program has finished"


class NvmlMemoryError(NvmlError):
    """Memory ran out (code 20)."""

    code = 20
    meaning = "memory ran out"
    remedy = "free memory on the host"


class NoDataError(NvmlError):
    """There is no data yet (code 21)."""

    code = 21
    meaning = "there is no data yet"
    remedy = "try again in a moment"


class VgpuEccNotSupportedError(NvmlError):
    """Not available on a virtual GPU with ECC (code 22)."""

    code = 22
    meaning = "not available on a virtual GPU with ECC"
    remedy = "switch ECC off on the host's GPU"


class InsufficientResourcesError(NvmlError):
    """Resources other than memory ran out (code 23)."""

    code = 23
    meaning = "critical resources other than memory ran out"
    remedy = "close other programs that use the GPU"


class FreqNotSupportedError(NvmlError):
    """A clock isn't supported (code 24)."""

    code = 24
    meaning = "the GPU doesn't support that clock"
    remedy = "use one of the supported clocks (perseus clocks show)"


class ArgumentVersionMismatchError(NvmlError):
    """A structure's version is not known (code 25)."""

    code = 25
    meaning = "the driver doesn't know the structure's version"
    remedy = "update nvidia-ml-py, or the driver"


class DeprecatedError(NvmlError):
    """The call is gone (code 26)."""

    code = 26
    meaning = "the driver no longer offers this call"
    remedy = "update perseus-energy and nvidia-ml-py"


class NotReadyError(NvmlError):
    """The system is not ready (code 27)."""

    code = 27
    meaning = "the system isn't ready for the request"
    remedy = "start nvidia-fabricmanager (NVSwitch machines), or wait until it is up"


class GpuNotFoundError(NvmlError):
    """No GPU was found (code 28)."""

    code = 28
    meaning = "no GPU was found"
    remedy = "compare with nvidia-smi -L and lspci"


class InvalidStateError(NvmlError):
    """The GPU's state forbids it (code 29)."""

    code = 29
    meaning = "the GPU's present state forbids that"
    remedy = "look at nvidia-smi -q for a pending reset or a mode (MIG, confidential computing) that forbids it"


class ResetTypeNotSupportedError(NvmlError):
    """The kind of reset isn't supported (code 30)."""

    code = 30
    meaning = "the GPU doesn't support that kind of reset"
    remedy = "use a full reset, or restart the machine"


class UnknownNvmlError(NvmlError):
    """The driver gives no reason (code 999), or one that this version doesn't know."""


_SUBCLASSES: list[type[NvmlError]] = NvmlError.__subclasses__()
NVML_ERRORS: dict[int, type[NvmlError]] = {error.code: error for error in _SUBCLASSES}


def nvml_error(code: int, doing: str) -> NvmlError:
    """Return the exception for an NVML return code.

    Parameters
    ----------
    code:
        NVML's return code, not 0.
    doing:
        What was being done, to follow "cannot".
    """
    return NVML_ERRORS.get(code, UnknownNvmlError)(doing, code)


def has_sys_admin() -> bool:
    """Whether this process has the capability CAP_SYS_ADMIN (False where the system doesn't say)."""
    cap_sys_admin = 21
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return False
    masks = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")]
    return bool(masks) and bool(int(masks[0], 16) >> cap_sys_admin & 1)


def describe_privileges() -> str:
    """Return who this process is in the eyes of the driver: user, capability, daemon."""
    user = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    capability = "with CAP_SYS_ADMIN" if has_sys_admin() else "without CAP_SYS_ADMIN"
    socket = os.environ.get("ZEUSD_SOCK_PATH")
    daemon = f"through zeusd at {socket}" if socket else "without zeusd (ZEUSD_SOCK_PATH is not set)"
    return f"{user} {capability}, {daemon}"
