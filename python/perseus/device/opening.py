"""Open the GPUs of this machine."""

from __future__ import annotations

import os
from typing import Literal

from perseus.device import nvml, zeusd
from perseus.device.errors import ZeusdError
from perseus.device.nvml import NvmlGpu
from perseus.device.protocol import Gpu
from perseus.device.visible import resolve_visible

Backend = Literal["auto", "nvml", "zeusd"]


def open_gpus(backend: Backend = "auto") -> list[Gpu]:
    """Return the GPUs that a CUDA program in this process would see, in its order.

    Item ``i`` is the physical GPU behind torch's ``cuda:i``.

    Parameters
    ----------
    backend:
        How settings reach the GPU: ``"nvml"`` (needs root or CAP_SYS_ADMIN), ``"zeusd"`` (the daemon at
        ``ZEUSD_SOCK_PATH``), or ``"auto"``: the daemon if the environment names one, else NVML.

    Raises
    ------
    DeviceError
        If there is no driver, ``CUDA_VISIBLE_DEVICES`` can't be resolved safely, or the daemon doesn't answer.
    """
    identities = nvml.list_identities()
    visible = resolve_visible(os.environ, identities)
    return [_open(identities[index].uuid, backend) for index in visible]


def open_all_gpus(backend: Backend = "auto") -> list[Gpu]:
    """Return all GPUs of the machine in NVML's order, whatever ``CUDA_VISIBLE_DEVICES`` says."""
    return [_open(identity.uuid, backend) for identity in nvml.list_identities()]


def _open(uuid: str, backend: Backend) -> Gpu:
    socket_path = zeusd.socket_from_environment()
    if backend == "zeusd" and socket_path is None:
        raise ZeusdError("the backend zeusd was asked for; set ZEUSD_SOCK_PATH to the daemon's socket")
    if backend == "nvml" or socket_path is None:
        return NvmlGpu(uuid)
    return zeusd.ZeusdGpu(uuid, socket_path, os.environ.get("ZEUSD_TOKEN"))
