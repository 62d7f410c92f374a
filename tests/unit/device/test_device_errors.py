from __future__ import annotations

import pickle

import pynvml
import pytest

from perseus.device import errors
from perseus.errors import PerseusError

CODES = {
    value: name
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(value, int) and value > 0
}


@pytest.mark.parametrize("code", sorted(CODES))
def test_each_return_code_has_its_type_and_remedy(code: int) -> None:
    error = errors.nvml_error(code, "read the power of GPU X")
    assert isinstance(error, PerseusError)
    assert type(error).code == code == error.code
    assert str(error).startswith("cannot read the power of GPU X: ")
    assert error.remedy in str(error)


def test_the_types_differ() -> None:
    assert len({errors.NVML_ERRORS[code] for code in CODES}) == len(CODES)


def test_an_unknown_code_is_kept() -> None:
    error = errors.nvml_error(12345, "do it")
    assert isinstance(error, errors.UnknownNvmlError)
    assert error.code == 12345
    assert "12345" in str(error)


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(errors.nvml_error(15, "do it")))
    assert isinstance(error, errors.GpuLostError)
    assert error.doing == "do it"


def test_no_permission_says_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUSD_SOCK_PATH", "/run/zeusd.sock")
    text = str(errors.nvml_error(4, "lock the clocks"))
    for part in ("root", "CAP_SYS_ADMIN", "zeusd", "tried as", "/run/zeusd.sock"):
        assert part in text
    monkeypatch.delenv("ZEUSD_SOCK_PATH")
    assert "ZEUSD_SOCK_PATH is not set" in str(errors.nvml_error(4, "lock the clocks"))
