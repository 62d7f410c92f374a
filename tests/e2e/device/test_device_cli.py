"""The commands about devices, on an app of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from perseus.actuator import Actuator
from perseus.cli.clocks import clocks
from perseus.cli.doctor import doctor
from perseus.cli.profile import ProfileBar, profile
from perseus.cli.simulate import simulate
from perseus.device import open_gpus, simulated
from perseus.profiler import SweepProgress
from perseus.profiles import read_profiles

Start = Callable[..., simulated.SimulatedMachine]

app = typer.Typer(pretty_exceptions_enable=False)
app.add_typer(clocks, name="clocks")
app.command()(doctor)
app.command()(simulate)
app.command()(profile)

RUN_APP = [sys.executable, "-c", "import test_device_cli as t; t.app()"]


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return result.exit_code, result.stdout


def app_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}


def test_clocks_show_and_reset(start_machine: Start) -> None:
    machine = start_machine(count=2)
    gpus = open_gpus()
    gpus[1].lock_clocks_mhz(705, 705)
    with Actuator(gpus[0]) as actuator:
        actuator.request(900)
        actuator.drain()
        code, text = run("clocks", "show", "--json")
        rows = json.loads(text)["gpus"]
        assert code == 0
        assert [(row["index"], row["control"], row["clock_mhz"]) for row in rows] == [
            (0, "live", 900),
            (1, "free", 705),
        ]
        assert rows[0]["controlled_by_pid"] == os.getpid()
        assert (rows[0]["lowest_limit_w"], rows[0]["highest_limit_w"]) == (100, 400)
        code, text = run("clocks", "show")
        assert code == 0
        assert f"control      live, process {os.getpid()}" in text
        assert "900 MHz of 210 to 1410 MHz (idle, application clocks)" in text
        code, text = run("clocks", "reset")
        assert code == 0
        assert f"process {os.getpid()} controls it" in text
        assert machine.gpu(0).locked_mhz == (900, 900)
        assert machine.gpu(1).locked_mhz is None
        code, text = run("clocks", "reset", "--force", "--json")
        assert [row["outcome"] for row in json.loads(text)["gpus"]] == ["unlocked", "unlocked"]
        assert machine.gpu(0).locked_mhz is None


def test_clocks_reset_restores_what_a_dead_process_left(start_machine: Start, tmp_path: Path) -> None:
    machine = start_machine()
    gpu = open_gpus()[0]
    actuator = Actuator(gpu)
    actuator.request(705)
    actuator.drain()
    actuator.set_power_limit_w(200)
    machine.gpu(0).fail("nvmlDeviceResetGpuLockedClocks", code=27)
    code, text = run("clocks", "reset", "--force")
    assert code == 1
    assert "isn't ready" in text
    with pytest.raises(Exception, match="isn't ready"):
        actuator.close()
    code, text = run("clocks", "show")
    assert "stale" in text
    assert run("doctor", "--no-set-clocks", "--seconds", "0.5")[1].count("perseus clocks reset") == 1
    code, text = run("clocks", "reset", "--json")
    assert code == 1
    assert "stale records" in json.loads(text)["failures"]
    machine.clear_faults()
    code, text = run("clocks", "reset", "--json")
    assert code == 0
    assert json.loads(text)["gpus"][0]["outcome"] == "restored what a dead process left"
    assert machine.gpu(0).locked_mhz is None
    assert gpu.power_limit_w() == 400


def findings(*arguments: str) -> tuple[int, dict[str, dict[str, object]]]:
    code, text = run("doctor", "--json", "--seconds", "1", *arguments)
    return code, {finding["check"]: finding for finding in json.loads(text)["findings"]}


def test_doctor_on_a_healthy_gpu(start_machine: Start) -> None:
    machine = start_machine("v100")
    code, found = findings()
    assert code == 0
    assert {name: finding["status"] for name, finding in found.items()} == {
        "driver": "ok",
        "CUDA_VISIBLE_DEVICES": "ok",
        "permission": "ok",
        "persistence": "ok",
        "counter update period": "ok",
        "counter against power": "ok",
        "set-clock latency": "ok",
    }
    assert found["counter update period"]["value"] == pytest.approx(0.020, rel=0.3)
    assert found["counter against power"]["value"] == pytest.approx(1.0, abs=0.1)
    latency_s = found["set-clock latency"]["value"]
    assert isinstance(latency_s, float)
    assert latency_s >= 0.010
    assert machine.gpu(0).locked_mhz is None


def test_doctor_names_what_is_wrong(start_machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = start_machine(count=2)
    machine.gpu(0).set(permission_denied=1, counter_frozen=1)
    machine.gpu(1).set(counter_supported=0, set_clock_latency_s=0.15)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    code, text = run("doctor", "--json", "--seconds", "0.5")
    document = json.loads(text)
    by_gpu = {(f["check"], f["gpu"] and f["gpu"][-1]): f for f in document["findings"]}
    assert code == 1
    assert document["status"] == "error"
    assert by_gpu["permission", "0"]["status"] == "error"
    assert "zeusd" in by_gpu["permission", "0"]["remedy"]
    assert by_gpu["counter update period", "0"]["status"] == "error"
    assert by_gpu["energy counter", "1"]["status"] == "warning"
    assert by_gpu["set-clock latency", "1"]["status"] == "warning"
    assert by_gpu["CUDA_VISIBLE_DEVICES", None]["status"] == "error"
    assert ("set-clock latency", "0") not in by_gpu
    code, text = run("doctor", "--seconds", "0.5", "--no-set-clocks")
    assert code == 1
    assert "what to do" in text


def test_doctor_without_a_driver_and_with_a_lost_gpu(start_machine: Start) -> None:
    machine = start_machine()
    machine.gpu(0).fail("", code=15)
    code, found = findings()
    assert code == 1
    assert found["GPUs"]["status"] == "error"
    machine.clear_faults()
    machine.fail("nvmlSystemGetDriverVersion", code=9)
    code, found = findings()
    assert list(found) == ["driver"]
    assert "modprobe" in str(found["driver"]["remedy"])


def test_doctor_finds_the_daemon_missing(start_machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start_machine()
    monkeypatch.setenv("ZEUSD_SOCK_PATH", "/nowhere/zeusd.sock")
    code, found = findings("--no-set-clocks")
    assert code == 1
    assert found["zeusd"]["status"] == "error"


def test_profile_writes_a_profile(start_machine: Start, tmp_path: Path) -> None:
    machine = start_machine("v100", seed=4)
    machine.gpu(0).set(counter_period_s=0.02)
    output = tmp_path / "profile.csv"
    arguments = ["profile", "example", "-o", str(output), "--every", "40", "--half-width", "0.03"]
    code, text = run(*arguments)
    assert code == 0
    assert "blocking power: 6" in text
    profiles = read_profiles(output, blocking_power_w=62.0)
    assert profiles.keys == ((0, "backward"), (0, "forward"))
    assert len(profiles[0, "forward"].times_s) == 5
    started_s = time.monotonic()
    code, text = run(*arguments, "--json")  # everything is in the journal
    assert time.monotonic() - started_s < 5
    assert len(json.loads(text)["points"]) == 10


def test_profile_takes_a_mapping_from_a_module(
    start_machine: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_machine("v100")
    (tmp_path / "my_operations.py").write_text(
        "from perseus.device.simulated import Kernel, SimulatedGpu\n"
        "operations = {(1, 'forward'): lambda: SimulatedGpu(0).run(Kernel(work_s=0.02, activity=1.2)) and None}\n"
        "nothing = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    power_sweep = ["--knob", "power-limit", "--step", "100", "--max-seconds", "0.6", "--blocking-power", "60"]
    code, text = run("profile", "my_operations:operations", "-o", "power.csv", "--json", *power_sweep)
    assert code == 0
    assert [point["value"] for point in json.loads(text)["points"]] == [300, 200, 150]
    for wrong in ("my_operations", "my_operations:absent", "absent:absent", "my_operations:nothing"):
        result = CliRunner().invoke(app, ["profile", wrong, "-o", "x.csv"])
        assert result.exit_code == 2, wrong


def test_simulate_runs_a_program_on_simulated_gpus(tmp_path: Path) -> None:
    code = (
        "import pynvml as n; n.nvmlInit()\n"
        "print(n.nvmlDeviceGetCount(), n.nvmlDeviceGetName(n.nvmlDeviceGetHandleByIndex(1)))\n"
        "raise SystemExit(7)"
    )
    state = tmp_path / "machine"
    done = subprocess.run(
        [
            *RUN_APP,
            "simulate",
            "--gpu",
            "a100,h100",
            "--count",
            "2",
            "--state",
            str(state),
            "--",
            sys.executable,
            "-c",
            code,
        ],
        env=app_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "2 NVIDIA H100 80GB HBM3"
    assert done.returncode == 7
    assert state.exists()


def test_simulate_passes_signals_on_and_tells_how_it_ended() -> None:
    with subprocess.Popen(
        [*RUN_APP, "simulate", "--", sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"],
        env=app_environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM


def test_simulate_refuses_what_it_cannot_do() -> None:
    assert run("simulate", "--", "true")[0] == 0
    assert CliRunner().invoke(app, ["simulate", "--", "/nowhere/program"]).exit_code == 2
    assert CliRunner().invoke(app, ["simulate", "--gpu", "a100,b200", "--", "true"]).exit_code == 2
    assert CliRunner().invoke(app, ["simulate", "--count", "17", "--", "true"]).exit_code == 2


def test_a_killed_profile_leaves_no_clock_locked(start_machine: Start, tmp_path: Path) -> None:
    machine = start_machine()
    with subprocess.Popen(
        [*RUN_APP, "profile", "example", "-o", str(tmp_path / "profile.csv")],
        env=simulated.child_environment(machine.path, app_environment()),
    ) as process:
        await_true(lambda: machine.gpu(0).locked_mhz is not None)
        process.kill()
    await_true(lambda: machine.gpu(0).locked_mhz is None)


def await_true(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until_s, "timed out"
        time.sleep(0.005)


def test_the_bar_shows_the_time_left(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with ProfileBar(shown=True) as bar:
        bar(SweepProgress(0, 10, 0, "forward", 1410.0, float("nan")))
        bar(SweepProgress(3, 10, 0, "backward", 1395.0, 75.0))
    assert "at most 1:15 min left" in capsys.readouterr().err
    with ProfileBar(shown=False) as bar:
        bar(SweepProgress(0, 10, 0, "forward", 1410.0, 1.0))
    assert capsys.readouterr().err == ""
