"""GPUs across processes: fork, spawn, a whole program on the simulated driver, and no driver at all."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perseus.device import Gpu, SimulationError, open_all_gpus, open_gpus, simulated

Start = Callable[..., simulated.SimulatedMachine]


def lock_and_read(gpu: Gpu, mhz: int) -> int:
    gpu.lock_clocks_mhz(mhz, mhz)
    return gpu.achieved_clock_mhz()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_opens_the_driver_anew(start_machine: Start) -> None:
    machine = start_machine()
    gpu = open_gpus()[0]
    assert lock_and_read(gpu, 900) == 900
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, str(lock_and_read(gpu, 705)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"705"
    os.close(reading)
    os.close(writing)
    assert gpu.achieved_clock_mhz() == 705
    assert {call.pid for call in machine.calls()} == {os.getpid(), child}


def test_spawned_children_take_gpus_along(start_machine: Start) -> None:
    """The children find the library because they inherit the variables of a simulated program."""
    machine = start_machine(count=2)
    code = (
        "import multiprocessing, test_device_processes as t\n"
        "if __name__ == '__main__':\n"
        "    from perseus.device import open_gpus\n"
        "    with multiprocessing.get_context('spawn').Pool(2) as pool:\n"
        "        print(pool.starmap(t.lock_and_read, zip(open_gpus(), (900, 705))))\n"
    )
    environment = simulated.child_environment(machine.path, os.environ)
    environment["PYTHONPATH"] = str(Path(__file__).parent)
    path = machine.path.with_name("spawn_main.py")
    path.write_text(code)
    done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[900, 705]"
    assert machine.gpu(1).locked_mhz == (705, 705)


def test_a_gpu_is_pickled_by_its_uuid(start_machine: Start) -> None:
    start_machine(count=2, time_scale=0)
    gpu = open_gpus()[1]
    again = pickle.loads(pickle.dumps(gpu))
    assert (again.uuid, again.index, again.name) == (gpu.uuid, 1, "NVIDIA A100-SXM4-80GB")
    assert isinstance(again, Gpu)


def test_visible_devices_choose_the_physical_gpu(start_machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = start_machine(count=4, time_scale=0)
    uuids = [gpu.uuid for gpu in open_gpus()]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"2,{uuids[0][:12]}")
    visible = open_gpus()
    assert [gpu.uuid for gpu in visible] == [uuids[2], uuids[0]]
    visible[0].lock_clocks_mhz(900, 900)
    assert [machine.gpu(i).locked_mhz for i in range(4)] == [None, None, (900, 900), None]
    assert len(open_all_gpus()) == 4


def test_plain_pynvml_runs_on_it_in_a_program(start_machine: Start) -> None:
    """As `perseus simulate` does it: only environment variables, and nothing of Perseus in the program."""
    machine = start_machine("h100", count=3)
    code = (
        "import pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(2)\n"
        "print(n.nvmlDeviceGetCount(), n.nvmlDeviceGetName(h), n.nvmlDeviceGetUUID(h)[:4])\n"
        "print(n.nvmlDeviceGetPciInfo(h).busId, n.nvmlDeviceGetMemoryInfo(h).total, n.nvmlDeviceGetPowerUsage(h) > 0)\n"
        "print(n.nvmlDeviceGetComputeRunningProcesses(h), n.nvmlDeviceGetCudaComputeCapability(h))\n"
        "print(n.nvmlDeviceGetHandleByPciBusId(n.nvmlDeviceGetPciInfo(h).busId) is not None)\n"
        "n.nvmlShutdown()\n"
    )
    environment = simulated.child_environment(machine.path, os.environ)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "3 NVIDIA H100 80GB HBM3 GPU-"
    assert lines[1].startswith("00000000:12:00.0")
    assert lines[2] == "[] (9, 0)"


def test_contexts_show_as_processes_and_cost_blocking_power(start_machine: Start) -> None:
    machine = start_machine(time_scale=0)
    gpu = machine.gpu(0)
    assert gpu.get("power_w") == gpu.get("idle_power_w")
    gpu.open_context()
    assert gpu.get("power_w") == pytest.approx(83.64)
    gpu.close_context()
    assert gpu.get("power_w") == gpu.get("idle_power_w")


def test_without_a_driver_the_error_names_the_remedy() -> None:
    code = (
        "from perseus.device import open_gpus, DeviceError\n"
        "try: open_gpus()\n"
        "except DeviceError as error: print(type(error).__name__, error)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", simulated.STATE_VARIABLE)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("LibraryNotFoundError")
    assert "perseus simulate" in done.stdout


def test_a_simulated_driver_without_a_machine_is_not_loaded() -> None:
    code = (
        "from perseus.device import open_gpus, DeviceError\n"
        "try: open_gpus()\n"
        "except DeviceError as error: print(type(error).__name__)\n"
    )
    environment = simulated.child_environment("/nowhere", os.environ)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "DriverNotLoadedError"


def test_real_time_and_virtual_time_agree(start_machine: Start) -> None:
    kernel = simulated.Kernel(work_s=0.05, memory_share=0.2, activity=0.8)
    spans = []
    for scale in (0.0, 1.0, 10.0):
        machine = start_machine(time_scale=scale)
        machine.gpu(0).set(time_noise=0, power_noise=0)
        open_gpus()[0].lock_clocks_mhz(705, 705)
        before_j = machine.gpu(0).get("energy_j")
        start_s, end_s = machine.gpu(0).run(kernel)
        spans.append(end_s - start_s)
        assert machine.gpu(0).get("energy_j") - before_j >= machine.gpu(0).true_energy_j(705, kernel) * 0.999
    assert spans == pytest.approx([machine.gpu(0).true_time_s(705, kernel)] * 3, rel=1e-6)


def test_wrong_orders_to_the_simulation_are_typed_errors(start_machine: Start) -> None:
    machine = start_machine(time_scale=0)
    with pytest.raises(SimulationError, match="models are"):
        simulated.create_state(machine.path.with_name("other"), "b200")
    with pytest.raises(SimulationError, match="1 to 16"):
        simulated.create_state(machine.path.with_name("other"), count=17)
    with pytest.raises(SimulationError, match="nothing named"):
        machine.gpu(0).get("nonsense")
    with pytest.raises(SimulationError, match="set 'nonsense'"):
        machine.gpu(0).set(nonsense=1)
    with pytest.raises(SimulationError, match="open a context"):
        machine.gpu(7).open_context()
    with pytest.raises(SimulationError, match="work_s"):
        simulated.Kernel(work_s=0)
    with pytest.raises(SimulationError, match="isn't the state"):
        simulated.attach("/etc/passwd")
