"""Power limits through the real pynvml on the simulated driver, and the guardian against kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import perseus
from perseus.recurring import GlobalPowerLimit, Job
from perseus.recurring.gpus import limits_between_w, own_gpus

device = pytest.importorskip("perseus.device", reason="the device layer is not part of this tree")
pytest.importorskip("perseus._runtime", reason="the native run-time part is not built")
from perseus.device import simulated  # noqa: E402

KERNEL = simulated.Kernel(work_s=0.05, memory_share=0.2, activity=1.0)
MODELS = ("v100", "a40", "a100", "h100")
SOURCE = Path(perseus.__file__).parents[1]


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEUS_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture(params=MODELS)
def machine(request: pytest.FixtureRequest) -> Iterator[simulated.SimulatedMachine]:
    with simulated.start(request.param, count=2, time_scale=0, seed=3) as found:
        yield found


def truth(machine: simulated.SimulatedMachine, limit_w: float) -> tuple[float, float]:
    """Time and energy of a step at a power limit, from the simulated model itself."""
    gpu = machine.gpu(1)
    (other,) = (g for g in device.open_gpus() if g.index == 1)
    other.set_power_limit_w(limit_w)
    machine.sleep_s(1.0)
    gpu.run(KERNEL)
    began_s, before_j = machine.now_s(), gpu.get("energy_j")
    for _ in range(40):
        gpu.run(KERNEL)
    return (machine.now_s() - began_s) / 40, (gpu.get("energy_j") - before_j) / 40


def test_limits_are_measured_and_the_best_is_found(machine: simulated.SimulatedMachine) -> None:
    gpu = own_gpus()[0]
    original_w = gpu.power_limit_w()
    lowest_w, highest_w = gpu.power_limit_range_w()
    limit = GlobalPowerLimit(max_slowdown=0.15, gpus=[gpu], clock=machine.now_s)
    with limit:
        for _ in limit.steps(range(5000)):
            machine.gpu(0).run(KERNEL)
            if limit.power_limit_w is not None:
                break
        assert gpu.power_limit_w() == limit.power_limit_w
    assert gpu.power_limit_w() == original_w
    true_steps = {m.point.limit_w: truth(machine, m.point.limit_w) for m in limit.measurements}
    for measurement in limit.measurements:
        point = measurement.point
        step_s, step_j = true_steps[point.limit_w]
        assert 1.0 / point.rate_per_s == pytest.approx(step_s, rel=0.015)
        assert point.average_power_w / point.rate_per_s == pytest.approx(step_j, rel=0.02)
    fastest_s = min(step_s for step_s, _ in true_steps.values())
    chosen_s, chosen_j = true_steps[limit.power_limit_w or 0.0]
    assert chosen_s <= 1.16 * fastest_s
    assert chosen_j <= 1.02 * min(j for s, j in true_steps.values() if s <= 1.15 * fastest_s)
    asked_w = [call.values[0] / 1000.0 for call in machine.calls() if call.kind == "power_limit" and call.gpu == 0]
    assert all(lowest_w <= limit_w <= highest_w for limit_w in asked_w)
    expected_w = limits_between_w([(lowest_w, highest_w)])
    assert tuple(asked_w[: len(limit.measurements)]) == expected_w[: len(limit.measurements)]


def train(machine: simulated.SimulatedMachine, run: object, steps: int = 800) -> None:
    run._clock = run._sweep._clock = machine.now_s  # type: ignore[attr-defined]
    for epoch in run.epochs():  # type: ignore[attr-defined]
        for _ in run.steps(range(steps)):  # type: ignore[attr-defined]
            machine.gpu(0).run(KERNEL)
        run.report(0.95 if epoch == 4 else 0.5)  # type: ignore[attr-defined]


def make_job(path: Path, gpus: list[object], **options: object) -> Job:
    fields: dict[str, object] = {"batch_sizes": [8], "default": 8, "target": 0.9, "store": path, "gpus": gpus}
    return Job("asr", **{**fields, **options})  # type: ignore[arg-type]


def test_a_job_measures_once_and_restores(machine: simulated.SimulatedMachine, tmp_path: Path) -> None:
    gpu = own_gpus()[0]
    original_w = gpu.power_limit_w()
    job = make_job(tmp_path / "log", [gpu])
    results = []
    for _ in range(2):
        before_j = machine.gpu(0).get("energy_j")
        with job.run() as run:
            train(machine, run)
        assert run.result is not None
        assert run.result.energy_j == pytest.approx(machine.gpu(0).get("energy_j") - before_j, rel=0.01)
        assert gpu.power_limit_w() == original_w
        results.append(run.result)
    assert results[0].power_limit_w == results[1].power_limit_w is not None
    assert results[1].cost_j <= results[0].cost_j
    asked = [call for call in machine.calls() if call.kind == "power_limit"]
    assert len(asked) <= len(limits_between_w([gpu.power_limit_range_w()])) + 4


@pytest.mark.parametrize(
    ("function", "code"),
    [("nvmlDeviceSetPowerManagementLimit", 4), ("nvmlDeviceGetTotalEnergyConsumption", 999), ("", 15)],
    ids=["no permission", "no energy", "GPU lost"],
)
@pytest.mark.parametrize("skip", [0, 60])
def test_faults_of_the_driver_do_not_reach_training(
    function: str, code: int, skip: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with simulated.start("v100", time_scale=0) as machine:
        gpus = own_gpus()
        machine.gpu(0).fail(function, code=code, skip=skip)
        with make_job(tmp_path / "log", gpus).run() as run:
            run._clock = run._sweep._clock = machine.now_s
            for epoch in run.epochs():
                for _ in run.steps(range(100)):
                    machine.sleep_s(0.05)
                run.report(0.95 if epoch == 2 else 0.5)
        assert run.result is not None
        assert run.result.reached
        assert run.result.epochs == 3
        machine.clear_faults()
    assert len(caplog.records) <= 4


TRAINER = """
import sys
from perseus.device import open_gpus, simulated
from perseus.recurring import Job, SweepTiming

timing = SweepTiming(settle_s=0.1, max_window_s=0.3)
job = Job("asr", batch_sizes=[8], default=8, target=0.9, store=sys.argv[1], power_limits_w=[300, 200], timing=timing)
gpu, watched = simulated.attach(sys.argv[2]).gpu(0), open_gpus()[0]
kernel = simulated.Kernel(work_s=0.05)
with job.run() as run:
    for epoch in run.epochs():
        for _ in run.steps(range(100000)):
            gpu.run(kernel)
            if watched.power_limit_w() == 200:
                print("at 200 W", flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_killed_run_leaves_no_power_limit_behind(tmp_path: Path) -> None:
    """Killed at 200 W in the middle of the measurements: the guardian restores 300 W."""
    path = tmp_path / "machine"
    simulated.create_state(path, "v100", time_scale=20.0)
    environment = simulated.child_environment(path, {**os.environ, "PYTHONPATH": str(SOURCE)})
    command = [sys.executable, "-c", TRAINER, str(tmp_path / "log"), str(path)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "at 200 W\n"
    process.kill()
    process.communicate()
    simulated.attach(path)
    (gpu,) = device.open_gpus()
    patience_s = time.monotonic() + 20.0
    while gpu.power_limit_w() != 300.0 and time.monotonic() < patience_s:
        time.sleep(0.02)
    assert gpu.power_limit_w() == 300.0
