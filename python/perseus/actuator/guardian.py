"""Start the guardian of a GPU and talk to it. What it does stands in ``cpp/runtime/guardian.hpp``."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perseus.actuator.records import record_path
from perseus.device.errors import DeviceError, GpuBusyError, GuardianError, nvml_error
from perseus.device.native import runtime_folder
from perseus.device.zeusd import ZeusdGpu

if TYPE_CHECKING:
    from perseus.device.protocol import Gpu

_START_TIMEOUT_S = 60.0  # NVML's initialisation takes seconds on some machines
_RESTORE_TIMEOUT_S = 60.0


class Guardian:
    """The guardian of one GPU, as its trainer sees it.

    Parameters
    ----------
    gpu:
        The GPU to guard.
    original_clocks_mhz:
        The lock that it shall put back; None: none.

    Raises
    ------
    GpuBusyError
        If another live process controls the GPU.
    DeviceError
        If the guardian can't reach the GPU.

    Attributes
    ----------
    recovered:
        Whether it first undid what an earlier, dead process had left.
    """

    def __init__(self, gpu: Gpu, original_clocks_mhz: tuple[int, int] | None = None) -> None:
        self._gpu = gpu
        self.recovered = False
        self._socket, theirs = socket.socketpair()
        self._received = b""
        with theirs:
            _start(_command(gpu, theirs.fileno(), original_clocks_mhz), theirs.fileno(), _environment(gpu))
        self._socket.settimeout(_START_TIMEOUT_S)
        try:
            self._await_ready()
        except BaseException:
            self._socket.close()
            raise

    def release(self) -> None:
        """Let the guardian restore everything and end.

        Raises
        ------
        GuardianError
            If it is gone.
        DeviceError
            If it couldn't restore everything.
        """
        try:
            self._socket.settimeout(_RESTORE_TIMEOUT_S)
            self._socket.sendall(b"release\n")
            word, _, rest = self._line().partition(" ")
        except OSError as error:
            raise GuardianError(f"the guardian of GPU {self._gpu.uuid} is gone ({error})") from error
        finally:
            self._socket.close()
        if word == "failed":
            raise nvml_error(int(rest), f"restore the settings of GPU {self._gpu.uuid}")
        if word != "restored":
            raise GuardianError(f"the guardian of GPU {self._gpu.uuid} ended without an answer")

    def forget(self) -> None:
        """In a forked child: close this end, which belongs to the parent."""
        self._socket.close()

    def _await_ready(self) -> None:
        while (word_and_rest := self._line().partition(" "))[0] != "ready":
            word, _, rest = word_and_rest
            if word == "recovered":
                self.recovered = True
            elif word == "busy":
                raise GpuBusyError(
                    f"process {rest} controls the clocks of GPU {self._gpu.uuid}; one process may control a GPU; "
                    "end that one, or choose another GPU (perseus clocks show lists who controls which)"
                )
            elif word == "error":
                code, _, doing = rest.partition(" ")
                raise nvml_error(int(code), f"guard GPU {self._gpu.uuid}: {doing}")
            else:
                raise GuardianError(f"the guardian of GPU {self._gpu.uuid} ended at its start")

    def _line(self) -> str:
        """Return the guardian's next line; empty when it has ended."""
        while b"\n" not in self._received:
            part = self._socket.recv(4096)
            if not part:
                return ""
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return line.decode()


@contextmanager
def guarded(gpu: Gpu) -> Iterator[None]:
    """Restore a GPU's clocks and power limit at the end of the block, and at any end of this process."""
    guardian = Guardian(gpu)
    try:
        yield
    finally:
        guardian.release()


def _command(gpu: Gpu, their_socket: int, original_clocks_mhz: tuple[int, int] | None) -> list[str]:
    from perseus import _runtime

    options: dict[str, object] = {
        "gpu": gpu.uuid,
        "library": _runtime.nvml_library_path(),
        "record": record_path(gpu.uuid),
        "pid": os.getpid(),
        "socket": their_socket,
    }
    if isinstance(gpu, ZeusdGpu):
        options |= {"zeusd-socket": gpu.client.socket_path, "zeusd-gpu": gpu.daemon_index}
    if original_clocks_mhz is not None:
        options |= {"original-min-mhz": original_clocks_mhz[0], "original-max-mhz": original_clocks_mhz[1]}
    words = [str(runtime_folder() / "perseus-guardian")]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    return words


def _environment(gpu: Gpu) -> dict[str, str]:
    """Return the guardian's environment; the daemon's token is told there, because others can see a command line."""
    token = gpu.client.token if isinstance(gpu, ZeusdGpu) else None
    return {**os.environ, "ZEUSD_TOKEN": token} if token else dict(os.environ)


def _start(command: list[str], their_socket: int, environment: dict[str, str]) -> None:
    """Start the program. It leaves this process's session and tree at once, so that its first process is soon over."""
    nowhere = subprocess.DEVNULL
    try:
        done = subprocess.run(
            command,
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
            pass_fds=[their_socket],
            env=environment,
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GuardianError(
            f"the guardian {command[0]} can't be started ({error}); install the package anew"
        ) from error
    if done.returncode != 0:
        raise DeviceError(f"the guardian {command[0]} refused its options (status {done.returncode})")
