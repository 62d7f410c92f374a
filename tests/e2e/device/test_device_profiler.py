"""Profiles measured on the simulated driver, against the truth of its model."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from perseus import profiler
from perseus.actuator import read_lock_records
from perseus.device import ClockNotHeldWarning, MeasurementError, open_gpus, simulated
from perseus.profiles import read_profiles

Start = Callable[..., simulated.SimulatedMachine]
FORWARD = simulated.Kernel(work_s=0.03, memory_share=0.1, activity=0.6)
BACKWARD = simulated.Kernel(work_s=0.06, memory_share=0.15, activity=0.62)
KERNELS = {"forward": FORWARD, "backward": BACKWARD}
BAR = 0.015


def errors_of(points: tuple[profiler.MeasuredPoint, ...], gpu: simulated.SimulatedGpu) -> tuple[float, float]:
    """Return the largest relative errors of time and energy."""
    times = [abs(p.time_s / gpu.true_time_s(p.value, KERNELS[p.kind]) - 1) for p in points]
    energies = [abs(p.energy_j / gpu.true_energy_j(p.value, KERNELS[p.kind]) - 1) for p in points]
    return max(times), max(energies)


def virtual_operations(
    instruments: simulated.SimulatedInstruments,
) -> dict[tuple[int, str], Callable[[], float]]:
    return {(0, kind): lambda kernel=kernel: instruments.run(0, kernel) for kind, kernel in KERNELS.items()}


@pytest.mark.parametrize("model", simulated.MODELS)
def test_a_sweep_recovers_the_model(start_machine: Start, model: str) -> None:
    machine = start_machine(model, time_scale=0, seed=11)
    machine.gpu(0).open_context()
    instruments = simulated.SimulatedInstruments(machine)
    operations = virtual_operations(instruments)
    profile = profiler.sweep(open_gpus()[0], operations, instruments=instruments)
    time_error, energy_error = errors_of(profile.points, machine.gpu(0))
    assert time_error <= BAR
    assert energy_error <= BAR
    assert profile.blocking_power_w == pytest.approx(machine.gpu(0).get("blocking_power_w"), rel=0.01)
    assert all(point.accepted and point.held for point in profile.points)
    assert {point.kind for point in profile.points} == set(KERNELS)
    assert profile.knob == "frequency"
    assert machine.gpu(0).locked_mhz is None
    assert read_lock_records() == []


def test_a_sweep_stops_five_rises_after_the_least_energy(start_machine: Start) -> None:
    machine = start_machine(time_scale=0)
    machine.gpu(0).set(time_noise=0, power_noise=0)
    instruments = simulated.SimulatedInstruments(machine)
    gpu = open_gpus()[0]
    profile = profiler.sweep(gpu, {(0, "forward"): lambda: instruments.run(0, FORWARD)}, instruments=instruments)
    energies = [point.energy_j for point in profile.points]
    clocks = [point.value for point in profile.points]
    assert clocks == sorted(clocks, reverse=True)
    assert clocks[-1] > gpu.supported_clocks_mhz()[-1]
    least = energies.index(min(energies))
    truth = [machine.gpu(0).true_energy_j(mhz, FORWARD) for mhz in gpu.supported_clocks_mhz()]
    assert len(energies) - 1 - least >= 5
    assert abs(least - truth.index(min(truth))) <= 3
    assert energies[-6:] == sorted(energies[-6:])


def test_real_time(start_machine: Start) -> None:
    """The default instruments: threads, a native watch, and the host's clock."""
    machine = start_machine(seed=5)
    machine.gpu(0).open_context()
    gpu = machine.gpu(0)

    def operation(kernel: simulated.Kernel) -> float:
        start_s, end_s = gpu.run(kernel)  # the device's own times, as CUDA events give them
        return end_s - start_s

    profile = profiler.sweep(
        open_gpus()[0],
        {(0, kind): lambda kernel=kernel: operation(kernel) for kind, kernel in KERNELS.items()},
        knob=profiler.ClockKnob([1410, 1050, 705]),
        precision=profiler.Precision(most_s=6.0),
    )
    time_error, energy_error = errors_of(profile.points, gpu)
    assert len(profile.points) == 6
    assert time_error <= BAR
    assert energy_error <= BAR
    assert gpu.locked_mhz is None


def test_host_times_count_when_the_operation_knows_none(start_machine: Start) -> None:
    machine = start_machine(time_scale=0)
    instruments = simulated.SimulatedInstruments(machine)

    def operation() -> None:
        instruments.run(0, FORWARD)

    profile = profiler.sweep(
        open_gpus()[0], {(3, "forward"): operation}, knob=profiler.ClockKnob([900]), instruments=instruments
    )
    assert profile.points[0].stage == 3
    assert max(errors_of(profile.points, machine.gpu(0))) <= BAR


def test_an_interrupted_sweep_goes_on(start_machine: Start, tmp_path: Path) -> None:
    machine = start_machine(time_scale=0)
    instruments = simulated.SimulatedInstruments(machine)
    gpu = open_gpus()[0]
    knob = profiler.ClockKnob([1410, 1200, 1005, 810])
    journal = tmp_path / "sweep.journal"
    seen: list[profiler.SweepProgress] = []

    def interrupt(progress: profiler.SweepProgress) -> None:
        seen.append(progress)
        if progress.done == 5:
            raise KeyboardInterrupt

    operations = virtual_operations(instruments)
    with pytest.raises(KeyboardInterrupt):
        profiler.sweep(gpu, operations, knob=knob, journal=journal, progress=interrupt, instruments=instruments)
    assert machine.gpu(0).locked_mhz is None
    assert math.isnan(seen[0].left_s)
    assert seen[-1].left_s > 0
    with journal.open("a") as file:
        file.write('{"point": {"stage"')  # the line that was being written when the machine went down
    before = journal.read_text().count("\n")
    seen.clear()
    profile = profiler.sweep(gpu, operations, knob=knob, journal=journal, progress=seen.append, instruments=instruments)
    assert [(p.value, p.kind) for p in seen] == [(1005, "backward"), (810, "forward"), (810, "backward")]
    assert len(profile.points) == 8
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert len(lines) == before + 3
    with pytest.raises(MeasurementError, match="another sweep"):
        profiler.sweep(gpu, {(0, "other"): lambda: None}, journal=journal, instruments=instruments)


def test_points_whose_clock_is_not_held_are_flagged_and_left_out(start_machine: Start) -> None:
    machine = start_machine(time_scale=0)
    instruments = simulated.SimulatedInstruments(machine)
    hungry = simulated.Kernel(work_s=0.05, memory_share=0.1, activity=1.0)
    gpu = open_gpus()[0]
    profile = profiler.sweep(
        gpu,
        {(0, "forward"): lambda: instruments.run(0, hungry)},
        knob=profiler.ClockKnob([1410, 1395, 1005, 900]),
        instruments=instruments,
    )
    held = {point.value: point.held for point in profile.points}
    assert held == {1410: False, 1395: False, 1005: True, 900: True}
    assert profile.points[0].reasons == "power cap"
    assert profile.points[0].achieved_mhz < 1395
    with pytest.warns(ClockNotHeldWarning, match="2 of 4 points"):
        columns = profile.columns()
    assert columns["frequency"] == [1005, 900]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert profile.columns(keep_not_held=True)["frequency"] == [1410, 1395, 1005, 900]


def test_a_thermal_cap_is_flagged_with_its_reason(start_machine: Start) -> None:
    machine = start_machine(time_scale=0)
    machine.gpu(0).set(cap_mhz=1000)
    instruments = simulated.SimulatedInstruments(machine)
    profile = profiler.sweep(
        open_gpus()[0],
        {(0, "forward"): lambda: instruments.run(0, FORWARD)},
        knob=profiler.ClockKnob([1200, 900]),
        instruments=instruments,
    )
    assert [(p.held, p.reasons) for p in profile.points] == [(False, "thermal"), (True, "")]


@pytest.mark.parametrize("model", simulated.MODELS)
def test_a_power_limit_sweep_stays_within_the_range_and_does_not_stop_early(start_machine: Start, model: str) -> None:
    machine = start_machine(model, time_scale=0)
    instruments = simulated.SimulatedInstruments(machine)
    hungry = simulated.Kernel(work_s=0.05, memory_share=0.1, activity=1.1)
    gpu = open_gpus()[0]
    low_w, high_w = gpu.power_limit_range_w()
    profile = profiler.sweep(
        gpu,
        {(0, "forward"): lambda: instruments.run(0, hungry)},
        knob=profiler.PowerLimitKnob(step_w=35),
        instruments=instruments,
    )
    limits = [point.value for point in profile.points]
    assert (limits[0], limits[-1]) == (high_w, low_w)
    assert limits == sorted(limits, reverse=True)
    assert machine.gpu(0).get("lowest_limit_asked_w") == low_w
    assert all(call.code == 0 for call in machine.calls())
    assert gpu.power_limit_w() == gpu.default_power_limit_w()
    times = [point.time_s for point in profile.points]
    assert times[-1] > times[0]


def test_a_counter_that_stands_still_is_an_error(start_machine: Start) -> None:
    machine = start_machine(time_scale=0)
    machine.gpu(0).set(counter_frozen=1)
    instruments = simulated.SimulatedInstruments(machine)
    operations = virtual_operations(instruments)
    with pytest.raises(MeasurementError, match="stands still"):
        profiler.sweep(open_gpus()[0], operations, instruments=instruments)
    with pytest.raises(MeasurementError, match="stands still"):
        profiler.sweep(open_gpus()[0], operations, blocking_power_w=80, instruments=instruments)
    assert machine.gpu(0).locked_mhz is None


def test_a_driver_reload_within_a_measurement_is_an_error(start_machine: Start) -> None:
    machine = start_machine(time_scale=0)
    instruments = simulated.SimulatedInstruments(machine)
    runs = iter(range(1000))

    def operation() -> float:
        if next(runs) == 5:
            machine.gpu(0).reload_driver()
        return instruments.run(0, FORWARD)

    with pytest.raises(MeasurementError, match="started again"):
        profiler.sweep(open_gpus()[0], {(0, "forward"): operation}, blocking_power_w=80, instruments=instruments)


def test_wrong_requests(start_machine: Start) -> None:
    start_machine(time_scale=0)
    gpu = open_gpus()[0]
    with pytest.raises(MeasurementError, match="no operation"):
        profiler.sweep(gpu, {})
    with pytest.raises(MeasurementError, match=r"doesn't support \[1234\] MHz"):
        profiler.sweep(gpu, {(0, "forward"): lambda: None}, knob=profiler.ClockKnob([1234]))
    with pytest.raises(MeasurementError, match="step_w"):
        profiler.PowerLimitKnob(step_w=0)


def train(
    training: profiler.InTrainingProfiler,
    run: Callable[[simulated.Kernel], tuple[float, float]],
    wait: Callable[[float], None],
    iterations: int,
) -> None:
    """Iterations of four microbatches whose operations wait for other stages now and then."""
    for _ in range(iterations):
        if training.finished:
            return
        training.begin_iteration()
        for kind in ("forward", "forward", "backward", "forward", "backward", "forward", "backward", "backward"):
            start_s, end_s = run(KERNELS[kind])
            training.record(2, kind, start_s, end_s)
            if kind == "backward":
                wait(0.017)
        training.end_iteration()


@pytest.mark.parametrize("model", simulated.MODELS)
def test_in_training(start_machine: Start, model: str) -> None:
    machine = start_machine(model, time_scale=0, seed=8)
    machine.gpu(0).open_context()
    instruments = simulated.SimulatedInstruments(machine)

    def run(kernel: simulated.Kernel) -> tuple[float, float]:
        duration_s = instruments.run(0, kernel)
        return instruments.now_s() - duration_s, instruments.now_s()

    training = profiler.InTrainingProfiler(open_gpus()[0], instruments=instruments, knob=profiler.ClockKnob(every=4))
    assert training.value == open_gpus()[0].supported_clocks_mhz()[0]
    train(training, run, instruments.sleep_s, 5000)
    assert training.finished
    assert training.value is None
    profile = training.result()
    time_error, energy_error = errors_of(profile.points, machine.gpu(0))
    assert time_error <= BAR
    assert energy_error <= BAR
    assert profile.blocking_power_w == pytest.approx(machine.gpu(0).get("blocking_power_w"), rel=0.03)
    assert {(p.stage, p.kind) for p in profile.points} == {(2, "forward"), (2, "backward")}
    assert machine.gpu(0).locked_mhz is None


def test_in_training_in_real_time(start_machine: Start) -> None:
    machine = start_machine(seed=8)
    machine.gpu(0).set(counter_period_s=0.02)
    machine.gpu(0).open_context()

    def run(kernel: simulated.Kernel) -> tuple[float, float]:
        offset_s = time.monotonic() - machine.now_s()
        start_s, end_s = machine.gpu(0).run(kernel)
        return start_s + offset_s, end_s + offset_s

    training = profiler.InTrainingProfiler(
        open_gpus()[0], knob=profiler.ClockKnob([1410, 1005]), least_iterations=4, most_iterations=12
    )
    train(training, run, time.sleep, 100)
    assert training.finished
    profile = training.result()
    assert len(profile.points) == 4
    time_error, energy_error = errors_of(profile.points, machine.gpu(0))
    assert time_error <= BAR
    assert energy_error <= BAR
    assert machine.gpu(0).locked_mhz is None


def test_in_training_leaves_out_marked_kinds_and_goes_on_later(start_machine: Start, tmp_path: Path) -> None:
    machine = start_machine(time_scale=0)
    instruments = simulated.SimulatedInstruments(machine)
    gpu, journal = open_gpus()[0], tmp_path / "journal"

    def iterate(training: profiler.InTrainingProfiler) -> None:
        training.begin_iteration()
        for kind, kernel in (("forward", FORWARD), ("_last_backward", BACKWARD), ("forward", FORWARD)):
            duration_s = instruments.run(0, kernel)
            training.record(0, kind, instruments.now_s() - duration_s, instruments.now_s())
        training.end_iteration()

    def start() -> profiler.InTrainingProfiler:
        return profiler.InTrainingProfiler(
            gpu,
            knob=profiler.ClockKnob([1410, 1005]),
            journal=journal,
            instruments=instruments,
            blocking_power_w=80.0,
        )

    first = start()
    while first.value == 1410:
        iterate(first)
    assert machine.gpu(0).locked_mhz is not None
    first.close()
    assert machine.gpu(0).locked_mhz is None
    again = start()
    assert again.value == 1005
    while not again.finished:
        iterate(again)
    again.begin_iteration()
    assert not again.end_iteration()
    points = again.result().points
    assert [(p.kind, p.value) for p in points] == [("forward", 1410), ("forward", 1005)]
    assert max(errors_of(points, machine.gpu(0))) <= BAR


def test_in_training_moves_on_when_nothing_can_be_told(start_machine: Start) -> None:
    """Iterations without operations must not hold a training at a low clock for ever."""
    machine = start_machine(time_scale=0)
    instruments = simulated.SimulatedInstruments(machine)
    training = profiler.InTrainingProfiler(
        open_gpus()[0], knob=profiler.ClockKnob([900, 705]), most_iterations=3, instruments=instruments
    )
    changes = 0
    for _ in range(6):
        training.begin_iteration()
        instruments.sleep_s(0.2)
        changes += training.end_iteration()
    assert changes == 2
    assert training.finished
    assert training.result().points == ()
    assert machine.gpu(0).locked_mhz is None


def measured(stage: int, blocking_power_w: float, knob: str = "frequency") -> profiler.MeasuredProfile:
    point = profiler.MeasuredPoint(
        stage=stage, kind="forward", value=1005.0, time_s=0.25, energy_j=50.5, time_half_width=0.001,
        energy_half_width=0.002, windows=9, accepted=True, held=True, achieved_mhz=1005.0, reasons="",
    )  # fmt: skip
    return profiler.MeasuredProfile(
        knob=knob, gpu_uuid="GPU-1", gpu_name="A100", blocking_power_w=blocking_power_w, points=(point,)
    )


def test_a_csv_of_the_points(tmp_path: Path) -> None:
    profile = measured(0, 80.0)
    profile.to_csv(tmp_path / "profile.csv")
    assert (
        tmp_path / "profile.csv"
    ).read_text() == "stage,instruction,frequency,time,energy\n0,forward,1005,0.25,50.5\n"
    assert list(tmp_path.iterdir()) == [tmp_path / "profile.csv"]
    for profiles in (profile.profiles(), read_profiles(tmp_path / "profile.csv", blocking_power_w=80.0)):
        assert profiles.keys == ((0, "forward"),)
        assert profiles.blocking_power_w == {0: 80.0}
        assert profiles[0, "forward"].energies_j[0] == 50.5


def test_what_the_ranks_measured_makes_one_profile() -> None:
    profiles = profiler.merge_profiles([measured(1, 75.0), measured(0, 80.0)])
    assert profiles.keys == ((0, "forward"), (1, "forward"))
    assert profiles.blocking_power_w == {0: 80.0, 1: 75.0}
    for parts in ([], [measured(0, 80.0), measured(1, 80.0, "power_limit")]):
        with pytest.raises(MeasurementError, match="one knob"):
            profiler.merge_profiles(parts)
