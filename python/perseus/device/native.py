"""Where the native run-time parts are, and how they address a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perseus.device.errors import DeviceError
from perseus.device.nvml import NvmlGpu
from perseus.device.zeusd import ZeusdGpu

if TYPE_CHECKING:
    from perseus import _runtime
    from perseus.device.protocol import Gpu


def runtime_folder() -> Path:
    """Return the folder of the native parts.

    Raises
    ------
    DeviceError
        If they were not built; they are for Linux only.
    """
    try:
        from perseus import _runtime
    except ImportError as error:
        raise DeviceError(
            f"the native run-time part of Perseus can't be loaded ({error}); clock control needs Linux and an "
            "installed package (pip install perseus-energy)"
        ) from error
    return Path(_runtime.__file__).parent


def native_address(gpu: Gpu) -> _runtime.GpuAddress | None:
    """Return how native code reaches a GPU; None for a GPU that only Python knows."""
    runtime_folder()
    from perseus import _runtime

    library = _runtime.nvml_library_path()
    if isinstance(gpu, ZeusdGpu):
        return _runtime.GpuAddress(gpu.uuid, library, gpu.client.socket_path, gpu.client.token or "", gpu.daemon_index)
    return _runtime.GpuAddress(gpu.uuid, library) if isinstance(gpu, NvmlGpu) else None
