"""Which physical GPUs a process sees: ``CUDA_VISIBLE_DEVICES`` in all its forms.

Acting on the wrong GPU is the dangerous mistake, so whatever would need a guess is an error.

=============================  =====================================================================
not set                        all GPUs
``""``, ``-1``, ``NoDevFiles``  none
``2,0``                        indices; as in CUDA, the first one that doesn't exist ends the list
``GPU-8f2e...``                a UUID or the beginning of one that fits one GPU only
``MIG-...``                    a MIG instance: an error, because its clocks are the whole GPU's
=============================  =====================================================================

CUDA numbers GPUs fastest first unless ``CUDA_DEVICE_ORDER=PCI_BUS_ID``; NVML numbers them by bus. Where a machine has
different GPUs and the order isn't by bus, an index has two meanings, which is an error here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perseus.device.errors import MigDeviceError, VisibleDevicesError


@dataclass(frozen=True)
class GpuIdentity:
    """What tells one GPU from another."""

    index: int
    uuid: str
    name: str


def resolve_visible(environment: Mapping[str, str], gpus: Sequence[GpuIdentity]) -> list[int]:
    """Return the indices (NVML's order) of the GPUs that a CUDA process with this environment sees, in its order.

    Parameters
    ----------
    environment:
        Environment variables; ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER`` are read.
    gpus:
        All GPUs of the machine in NVML's order.

    Raises
    ------
    MigDeviceError
        If a MIG instance is named.
    VisibleDevicesError
        If an entry fits no GPU or several, a GPU is named twice, or an index has two meanings.
    """
    value = environment.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        _require_one_order(environment, gpus)
        return [gpu.index for gpu in gpus]
    found: list[int] = []
    for entry in (part.strip() for part in value.split(",")):
        index = _resolve_entry(entry, value, environment, gpus)
        if index is None:
            break
        if index in found:
            raise VisibleDevicesError(f"CUDA_VISIBLE_DEVICES={value!r} names GPU {index} twice; name each GPU once")
        found.append(index)
    return found


def _resolve_entry(entry: str, value: str, environment: Mapping[str, str], gpus: Sequence[GpuIdentity]) -> int | None:
    """Return the index of one entry; None where CUDA ends the list."""
    if entry.upper().startswith("MIG-"):
        raise MigDeviceError(
            f"CUDA_VISIBLE_DEVICES={value!r} names the MIG instance {entry!r}; clocks and power limits belong to the "
            "whole GPU, which other instances share; use a GPU without MIG (nvidia-smi -mig 0)"
        )
    if entry.upper().startswith("GPU-"):
        return _resolve_uuid(entry, value, gpus)
    if not entry.isdecimal() or int(entry) >= len(gpus):
        return None  # as in CUDA: "-1", "NoDevFiles", "" or an index that doesn't exist end the list
    _require_one_order(environment, gpus)
    return gpus[int(entry)].index


def _resolve_uuid(entry: str, value: str, gpus: Sequence[GpuIdentity]) -> int:
    fitting = [gpu for gpu in gpus if gpu.uuid.lower().startswith(entry.lower())]
    if len(fitting) == 1:
        return fitting[0].index
    found = f"several GPUs ({', '.join(gpu.uuid for gpu in fitting)})" if fitting else "no GPU of this machine"
    raise VisibleDevicesError(
        f"CUDA_VISIBLE_DEVICES={value!r}: {entry!r} fits {found}; give a longer UUID from nvidia-smi -L"
    )


def _require_one_order(environment: Mapping[str, str], gpus: Sequence[GpuIdentity]) -> None:
    names = {gpu.name for gpu in gpus}
    if len(names) > 1 and environment.get("CUDA_DEVICE_ORDER", "").upper() != "PCI_BUS_ID":
        raise VisibleDevicesError(
            f"this machine has different GPUs ({', '.join(sorted(names))}), which CUDA and NVML number differently; "
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID in CUDA_VISIBLE_DEVICES"
        )
