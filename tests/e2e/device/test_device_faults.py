"""Every fault of the simulated driver, through the real ``pynvml``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from perseus.device import EnergyIntegratedWarning, EventReason, PowerLimitError, errors, nvml, open_gpus, simulated

Start = Callable[..., simulated.SimulatedMachine]
CODES = sorted(set(errors.NVML_ERRORS))

READS: list[tuple[str, Callable[[Any], object]]] = [
    ("nvmlDeviceGetTotalEnergyConsumption", lambda gpu: gpu.energy_j()),
    ("nvmlDeviceGetFieldValues", lambda gpu: gpu.power_w()),
    ("nvmlDeviceGetSupportedMemoryClocks", lambda gpu: gpu.supported_clocks_mhz()),
    ("nvmlDeviceGetSupportedGraphicsClocks", lambda gpu: gpu.supported_clocks_mhz()),
    ("nvmlDeviceGetClockInfo", lambda gpu: gpu.achieved_clock_mhz()),
    ("nvmlDeviceGetCurrentClocksEventReasons", lambda gpu: gpu.event_reasons()),
    ("nvmlDeviceGetPowerManagementLimit", lambda gpu: gpu.power_limit_w()),
    ("nvmlDeviceGetPowerManagementDefaultLimit", lambda gpu: gpu.default_power_limit_w()),
    ("nvmlDeviceGetPowerManagementLimitConstraints", lambda gpu: gpu.power_limit_range_w()),
    ("nvmlDeviceSetGpuLockedClocks", lambda gpu: gpu.lock_clocks_mhz(900, 900)),
    ("nvmlDeviceResetGpuLockedClocks", lambda gpu: gpu.reset_clocks()),
    ("nvmlDeviceSetPowerManagementLimit", lambda gpu: gpu.set_power_limit_w(300)),
]


@pytest.mark.parametrize("code", CODES)
def test_each_return_code_of_a_call(start_machine: Start, code: int) -> None:
    machine = start_machine(time_scale=0)
    gpu = open_gpus()[0]
    machine.gpu(0).fail("nvmlDeviceSetGpuLockedClocks", code=code, times=1)
    with pytest.raises(errors.NVML_ERRORS[code], match=f"lock to 900-900 MHz the clocks of GPU {gpu.uuid}") as caught:
        gpu.lock_clocks_mhz(900, 900)
    assert isinstance(caught.value.__cause__, pynvml.NVMLError)
    gpu.lock_clocks_mhz(900, 900)  # once only
    assert machine.gpu(0).locked_mhz == (900, 900)


@pytest.mark.parametrize(("function", "use"), READS, ids=[name for name, _ in READS])
def test_each_call_can_fail(start_machine: Start, function: str, use: Callable[[Any], object]) -> None:
    machine = start_machine(time_scale=0)
    gpu = open_gpus()[0]
    use(gpu)
    machine.gpu(0).fail(function, code=15, times=1)
    with pytest.raises(errors.GpuLostError):
        use(gpu)
    use(gpu)


@pytest.mark.parametrize("code", [9, 18, 27])
def test_initialisation_can_fail(start_machine: Start, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    machine = start_machine(time_scale=0)
    monkeypatch.setattr(nvml, "_open_pid", None)
    machine.fail("nvmlInit", code=code, times=1)
    with pytest.raises(errors.NVML_ERRORS[code], match="initialise NVML"):
        open_gpus()
    assert len(open_gpus()) == 1


def test_a_lost_gpu_is_lost_alone(start_machine: Start) -> None:
    machine = start_machine(count=2, time_scale=0)
    lost, present = open_gpus()
    machine.gpu(0).set(lost=1)
    with pytest.raises(errors.GpuLostError, match="Xid 79"):
        lost.energy_j()
    present.energy_j()
    with pytest.raises(errors.SimulationError):
        machine.gpu(0).launch(simulated.Kernel(work_s=0.1))


def test_permission_denied_reads_but_does_not_set(start_machine: Start) -> None:
    machine = start_machine(time_scale=0)
    machine.gpu(0).set(permission_denied=1)
    gpu = open_gpus()[0]
    gpu.energy_j()
    for change in (lambda: gpu.lock_clocks_mhz(900, 900), gpu.reset_clocks, lambda: gpu.set_power_limit_w(300)):
        with pytest.raises(errors.NoPermissionError, match=r"CAP_SYS_ADMIN.*zeusd.*tried as"):
            change()
    assert machine.gpu(0).locked_mhz is None


def test_a_counter_that_starts_again_never_lets_energy_fall(start_machine: Start) -> None:
    machine = start_machine(time_scale=0)
    gpu = open_gpus()[0]
    machine.sleep_s(10)
    before_j = gpu.energy_j()
    machine.gpu(0).reload_driver()
    after_j = gpu.energy_j()
    machine.sleep_s(1)
    assert before_j > 500
    assert after_j >= before_j
    assert gpu.energy_j() > after_j
    assert gpu.counter_resets == 1


def test_a_frozen_counter_stands_still(start_machine: Start) -> None:
    machine = start_machine(time_scale=0)
    gpu = open_gpus()[0]
    machine.sleep_s(1)
    machine.gpu(0).set(counter_frozen=1)
    frozen_j = gpu.energy_j()
    machine.sleep_s(5)
    assert gpu.energy_j() == frozen_j
    machine.gpu(0).set(counter_frozen=0)
    assert gpu.energy_j() > frozen_j + 200


def test_a_clock_that_is_not_held_shows_its_reason(start_machine: Start) -> None:
    machine = start_machine(time_scale=0)
    gpu = open_gpus()[0]
    gpu.lock_clocks_mhz(1410, 1410)
    machine.gpu(0).set(cap_mhz=1000, cap_reason=float(EventReason.HARDWARE_THERMAL))
    assert gpu.achieved_clock_mhz() == 990
    assert gpu.event_reasons().slowing == EventReason.HARDWARE_THERMAL
    assert "hardware thermal" in gpu.event_reasons().describe()


def test_throttling_above_the_power_limit(start_machine: Start) -> None:
    machine = start_machine(time_scale=0)
    gpu = open_gpus()[0]
    gpu.set_power_limit_w(200)
    machine.gpu(0).launch(simulated.Kernel(work_s=1.0, activity=1.0))
    machine.sleep_s(0.2)
    assert EventReason.POWER_CAP in gpu.event_reasons()
    assert gpu.achieved_clock_mhz() < 1410
    assert gpu.power_w() < 205


def test_a_power_limit_out_of_range_never_reaches_the_driver(start_machine: Start) -> None:
    machine = start_machine("v100", time_scale=0)
    gpu = open_gpus()[0]
    for limit_w in (149.999, 0, 300.001, -5, float("nan")):
        with pytest.raises(PowerLimitError, match="150 to 300 W"):
            gpu.set_power_limit_w(limit_w)
    gpu.set_power_limit_w(150)
    assert machine.gpu(0).get("lowest_limit_asked_w") == 150


def test_no_counter_integrates_and_says_so_once(start_machine: Start) -> None:
    machine = start_machine(time_scale=1)
    machine.gpu(0).set(counter_supported=0)
    gpu = open_gpus()[0]
    with pytest.warns(EnergyIntegratedWarning, match="no energy counter"):
        first_j = gpu.energy_j()
    first_s = machine.now_s()
    machine.sleep_s(0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        energy_j = gpu.energy_j() - first_j
        open_gpus()[0].energy_j()
    assert not gpu.has_energy_counter
    assert energy_j == pytest.approx(62.0 * (machine.now_s() - first_s), rel=0.25)


def test_faults_skip_and_end(start_machine: Start) -> None:
    machine = start_machine(time_scale=0)
    gpu = open_gpus()[0]
    machine.gpu(0).fail("nvmlDeviceGetClockInfo", code=999, skip=2, times=2)
    outcomes = []
    for _ in range(6):
        try:
            gpu.achieved_clock_mhz()
            outcomes.append(True)
        except errors.UnknownNvmlError:
            outcomes.append(False)
    assert outcomes == [True, True, False, False, True, True]
