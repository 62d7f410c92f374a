from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Callable

import pytest

from perseus.actuator import Actuator
from perseus.device import open_gpus, simulated

prometheus = pytest.importorskip("prometheus_client")

from perseus.metrics import GpuMetrics  # noqa: E402  (after the check that it can be imported)

Start = Callable[..., simulated.SimulatedMachine]


def test_values_by_uuid(start_machine: Start) -> None:
    machine = start_machine(count=2)
    metrics = GpuMetrics()
    gpus = open_gpus()
    with Actuator(gpus[0]) as first, Actuator(gpus[1]) as second:
        metrics.add(first, plan="7b3f")
        metrics.add(second)
        first.request(705)
        first.drain()
        machine.sleep_s(0.15)

        def value(name: str, gpu: int, **labels: str) -> float | None:
            found: float | None = metrics.registry.get_sample_value(name, {"gpu_uuid": gpus[gpu].uuid, **labels})
            return found

        assert value("perseus_gpu_requested_megahertz", 0) == 705
        assert value("perseus_gpu_achieved_megahertz", 0) == 705
        assert value("perseus_gpu_requested_megahertz", 1) == 0
        energy_j = value("perseus_gpu_energy_joules_total", 0)
        assert energy_j is not None
        assert energy_j > 0
        assert value("perseus_gpu_power_watts", 1) == pytest.approx(62, rel=0.05)
        assert value("perseus_gpu_missed_deadlines_total", 0) == 0
        assert value("perseus_gpu_failed_requests_total", 0) == 0
        assert value("perseus_plan_in_force", 0, plan="7b3f") == 1
        metrics.set_plan(gpus[0].uuid, "9a")
        assert value("perseus_plan_in_force", 0, plan="7b3f") is None
        assert value("perseus_plan_in_force", 0, plan="9a") == 1
        machine.gpu(0).set(lost=1)
        assert value("perseus_gpu_up", 0) == 0
        assert value("perseus_gpu_up", 1) == 1
        machine.gpu(0).set(lost=0)
        metrics.remove(gpus[1].uuid)
        assert value("perseus_gpu_up", 1) is None


def test_served_over_http(start_machine: Start) -> None:
    start_machine()
    metrics = GpuMetrics()
    gpu = open_gpus()[0]
    with Actuator(gpu) as actuator:
        metrics.add(actuator)
        server, thread = metrics.serve(0)
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            text = answer.read().decode()
        server.shutdown()
        server.server_close()
        thread.join()
    assert f'perseus_gpu_power_watts{{gpu_uuid="{gpu.uuid}"}}' in text


def test_without_the_package_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from perseus.errors import MissingExtraError\n"
        "try: import perseus.metrics\n"
        "except MissingExtraError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "perseus-energy[metrics]" in done.stdout
