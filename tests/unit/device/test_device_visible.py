from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus.device.errors import MigDeviceError, VisibleDevicesError
from perseus.device.visible import GpuIdentity, resolve_visible

UUIDS = ["GPU-aa11-1", "GPU-aa22-2", "GPU-bb33-3"]
GPUS = [GpuIdentity(index, uuid, "A100") for index, uuid in enumerate(UUIDS)]
MIXED = [GpuIdentity(0, UUIDS[0], "A100"), GpuIdentity(1, UUIDS[1], "V100")]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("0,-1,2", [0]),
        ("0,3,1", [0]),
        ("GPU-bb33-3,GPU-aa11-1", [2, 0]),
        ("GPU-bb", [2]),
        ("gpu-AA2", [1]),
        ("GPU-aa1,2", [0, 2]),
    ],
)
def test_forms(value: str | None, expected: list[int]) -> None:
    environment = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert resolve_visible(environment, GPUS) == expected


@pytest.mark.parametrize("value", ["MIG-1234", "0,MIG-GPU-aa11/1/0", "mig-1"])
def test_a_mig_instance_is_an_error(value: str) -> None:
    with pytest.raises(MigDeviceError, match="whole GPU"):
        resolve_visible({"CUDA_VISIBLE_DEVICES": value}, GPUS)


@pytest.mark.parametrize(
    ("value", "rule"),
    [("GPU-aa", "several GPUs"), ("GPU-cc", "no GPU of this machine"), ("0,0", "twice"), ("1,GPU-aa2", "twice")],
)
def test_what_needs_a_guess_is_an_error(value: str, rule: str) -> None:
    with pytest.raises(VisibleDevicesError, match=rule):
        resolve_visible({"CUDA_VISIBLE_DEVICES": value}, GPUS)


def test_an_index_with_two_meanings_is_an_error() -> None:
    for environment in ({}, {"CUDA_VISIBLE_DEVICES": "1"}):
        with pytest.raises(VisibleDevicesError, match="PCI_BUS_ID"):
            resolve_visible(environment, MIXED)
    assert resolve_visible({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, MIXED) == [1]
    assert resolve_visible({"CUDA_VISIBLE_DEVICES": "GPU-aa2"}, MIXED) == [1]


@given(st.lists(st.integers(0, 7), unique=True), st.integers(4, 12))
def test_indices_uuids_and_prefixes_agree(chosen: list[int], length: int) -> None:
    gpus = [GpuIdentity(index, f"GPU-{index:x}f00{index}-0123456789", "A100") for index in range(8)]
    by_index = resolve_visible({"CUDA_VISIBLE_DEVICES": ",".join(map(str, chosen))}, gpus)
    prefixes = ",".join(gpus[index].uuid[: 4 + length] for index in chosen)
    assert by_index == chosen
    assert resolve_visible({"CUDA_VISIBLE_DEVICES": prefixes}, gpus) == chosen


@given(st.text(max_size=20))
def test_any_text_resolves_or_is_a_typed_error(text: str) -> None:
    try:
        found = resolve_visible({"CUDA_VISIBLE_DEVICES": text}, GPUS)
    except VisibleDevicesError:
        return
    assert len(set(found)) == len(found)
    assert set(found) <= {0, 1, 2}
