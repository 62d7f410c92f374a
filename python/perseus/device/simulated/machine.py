"""Make a simulated machine, run kernels on it, order faults, and look behind NVML's curtain."""

from __future__ import annotations

import ctypes
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from perseus.device.errors import SimulationError
from perseus.device.native import runtime_folder
from perseus.device.simulated.kernel import Kernel

MODELS = ("v100", "a40", "a100", "h100")
STATE_VARIABLE = "PERSEUS_SIMULATED_GPU_STATE"
_CREATE_FAILURES = {
    -1: "a machine has 1 to 16 GPUs and a time scale that isn't negative",
    -2: f"the models are {', '.join(MODELS)}",
    -3: "the state file can't be written",
}


class SettingCall(NamedTuple):
    """A call that asked to change a setting."""

    time_s: float
    pid: int
    gpu: int
    kind: str
    """``"lock"``, ``"reset"`` or ``"power_limit"``."""
    code: int
    """NVML's answer; 0 is success."""
    values: tuple[int, int]
    """Lowest and highest clock in MHz; or the limit in mW, and 0."""


def library_path() -> Path:
    """Return the simulated driver library.

    Raises
    ------
    SimulationError
        If the package was built without it (it is for Linux only).
    """
    path = runtime_folder() / "device" / "simulated" / "lib" / "libnvidia-ml.so.1"
    if not path.exists():
        raise SimulationError(f"there is no simulated driver at {path}; install a build for Linux")
    return path


def child_environment(state_path: str | os.PathLike[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` changed so that a program started with it finds the simulated driver and machine."""
    folder = str(library_path().parent)
    inherited = environment.get("LD_LIBRARY_PATH")
    return {
        **environment,
        "LD_LIBRARY_PATH": f"{folder}:{inherited}" if inherited else folder,
        STATE_VARIABLE: os.fspath(state_path),
    }


class _Library:
    """The driver library in this process, with the types of its control functions."""

    _loaded: ctypes.CDLL | None = None

    @classmethod
    def get(cls) -> ctypes.CDLL:
        if cls._loaded is None:
            library = ctypes.CDLL(str(library_path()))
            _declare(library)
            cls._loaded = library
        return cls._loaded


def _declare(library: ctypes.CDLL) -> None:
    uint, real, text, long64 = ctypes.c_uint, ctypes.c_double, ctypes.c_char_p, ctypes.c_int64
    pointer = ctypes.POINTER(real)
    signatures = {
        "create": (ctypes.c_int, [text, text, uint, real, real]),
        "attach": (ctypes.c_int, [text]),
        "now": (real, []),
        "sleep": (ctypes.c_int, [real]),
        "context": (ctypes.c_int, [uint, ctypes.c_int]),
        "launch": (long64, [uint, real, real, real]),
        "time_left": (real, [uint, long64]),
        "wait": (ctypes.c_int, [uint, long64, pointer, pointer]),
        "true_time": (real, [uint, real, real, real]),
        "true_power": (real, [uint, real, real]),
        "set": (ctypes.c_int, [uint, text, real]),
        "get": (real, [uint, text]),
        "reload": (ctypes.c_int, [uint]),
        "fault": (ctypes.c_int, [text, ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]),
        "clear_faults": (ctypes.c_int, []),
        "call_count": (long64, []),
        "call": (ctypes.c_int, [long64, pointer, ctypes.POINTER(ctypes.c_int32)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"perseus_sim_{name}")
        function.restype, function.argtypes = result, arguments


def _check(code: int, doing: str) -> int:
    if code < 0:
        raise SimulationError(
            f"the simulated driver can't {doing} (code {code}); start a machine and name one of its GPUs"
        )
    return code


class SimulatedGpu:
    """One GPU of a simulated machine, from behind.

    Parameters
    ----------
    index:
        NVML's number of the GPU.
    """

    def __init__(self, index: int) -> None:
        self.index = index

    def get(self, name: str) -> float:
        """Return an option or a quantity by name, such as ``"energy_j"``, ``"locked_max_mhz"`` or ``"power_noise"``."""
        value = float(_Library.get().perseus_sim_get(self.index, name.encode()))
        if math.isnan(value):
            raise SimulationError(f"GPU {self.index} has nothing named {name!r}; see cpp/simulated_nvml/control.cpp")
        return value

    def set(self, **options: float) -> None:
        """Change options by name, such as ``set(power_noise=0, cap_mhz=900)``."""
        for name, value in options.items():
            _check(_Library.get().perseus_sim_set(self.index, name.encode(), value), f"set {name!r}")

    @property
    def locked_mhz(self) -> tuple[int, int] | None:
        """The range that the core clock is locked to; None when it isn't."""
        low, high = int(self.get("locked_min_mhz")), int(self.get("locked_max_mhz"))
        return (low, high) if high else None

    def open_context(self) -> None:
        """Say that this process uses the GPU: it draws the blocking power while it waits."""
        _check(_Library.get().perseus_sim_context(self.index, 1), "open a context")

    def close_context(self) -> None:
        """Say that it no longer does."""
        _check(_Library.get().perseus_sim_context(self.index, 0), "close a context")

    def launch(self, kernel: Kernel) -> int:
        """Queue a kernel and return its ticket; like a CUDA launch, this doesn't wait."""
        return _check(
            _Library.get().perseus_sim_launch(self.index, kernel.work_s, kernel.memory_share, kernel.activity),
            "launch a kernel",
        )

    def wait(self, ticket: int) -> tuple[float, float]:
        """Wait for a kernel's end; return when it started and ended on the GPU, in the machine's time."""
        start, end = ctypes.c_double(), ctypes.c_double()
        _check(
            _Library.get().perseus_sim_wait(self.index, ticket, ctypes.byref(start), ctypes.byref(end)),
            "wait for a kernel",
        )
        return start.value, end.value

    def time_left_s(self, ticket: int) -> float:
        """Return how long a kernel will still take if nothing changes; 0 when it has ended."""
        return float(_Library.get().perseus_sim_time_left(self.index, ticket))

    def run(self, kernel: Kernel) -> tuple[float, float]:
        """Launch a kernel and wait for it; see `wait`."""
        return self.wait(self.launch(kernel))

    def true_time_s(self, mhz: float, kernel: Kernel) -> float:
        """Return the model's exact time of a kernel at a clock, without noise and throttling."""
        return float(_Library.get().perseus_sim_true_time(self.index, mhz, kernel.work_s, kernel.memory_share))

    def true_energy_j(self, mhz: float, kernel: Kernel) -> float:
        """Return the model's exact energy of a kernel at a clock."""
        power_w = float(_Library.get().perseus_sim_true_power(self.index, mhz, kernel.activity))
        return power_w * self.true_time_s(mhz, kernel)

    def reload_driver(self) -> None:
        """Start the counter again at 0, unlock the clocks and put the power limit back, as a driver reload does."""
        _check(_Library.get().perseus_sim_reload(self.index), "reload")

    def fail(self, function: str = "", *, code: int, skip: int = 0, times: int = -1) -> None:
        """Let an NVML function about this GPU answer an error.

        Parameters
        ----------
        function:
            NVML's name without version, such as ``"nvmlDeviceGetPowerUsage"``; empty: every one.
        code:
            NVML return code to answer.
        skip:
            So many calls succeed first.
        times:
            So many calls fail; -1: all.
        """
        _order_fault(function, self.index, code, skip, times)


def _order_fault(function: str, gpu: int, code: int, skip: int, times: int) -> None:
    _check(_Library.get().perseus_sim_fault(function.encode(), gpu, code, skip, times), "order a fault")


class SimulatedMachine:
    """A simulated machine that this process is attached to.

    Parameters
    ----------
    path:
        Its state file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def gpu(self, index: int) -> SimulatedGpu:
        """Return one of its GPUs."""
        return SimulatedGpu(index)

    def now_s(self) -> float:
        """Return the machine's time, which began at 0 when it was made."""
        return float(_Library.get().perseus_sim_now())

    def sleep_s(self, duration_s: float) -> None:
        """Let the machine's time pass (at once, in virtual time)."""
        _check(_Library.get().perseus_sim_sleep(duration_s), "sleep")

    def fail(self, function: str, *, code: int, skip: int = 0, times: int = -1) -> None:
        """Let an NVML function that is about no GPU answer an error; see `SimulatedGpu.fail`."""
        _order_fault(function, -1, code, skip, times)

    def clear_faults(self) -> None:
        """Take back all orders to fail."""
        _check(_Library.get().perseus_sim_clear_faults(), "clear faults")

    def calls(self) -> list[SettingCall]:
        """Return the last calls (at most 4096, of all processes) that asked to change a setting."""
        count = int(_Library.get().perseus_sim_call_count())
        return [_read_call(number) for number in range(max(0, count - 4096), count)]


def _read_call(number: int) -> SettingCall:
    time_s, fields = ctypes.c_double(), (ctypes.c_int32 * 6)()
    _check(_Library.get().perseus_sim_call(number, ctypes.byref(time_s), fields), "read a call")
    pid, gpu, kind, code, first, second = fields
    return SettingCall(time_s.value, pid, gpu, ("lock", "reset", "power_limit")[kind], code, (first, second))


def create_state(
    path: str | os.PathLike[str], gpu: str = "a100", *, count: int = 1, time_scale: float = 1.0, seed: int = 1
) -> None:
    """Make the state file of a simulated machine. See `start`."""
    code = _Library.get().perseus_sim_create(os.fsencode(path), gpu.encode(), count, time_scale, float(seed))
    if code < 0:
        raise SimulationError(
            f"can't make {count} simulated GPUs {gpu!r} in {os.fspath(path)}: {_CREATE_FAILURES.get(code, code)}"
        )


def attach(path: str | os.PathLike[str]) -> SimulatedMachine:
    """Use the simulated machine in a state file in this process, and in the processes that it starts.

    Must come before NVML is first used in this process, unless NVML already is the simulated driver.
    """
    if _Library.get().perseus_sim_attach(os.fsencode(path)) < 0:
        raise SimulationError(f"{os.fspath(path)} isn't the state of a simulated machine of this version")
    os.environ[STATE_VARIABLE] = os.fspath(path)
    return SimulatedMachine(Path(path))


@contextmanager
def start(gpu: str = "a100", *, count: int = 1, time_scale: float = 1.0, seed: int = 1) -> Iterator[SimulatedMachine]:
    """Make a simulated machine and use it in this process.

    Parameters
    ----------
    gpu:
        One model for all GPUs (see `MODELS`), or one for each, divided by commas.
    count:
        Number of GPUs, 1 to 16.
    time_scale:
        1: the machine lives in real time. Above 1: faster. 0: virtual time, which moves when kernels run and when
        `SimulatedMachine.sleep_s` is called.
    seed:
        Of all noise.
    """
    earlier = os.environ.get(STATE_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="perseus-simulated-") as folder:
        path = Path(folder) / "machine"
        create_state(path, gpu, count=count, time_scale=time_scale, seed=seed)
        try:
            yield attach(path)
        finally:
            os.environ.pop(STATE_VARIABLE, None)
            if earlier is not None:
                os.environ[STATE_VARIABLE] = earlier
