"""Setting GPUs through zeusd, where this program may not."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from zeusd_server import ZeusdServer, serve

from perseus.actuator import Actuator, read_lock_records
from perseus.device import NoPermissionError, PowerLimitError, ZeusdError, errors, open_gpus, simulated

Start = Callable[..., simulated.SimulatedMachine]


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], ZeusdServer]]:
    """Start the daemon (after the machine); Unix sockets want short paths."""
    with tempfile.TemporaryDirectory(prefix="zeusd") as folder:
        path = Path(folder) / "zeusd.sock"
        context = serve(path)
        started: list[ZeusdServer] = []

        def start() -> ZeusdServer:
            started.append(context.__enter__())
            monkeypatch.setenv("ZEUSD_SOCK_PATH", str(path))
            return started[0]

        yield start
        if started:
            context.__exit__(None, None, None)


def test_settings_go_through_the_daemon_to_the_right_gpu(
    start_machine: Start, daemon: Callable[[], ZeusdServer]
) -> None:
    machine = start_machine(count=3)
    server = daemon()
    gpu = open_gpus()[0]
    gpu.lock_clocks_mhz(705, 900)
    gpu.set_power_limit_w(250)
    assert [machine.gpu(i).locked_mhz for i in range(3)] == [(705, 900), None, None]
    assert gpu.power_limit_w() == 250
    gpu.reset_clocks()
    assert machine.gpu(0).locked_mhz is None
    assert server.requests == [
        "GET /discover",  # one for each GPU opened
        "GET /discover",
        "GET /discover",
        "POST /gpu/set_gpu_locked_clocks?gpu_ids=2&min_clock_mhz=705&max_clock_mhz=900&block=true",
        "POST /gpu/set_power_limit?gpu_ids=2&power_limit_mw=250000&block=true",
        "POST /gpu/reset_gpu_locked_clocks?gpu_ids=2&block=true",
    ]


def test_reading_needs_no_daemon(start_machine: Start, daemon: Callable[[], ZeusdServer]) -> None:
    start_machine()
    server = daemon()
    gpu = open_gpus()[0]
    asked = len(server.requests)
    assert gpu.energy_j() >= 0
    assert gpu.supported_clocks_mhz()[0] == 1410
    assert len(server.requests) == asked
    with pytest.raises(PowerLimitError):
        gpu.set_power_limit_w(1)
    assert len(server.requests) == asked


def test_an_older_daemon_numbers_as_nvml_does(start_machine: Start, daemon: Callable[[], ZeusdServer]) -> None:
    machine = start_machine(count=2)
    server = daemon()
    server.old_discovery = True
    open_gpus()[1].lock_clocks_mhz(900, 900)
    assert machine.gpu(1).locked_mhz == (900, 900)
    server.hidden = {1}
    with pytest.raises(ZeusdError, match="doesn't list GPU 1"):
        open_gpus()


def test_a_gpu_that_the_daemon_does_not_see_is_never_mixed_up(
    start_machine: Start, daemon: Callable[[], ZeusdServer]
) -> None:
    start_machine(count=2)
    daemon().hidden = {0}
    with pytest.raises(ZeusdError, match=r"0000:10:00\.0"):
        open_gpus()


def test_answers_become_typed_errors(
    start_machine: Start, daemon: Callable[[], ZeusdServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = start_machine()
    server = daemon()
    gpu = open_gpus()[0]
    machine.gpu(0).set(permission_denied=1)
    with pytest.raises(NoPermissionError, match="zeusd says"):
        gpu.reset_clocks()
    machine.gpu(0).set(permission_denied=0)
    with pytest.raises(errors.InvalidArgumentError):
        gpu.lock_clocks_mhz(900, 705)
    machine.gpu(0).fail("nvmlDeviceResetGpuLockedClocks", code=15, times=1)
    with pytest.raises(ZeusdError, match="daemon's log"):
        gpu.reset_clocks()
    server.control = False
    with pytest.raises(errors.NotSupportedError, match="gpu-control"):
        gpu.reset_clocks()
    server.control = True
    server.token = "secret"
    with pytest.raises(NoPermissionError):
        gpu.reset_clocks()
    monkeypatch.setenv("ZEUSD_TOKEN", "secret")
    again = pickle.loads(pickle.dumps(open_gpus()[0]))
    again.reset_clocks()


def test_no_daemon_there(start_machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start_machine()
    monkeypatch.setenv("ZEUSD_SOCK_PATH", "/nowhere/zeusd.sock")
    with pytest.raises(ZeusdError, match=r"no answer at /nowhere/zeusd\.sock"):
        open_gpus()
    assert len(open_gpus("nvml")) == 1
    monkeypatch.delenv("ZEUSD_SOCK_PATH")
    with pytest.raises(ZeusdError, match="set ZEUSD_SOCK_PATH"):
        open_gpus("zeusd")


def test_the_actuator_and_its_guardian_use_the_daemon(
    start_machine: Start, daemon: Callable[[], ZeusdServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = start_machine(count=2)
    server = daemon()
    server.token = "secret"
    monkeypatch.setenv("ZEUSD_TOKEN", "secret")
    with Actuator(open_gpus()[1]) as actuator:
        actuator.request(705)
        assert actuator.drain()
        assert machine.gpu(1).locked_mhz == (705, 705)
        assert machine.gpu(0).locked_mhz is None
        assert read_lock_records()[0].zeusd_socket == str(server.path)
        assert [record.held for record in actuator.take_records()] == [True]
    assert machine.gpu(1).locked_mhz is None
    assert server.requests[-1] == "POST /gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_trainer_without_privileges_is_restored_too(
    start_machine: Start, daemon: Callable[[], ZeusdServer], number: signal.Signals
) -> None:
    machine = start_machine()
    daemon()
    environment = simulated.child_environment(machine.path, os.environ)
    environment["PERSEUS_SIMULATED_GPU_UNPRIVILEGED"] = "1"
    trainer = Path(__file__).with_name("trainer_main.py")
    with subprocess.Popen(
        [sys.executable, str(trainer), "wait", "0"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert machine.gpu(0).locked_mhz == (705, 705)
        assert {call.pid for call in machine.calls()} == {os.getpid()}  # all through the daemon
        process.send_signal(number)
    until_s = time.monotonic() + 60
    # The record goes last: the guardian restores twice, against a late request of the dead trainer.
    while machine.gpu(0).locked_mhz or machine.gpu(0).get("power_limit_w") != 400 or read_lock_records():
        assert time.monotonic() < until_s
        time.sleep(0.005)


def test_without_the_daemon_the_same_trainer_says_what_to_do(start_machine: Start) -> None:
    machine = start_machine()
    environment = simulated.child_environment(machine.path, os.environ)
    environment["PERSEUS_SIMULATED_GPU_UNPRIVILEGED"] = "1"
    trainer = Path(__file__).with_name("trainer_main.py")
    done = subprocess.run(
        [sys.executable, str(trainer), "wait", "0"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "NoPermissionError" in done.stderr
    assert "ZEUSD_SOCK_PATH is not set" in done.stderr
    assert machine.gpu(0).locked_mhz is None
