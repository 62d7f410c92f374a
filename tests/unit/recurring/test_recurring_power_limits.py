import logging
import math

import pytest
from fake_gpu import Clock, FakeGpu
from thread_ranks import ThreadGroup, ThreadRank

from perseus.recurring.errors import JobError
from perseus.recurring.gpus import GpuGroup, limits_between_w
from perseus.recurring.power_limits import Measurement, PowerLimitSweep, SweepTiming
from perseus.recurring.ranks import Ranks, SingleRank

LIMITS_W = (250.0, 225.0, 200.0, 175.0, 150.0, 125.0, 100.0)


def sweep_of(
    gpus: list[FakeGpu], clock: Clock, found: list[Measurement], ranks: Ranks | None = None, **timing: float
) -> PowerLimitSweep:
    return PowerLimitSweep(
        GpuGroup(gpus),
        ranks or SingleRank(),
        LIMITS_W,
        timing=SweepTiming(**timing),  # type: ignore[arg-type]
        on_measured=found.append,
        clock=clock,
    )


def train(sweep: PowerLimitSweep, gpu: FakeGpu, steps: int = 100_000) -> int:
    """Train until the sweep is done or ``steps`` are; return their number."""
    for done in range(steps):
        gpu.step()
        if sweep.step():
            return done + 1
    return steps


@pytest.mark.parametrize("tick_s", [0.02, 0.1])
def test_finds_power_and_speed_of_every_limit(tick_s: float) -> None:
    clock = Clock()
    gpu = FakeGpu(clock, tick_s=tick_s, noise=0.05)
    found: list[Measurement] = []
    train(sweep_of([gpu], clock, found), gpu)
    assert [m.point.limit_w for m in found] == list(LIMITS_W)
    for measurement in found:
        point = measurement.point
        assert point.average_power_w == pytest.approx(gpu.power_w(point.limit_w), rel=0.015)
        assert 1.0 / point.rate_per_s == pytest.approx(gpu.step_s(point.limit_w), rel=0.015)
        assert measurement.half_width <= 0.01


def test_intervals_hold_what_they_promise() -> None:
    """The energy per step lies within its 95 % interval in nearly all of 140 measurements."""
    outside = 0
    for seed in range(20):
        clock = Clock()
        gpu = FakeGpu(clock, uuid=f"GPU-{seed}", noise=0.2)
        clock.now_s = 0.0137 * seed
        found: list[Measurement] = []
        train(sweep_of([gpu], clock, found), gpu)
        for limit_w, measurement in zip(LIMITS_W, found, strict=True):
            truth_j = gpu.power_w(limit_w) * gpu.step_s(limit_w)
            measured_j = measurement.point.average_power_w / measurement.point.rate_per_s
            outside += abs(measured_j / truth_j - 1.0) > measurement.half_width
    assert outside <= 14  # 5 % are 7


def test_windows_span_epochs_and_leave_evaluation_out() -> None:
    clock = Clock()
    gpu = FakeGpu(clock)
    found: list[Measurement] = []
    sweep = sweep_of([gpu], clock, found)
    epochs = 0
    while not sweep.done:
        train(sweep, gpu, steps=12)  # about a second, far less than a window
        sweep.pause()
        gpu.work(3.0, power_w=70.0)
        clock.now_s += 3.0
        epochs += 1
    assert epochs > 20
    for measurement in found:
        point = measurement.point
        assert point.average_power_w == pytest.approx(gpu.power_w(point.limit_w), rel=0.02)
        assert 1.0 / point.rate_per_s == pytest.approx(gpu.step_s(point.limit_w), rel=1e-6)


def test_long_steps_end_by_time() -> None:
    clock = Clock()
    gpu = FakeGpu(clock)
    found: list[Measurement] = []
    sweep = sweep_of([gpu], clock, found, max_window_s=5.0)
    for _ in range(60):
        for _ in range(25):
            gpu.step()
        sweep.step()
    assert len(found) == len(LIMITS_W)
    assert any(m.half_width > 0.01 for m in found)


@pytest.mark.parametrize("ranks", [1, 2])
def test_steps_longer_than_a_window(ranks: int) -> None:
    """Steps of 40 s: each limit takes a few of them, on several ranks too."""

    def work(rank: ThreadRank) -> list[Measurement]:
        clock = Clock()
        gpu = FakeGpu(clock, uuid=f"GPU-{rank.rank}")
        found: list[Measurement] = []
        sweep = sweep_of([gpu], clock, found, rank)
        for _ in range(5 * len(LIMITS_W)):
            gpu.work(500 * gpu.step_s())
            clock.now_s += 500 * gpu.step_s()
            sweep.step()
        assert sweep.done
        assert not sweep.failed
        return found

    for found in ThreadGroup(ranks).run(work):
        assert [m.point.limit_w for m in found] == list(LIMITS_W)
        truth_w = ranks * FakeGpu(Clock()).power_w(100.0)
        assert found[-1].point.average_power_w == pytest.approx(truth_w, rel=0.01)


@pytest.mark.parametrize(
    "change", [{"settle_s": -1.0}, {"precision": 0.0}, {"max_window_s": math.nan}, {"min_steps": 1}, {"check_every": 0}]
)
def test_timing_is_checked(change: dict[str, float]) -> None:
    with pytest.raises(JobError, match="cannot be kept"):
        SweepTiming(**change)  # type: ignore[arg-type]


@pytest.mark.parametrize("hidden", [False, True])
def test_a_counter_reset_does_not_spoil_a_window(hidden: bool) -> None:
    clock = Clock()
    gpu = FakeGpu(clock)
    found: list[Measurement] = []
    sweep = sweep_of([gpu], clock, found)
    train(sweep, gpu, steps=40)
    gpu.reset_counter(hidden=hidden)
    train(sweep, gpu)
    assert found[0].point.average_power_w == pytest.approx(gpu.power_w(250.0), rel=0.02)


@pytest.mark.parametrize("method", ["set_power_limit_w", "energy_j"])
@pytest.mark.parametrize("after", [0, 50, 300])
def test_a_fault_ends_the_sweep_once_and_restores(method: str, after: int, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    gpu = FakeGpu(clock)
    found: list[Measurement] = []
    gpus = GpuGroup([gpu])
    sweep = PowerLimitSweep(gpus, SingleRank(), LIMITS_W, on_measured=found.append, clock=clock)
    train(sweep, gpu, steps=after)
    gpu.fails[method] = PermissionError("not root")
    with caplog.at_level(logging.WARNING):
        train(sweep, gpu, steps=1000)
        train(sweep, gpu, steps=1000)
    assert sweep.done
    assert sweep.failed
    del gpu.fails[method]
    if method == "energy_j":
        gpus.restore()
        assert gpu.limit_w == 250.0
    assert sum("not root" in r.message for r in caplog.records) <= 2


def test_a_frozen_counter_is_given_up() -> None:
    clock = Clock()
    gpu = FakeGpu(clock, tick_s=1e9)
    sweep = sweep_of([gpu], clock, [], max_window_s=10.0)
    steps = train(sweep, gpu)
    assert sweep.failed
    assert steps < 200


def test_no_gpu_nothing_to_do() -> None:
    sweep = PowerLimitSweep(GpuGroup([]), SingleRank(), ())
    assert sweep.done
    assert sweep.step()


def test_ranks_move_together_and_sum_power() -> None:
    """Two ranks with unlike GPUs: powers add up, the slower step counts, a fault of one stops both."""

    def work(rank: ThreadRank) -> list[Measurement]:
        clock = Clock()
        gpu = FakeGpu(clock, uuid=f"GPU-{rank.rank}", static_w=60.0 + 20.0 * rank.rank, noise=0.02)
        found: list[Measurement] = []
        sweep = sweep_of([gpu], clock, found, rank)
        train(sweep, gpu)
        assert gpu.limits_set_w == list(LIMITS_W)
        return found

    first, second = ThreadGroup(2).run(work)
    assert first == second
    for measurement in first:
        truth_w = sum(FakeGpu(Clock(), static_w=60.0 + 20.0 * k).power_w(measurement.point.limit_w) for k in (0, 1))
        assert measurement.point.average_power_w == pytest.approx(truth_w, rel=0.02)
        slow_s = FakeGpu(Clock(), static_w=80.0).step_s(measurement.point.limit_w)
        assert 1.0 / measurement.point.rate_per_s == pytest.approx(slow_s, rel=0.02)


def test_a_fault_on_one_rank_stops_all() -> None:
    def work(rank: ThreadRank) -> bool:
        clock = Clock()
        gpu = FakeGpu(clock, uuid=f"GPU-{rank.rank}")
        if rank.rank == 1:
            gpu.fails["set_power_limit_w"] = PermissionError("not root")
        sweep = sweep_of([gpu], clock, [], rank)
        return train(sweep, gpu, 100) < 100 and sweep.failed

    assert ThreadGroup(2).run(work) == [True, True]


@pytest.mark.parametrize(
    ("ranges", "limits"),
    [
        ([(100.0, 250.0)], LIMITS_W),
        ([(100.0, 260.0)], (260.0, 250.0, *LIMITS_W[1:])),
        ([(110.0, 250.0), (100.0, 200.0)], (200.0, 175.0, 150.0, 125.0)),
        ([(250.0, 250.0)], (250.0,)),
        ([], ()),
    ],
)
def test_limits_between(ranges: list[tuple[float, float]], limits: tuple[float, ...]) -> None:
    assert limits_between_w(ranges) == limits


def test_unreadable_limits_leave_no_gpu(caplog: pytest.LogCaptureFixture) -> None:
    gpu = FakeGpu(Clock())
    gpu.fails["power_limit_w"] = OSError("no such device")
    group = GpuGroup([gpu])
    assert group.ranges_w == {}
    assert group.energies_j() == {}
    assert "no such device" in caplog.text


def test_energies_are_unknown_after_a_fault() -> None:
    gpu = FakeGpu(Clock())
    group = GpuGroup([gpu])
    gpu.fails["energy_j"] = OSError("GPU lost")
    assert math.isnan(group.energies_j()["GPU-0"])
    del gpu.fails["energy_j"]
    assert math.isnan(group.energies_j()["GPU-0"])


def test_restore_survives_faults(caplog: pytest.LogCaptureFixture) -> None:
    gpus = [FakeGpu(Clock(), uuid=f"GPU-{k}") for k in (0, 1)]
    group = GpuGroup(gpus)
    assert group.set_limit_w(90.0)
    assert [gpu.limit_w for gpu in gpus] == [100.0, 100.0]
    gpus[0].fails["set_power_limit_w"] = OSError("GPU lost")
    assert not group.restore()
    assert gpus[1].limit_w == 250.0
    assert "GPU lost" in caplog.text


def test_a_restore_that_failed_is_tried_again() -> None:
    gpu = FakeGpu(Clock())
    group = GpuGroup([gpu])
    group.set_limit_w(150.0)
    gpu.fails["set_power_limit_w"] = OSError("busy")
    assert not group.set_limit_w(125.0)
    assert not group.restore()
    del gpu.fails["set_power_limit_w"]
    assert group.close()
    assert gpu.limit_w == 250.0
