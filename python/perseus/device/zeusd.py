"""GPUs whose settings go through zeusd, the daemon of the Zeus project, where training isn't root.

Reading needs no privilege, so it stays with NVML; setting clocks and power limits is an HTTP request over the daemon's
Unix socket. The daemon keeps no lease: what it set stays when its client dies, so the guardian restores through it.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from perseus.device import nvml
from perseus.device.errors import InvalidArgumentError, NoPermissionError, NotSupportedError, ZeusdError

_TIMEOUT_S = 5.0


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, socket_path: str) -> None:
        super().__init__("zeusd", timeout=_TIMEOUT_S)
        self._socket_path = socket_path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(self._socket_path)


class ZeusdClient:
    """The daemon's HTTP interface.

    Parameters
    ----------
    socket_path:
        Path of the daemon's socket.
    token:
        Bearer token, if the daemon asks for one (``ZEUSD_TOKEN``).
    """

    def __init__(self, socket_path: str, token: str | None = None) -> None:
        self.socket_path = socket_path
        self.token = token

    def discover(self) -> dict[str, Any]:
        """Return what the daemon says about its GPUs and groups of routes."""
        return self._request("GET", "/discover", {}, "ask zeusd for its GPUs")

    def set_locked_clocks(self, gpu: int, min_mhz: int, max_mhz: int) -> None:
        """Lock the core clock of the daemon's GPU number `gpu`."""
        arguments = {"gpu_ids": gpu, "min_clock_mhz": min_mhz, "max_clock_mhz": max_mhz, "block": "true"}
        self._request("POST", "/gpu/set_gpu_locked_clocks", arguments, f"lock the clocks of GPU {gpu} through zeusd")

    def reset_locked_clocks(self, gpu: int) -> None:
        """Unlock the core clock."""
        arguments = {"gpu_ids": gpu, "block": "true"}
        self._request("POST", "/gpu/reset_gpu_locked_clocks", arguments, f"reset the clocks of GPU {gpu} through zeusd")

    def set_power_limit(self, gpu: int, limit_w: float) -> None:
        """Set the power limit."""
        arguments = {"gpu_ids": gpu, "power_limit_mw": round(limit_w * 1000), "block": "true"}
        self._request("POST", "/gpu/set_power_limit", arguments, f"set the power limit of GPU {gpu} through zeusd")

    def _request(self, method: str, route: str, arguments: Mapping[str, object], doing: str) -> dict[str, Any]:
        connection = _UnixConnection(self.socket_path)
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        path = f"{route}?{urlencode(arguments)}" if arguments else route
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise ZeusdError(
                f"cannot {doing}: no answer at {self.socket_path} ({error}); "
                "start zeusd there, or unset ZEUSD_SOCK_PATH to use NVML itself"
            ) from error
        finally:
            connection.close()
        _raise_for_status(answer.status, text, doing)
        return _parse(text)


def _parse(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text) if text else {}
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _raise_for_status(status: int, text: str, doing: str) -> None:
    if status == http.client.OK:
        return
    reason = f"{doing} (zeusd says: {text.strip()[:200] or status})"
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        raise NoPermissionError(reason)
    if status == http.client.BAD_REQUEST:
        raise InvalidArgumentError(reason)
    if status == http.client.NOT_FOUND:
        raise NotSupportedError(f"{reason}; the route's group may be off: start zeusd with --enable gpu-control")
    raise ZeusdError(f"cannot {reason}; look at the daemon's log")


class ZeusdGpu(nvml.NvmlGpu):
    """A GPU that is read through NVML and set through zeusd.

    Parameters
    ----------
    uuid:
        The GPU's UUID.
    socket_path, token:
        See `ZeusdClient`.
    """

    def __init__(self, uuid: str, socket_path: str, token: str | None = None) -> None:
        super().__init__(uuid)
        self.client = ZeusdClient(socket_path, token)
        self.daemon_index = _daemon_index(self, self.client.discover())

    def __reduce__(self) -> tuple[type[ZeusdGpu], tuple[str, str, str | None]]:  # type: ignore[override]
        return type(self), (self.uuid, self.client.socket_path, self.client.token)

    def lock_clocks_mhz(self, min_mhz: int, max_mhz: int) -> None:
        """See `perseus.device.Gpu`."""
        self.client.set_locked_clocks(self.daemon_index, min_mhz, max_mhz)

    def reset_clocks(self) -> None:
        """See `perseus.device.Gpu`."""
        self.client.reset_locked_clocks(self.daemon_index)

    def set_power_limit_w(self, limit_w: float) -> None:
        """See `perseus.device.Gpu`."""
        nvml.check_power_limit(self, limit_w)
        self.client.set_power_limit(self.daemon_index, limit_w)


def _daemon_index(gpu: nvml.NvmlGpu, discovered: Mapping[str, Any]) -> int:
    """Return the daemon's number of a GPU: by PCI address where the daemon tells it, else NVML's index.

    The daemon numbers GPUs as its own NVML does, which may see more of them than this process (a container).
    """
    address = nvml.pci_address(gpu)
    listed = discovered.get("gpus")
    if isinstance(listed, list):
        for entry in listed:
            if str(entry.get("pci_address", "")).lower()[-12:] == address:
                return int(entry["id"])
        raise ZeusdError(
            f"zeusd doesn't list a GPU at {address} ({gpu.uuid}); it lists {listed}; "
            "let the daemon see this GPU, or unset ZEUSD_SOCK_PATH"
        )
    if gpu.index not in discovered.get("gpu_ids", []):
        raise ZeusdError(f"zeusd doesn't list GPU {gpu.index} ({gpu.uuid}); it lists {discovered.get('gpu_ids')}")
    return gpu.index


def socket_from_environment() -> str | None:
    """Return the daemon's socket as the environment names it, or None."""
    return os.environ.get("ZEUSD_SOCK_PATH") or None
