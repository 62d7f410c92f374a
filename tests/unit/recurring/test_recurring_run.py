import logging
import math

import pytest
from fake_gpu import Clock, FakeGpu
from thread_ranks import ThreadGroup, ThreadRank

from perseus.recurring.cost import Preference
from perseus.recurring.errors import RunError
from perseus.recurring.gpus import GpuGroup
from perseus.recurring.power_limits import SweepTiming
from perseus.recurring.power_profile import PowerPoint
from perseus.recurring.ranks import SingleRank
from perseus.recurring.run import Run, RunPlan


def plan(**changes: object) -> RunPlan:
    fields: dict[str, object] = {
        "trial_number": 5,
        "batch_size": 32,
        "target": 0.9,
        "higher_is_better": True,
        "max_epochs": 4,
        "cap_j": math.inf,
        "preference": Preference(eta=0.5, max_power_w=250.0),
        "epoch_cost_j": math.nan,
        "measured": (),
        "to_measure_w": (),
        "has_gpu": True,
    }
    return RunPlan(**{**fields, **changes})  # type: ignore[arg-type]


def make_run(gpu: FakeGpu, clock: Clock, **changes: object) -> Run:
    return Run(plan(**changes), GpuGroup([gpu]), SingleRank(), timing=SweepTiming(), clock=clock)


def train(run: Run, gpu: FakeGpu, metrics: list[float | None], steps: int = 50) -> list[int]:
    """Train, reporting one metric after the other; return the epochs."""
    epochs = []
    for epoch in run.epochs():
        epochs.append(epoch)
        for _ in run.steps(range(steps)):
            gpu.step()
        metric = metrics[epoch]
        if metric is not None:
            run.report(metric)
    return epochs


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gpu(clock: Clock) -> FakeGpu:
    return FakeGpu(clock, tick_s=0.01)


def test_ends_on_target(gpu: FakeGpu, clock: Clock) -> None:
    run = make_run(gpu, clock)
    assert train(run, gpu, [0.5, 0.95, 0.99, 0.99]) == [0, 1]
    result = run.close()
    assert (result.ending, result.reached, result.epochs, result.metric) == ("reached", True, 2, 0.95)
    assert (result.trial_number, result.batch_size) == (5, 32)
    assert result.time_s == pytest.approx(100 * gpu.step_s())
    assert result.energy_j == pytest.approx(gpu.power_w() * result.time_s, rel=0.01)
    assert result.cost_j == pytest.approx(0.5 * result.energy_j + 0.5 * 250.0 * result.time_s)


def test_lower_can_be_better(gpu: FakeGpu, clock: Clock) -> None:
    run = make_run(gpu, clock, higher_is_better=False, target=40.0)
    assert train(run, gpu, [60.0, 40.0, 0.0, 0.0]) == [0, 1]
    assert run.close().reached


@pytest.mark.parametrize("metric", [0.5, math.nan, None])
def test_all_epochs_without_target_is_a_failure(gpu: FakeGpu, clock: Clock, metric: float | None) -> None:
    run = make_run(gpu, clock)
    assert train(run, gpu, [metric] * 4) == [0, 1, 2, 3]
    result = run.close()
    assert (result.ending, result.reached) == ("exhausted", False)


def test_a_missing_metric_is_said_once(gpu: FakeGpu, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    train(make_run(gpu, clock), gpu, [None] * 4)
    assert caplog.text.count("call run.report") == 1


def test_stops_before_the_epoch_that_would_pass_the_cap(gpu: FakeGpu, clock: Clock) -> None:
    epoch_j = (0.5 * gpu.power_w() + 0.5 * 250.0) * 50 * gpu.step_s()
    for epochs in (1, 2, 3):
        run = make_run(gpu, clock, cap_j=(epochs + 0.5) * epoch_j)
        assert len(train(run, gpu, [0.5] * 4)) == epochs
        result = run.close()
        assert result.ending == "capped"
        assert result.cost_j <= run.plan.cap_j


def test_a_first_epoch_known_to_pass_the_cap_is_not_begun(gpu: FakeGpu, clock: Clock) -> None:
    run = make_run(gpu, clock, cap_j=10.0, epoch_cost_j=11.0)
    assert train(run, gpu, []) == []
    assert run.close().ending == "capped"


def test_reaching_the_target_counts_even_at_the_last_epoch(gpu: FakeGpu, clock: Clock) -> None:
    run = make_run(gpu, clock, max_epochs=1)
    train(run, gpu, [0.9])
    assert run.close().reached


def test_a_break_after_the_report_counts_the_epoch(gpu: FakeGpu, clock: Clock) -> None:
    run = make_run(gpu, clock)
    for _ in run.epochs():
        gpu.step()
        run.report(0.95)
        break
    assert run.close().reached


def test_a_break_before_any_epoch_is_no_failure(gpu: FakeGpu, clock: Clock) -> None:
    run = make_run(gpu, clock)
    for _ in run.epochs():
        break
    assert run.close().ending == "abandoned"


def test_misuse_is_an_error(gpu: FakeGpu, clock: Clock) -> None:
    run = make_run(gpu, clock)
    with pytest.raises(RunError, match="inside the loop over epochs"):
        run.report(1.0)
    with pytest.raises(RunError, match="begin_epoch"):
        run.end_epoch()
    run.begin_epoch()
    with pytest.raises(RunError, match="end_epoch"):
        run.begin_epoch()


def test_measures_chooses_and_keeps_the_power_limit(gpu: FakeGpu, clock: Clock) -> None:
    limits_w = (250.0, 200.0, 150.0, 100.0)
    run = make_run(gpu, clock, to_measure_w=limits_w, max_epochs=100)
    train(run, gpu, [0.5] * 100)
    preference = run.plan.preference
    best_w = min(limits_w, key=lambda w: preference.cost_rate_w(gpu.power_w(w)) * gpu.step_s(w))
    assert run.power_limit_w == best_w
    assert gpu.limits_set_w[:4] == list(limits_w)
    assert gpu.limit_w == best_w
    assert run.close().power_limit_w == best_w


def test_the_limit_is_set_from_the_start_when_it_is_known(gpu: FakeGpu, clock: Clock) -> None:
    points = (PowerPoint(250.0, 240.0, 10.0), PowerPoint(150.0, 140.0, 9.9))
    run = make_run(gpu, clock, measured=points)
    assert gpu.limit_w == 150.0
    assert run.power_limit_w == 150.0


def test_an_epoch_of_measurements_does_not_end_the_run_early(gpu: FakeGpu, clock: Clock) -> None:
    """The dearer epoch in which limits were measured is no forecast of the next one."""
    gpu.range_w = (65.0, 250.0)
    limits_w = (250.0, 200.0, 150.0, 100.0, 65.0)
    preference = Preference(eta=0.5, max_power_w=250.0)
    steps = 1000
    cheap_j = steps * min(preference.cost_rate_w(gpu.power_w(w)) * gpu.step_s(w) for w in limits_w)
    run = make_run(gpu, clock, to_measure_w=limits_w)
    train(run, gpu, [0.95], steps=steps)
    measuring_j = run.close().cost_j
    assert measuring_j > 1.02 * cheap_j
    run = make_run(gpu, clock, to_measure_w=limits_w, cap_j=measuring_j + 1.02 * cheap_j)
    assert len(train(run, gpu, [0.5] * 4, steps=steps)) == 2


def test_energy_that_cannot_be_read_leaves_the_run_unmeasured(gpu: FakeGpu, clock: Clock) -> None:
    run = make_run(gpu, clock)
    for epoch in run.epochs():
        gpu.step()
        gpu.fails["energy_j"] = OSError("GPU lost")
        run.report(0.95 if epoch == 2 else 0.0)
    result = run.close()
    assert (result.ending, result.reached, result.epochs) == ("unmeasured", True, 3)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_counter_that_began_anew_leaves_the_run_unmeasured(gpu: FakeGpu, clock: Clock, hidden: bool) -> None:
    run = make_run(gpu, clock)
    for epoch in run.epochs():
        for _ in range(5):
            gpu.step()
        if epoch == 1:
            gpu.reset_counter(hidden=hidden)
        run.report(0.95 if epoch == 2 else 0.0)
    assert run.close().ending == "unmeasured"


def test_power_limits_that_may_not_be_set_do_not_matter(
    gpu: FakeGpu, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    gpu.fails["set_power_limit_w"] = PermissionError("not root")
    run = make_run(gpu, clock, to_measure_w=(250.0, 100.0))
    train(run, gpu, [0.1, 0.95])
    result = run.close()
    assert (result.ending, result.power_limit_w) == ("reached", None)
    assert caplog.text.count("not root") == 1


def test_without_gpu_the_cost_is_time(clock: Clock) -> None:
    run = Run(
        plan(has_gpu=False, preference=Preference(eta=1.0, max_power_w=1.0)), GpuGroup([]), SingleRank(), clock=clock
    )
    for _ in run.epochs():
        clock.now_s += 10.0
        run.report(0.95)
    assert run.close().cost_j == 10.0


def test_an_abandoned_run(gpu: FakeGpu, clock: Clock) -> None:
    run = make_run(gpu, clock)
    run.begin_epoch()
    run.report(1.0)
    result = run.close(abandoned=True)
    assert (result.ending, result.reached, result.epochs) == ("abandoned", False, 0)


def test_ranks_sum_energy_and_hear_the_metric_of_one() -> None:
    def work(rank: ThreadRank) -> object:
        clock = Clock()
        gpu = FakeGpu(clock, uuid=f"GPU-{rank.rank}", tick_s=0.01)
        run = Run(plan(preference=Preference(eta=0.5, max_power_w=500.0)), GpuGroup([gpu]), rank, clock=clock)
        for epoch in run.epochs():
            for _ in run.steps(range(50)):
                gpu.step()
            if rank.rank == 1:
                run.report(0.95 if epoch == 1 else 0.1)
        return run.close()

    first, second = ThreadGroup(2).run(work)
    assert first == second
    gpu = FakeGpu(Clock())
    assert first.reached
    assert first.energy_j == pytest.approx(2 * gpu.power_w() * 100 * gpu.step_s(), rel=0.01)
    assert first.cost_j == pytest.approx(0.5 * first.energy_j + 0.5 * 500.0 * first.time_s)


def test_ranks_that_share_a_gpu_count_it_once() -> None:
    def work(rank: ThreadRank) -> float:
        clock = Clock()
        gpu = FakeGpu(clock, uuid="GPU-shared", tick_s=0.01)
        run = Run(plan(max_epochs=1), GpuGroup([gpu]), rank, clock=clock)
        for _ in run.epochs():
            for _ in run.steps(range(50)):
                gpu.step()
        return run.close().energy_j

    gpu = FakeGpu(Clock())
    assert ThreadGroup(2).run(work)[0] == pytest.approx(gpu.power_w() * 50 * gpu.step_s(), rel=0.01)


@pytest.fixture(autouse=True)
def _log_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="perseus.recurring")
