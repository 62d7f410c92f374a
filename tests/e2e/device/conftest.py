from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from perseus.device import nvml, simulated


@pytest.fixture
def start_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., simulated.SimulatedMachine]]:
    """Start simulated machines that end with the test; their lock records are the test's own."""
    for variable in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ZEUSD_SOCK_PATH", "ZEUSD_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PERSEUS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(nvml, "_warned_uuids", set())
    with ExitStack() as stack:

        def start(gpu: str = "a100", **options: Any) -> simulated.SimulatedMachine:
            machine = stack.enter_context(simulated.start(gpu, **options))
            stack.callback(machine.clear_faults)
            return machine

        yield start
