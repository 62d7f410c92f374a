import math
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_gpu import Clock, FakeGpu

import perseus.recurring.gpus
import perseus.recurring.job
from perseus.recurring import Job, JobError, SweepTiming
from perseus.recurring.store import JobKey

EPOCHS = {8: 9, 16: 2, 32: 6}  # to the target, by batch size
TIMING = SweepTiming(settle_s=0.2, max_window_s=3.0)


class World:
    """A training job on a fake GPU: so many epochs to the target per batch size, fewer steps for larger ones."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock = Clock()
        self.gpu = FakeGpu(self.clock, tick_s=0.02)
        self.path = tmp_path / "log"

    def job(self, **changes: object) -> Job:
        fields: dict[str, object] = {
            "batch_sizes": list(EPOCHS),
            "default": 32,
            "target": 0.9,
            "max_epochs": 12,
            "store": self.path,
            "gpus": [self.gpu],
            "timing": TIMING,
            **changes,
        }
        return Job("asr", **fields)  # type: ignore[arg-type]

    def train(self, run: object) -> None:
        assert isinstance(run, perseus.recurring.Run)
        run._clock = run._sweep._clock = self.clock  # the job's own clock is the wall's
        for epoch in run.epochs():
            for _ in run.steps(range(9600 // run.batch_size)):
                self.gpu.step()
            run.report(1.0 if epoch + 1 >= EPOCHS[run.batch_size] else 0.5)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_job_finds_its_batch_size_and_power_limit(world: World) -> None:
    job = world.job()
    results = []
    for _ in range(10):
        with job.run() as run:
            world.train(run)
        assert run.result is not None
        results.append(run.result)
        assert world.gpu.limit_w == 250.0  # restored every time
    assert [r.batch_size for r in results[:6]] == [32, 16, 8, 16, 32, 16]
    assert [r.ending for r in results[:4]] == ["reached", "reached", "capped", "reached"]
    assert {r.batch_size for r in results[6:]} == {16}
    limits = perseus.recurring.gpus.limits_between_w([(100.0, 250.0)])
    cost = {w: (0.5 * world.gpu.power_w(w) + 125.0) * world.gpu.step_s(w) for w in limits}
    assert cost[results[-1].power_limit_w] <= 1.01 * min(cost.values())  # type: ignore[index]


def test_power_limits_are_measured_once_per_batch_size(world: World) -> None:
    job = world.job(power_limits_w=[250.0, 150.0], batch_sizes=[16], default=16)
    for expected in ([250.0, 150.0], []):
        world.gpu.limits_set_w.clear()
        with job.run() as run:
            already_set = list(world.gpu.limits_set_w)
            world.train(run)
        chosen = run.result.power_limit_w  # type: ignore[union-attr]
        assert world.gpu.limits_set_w[len(already_set) :][: len(expected)] == expected
        assert already_set == ([] if expected else [chosen])


def test_limits_outside_the_range_are_not_asked_for(world: World) -> None:
    with world.job(power_limits_w=[300.0, 250.0, 150.0, 50.0]).run() as run:
        assert run.plan.to_measure_w == (250.0, 150.0)


def test_an_empty_list_leaves_the_power_limit_alone(world: World) -> None:
    with world.job(power_limits_w=[]).run() as run:
        world.train(run)
    assert world.gpu.limits_set_w == []
    assert run.result.reached  # type: ignore[union-attr]


def test_an_exception_passes_and_the_trial_is_given_out_again(world: World) -> None:
    job = world.job()
    runs = []

    def train() -> None:
        with job.run() as run:
            runs.append(run)
            run.begin_epoch()
            for _ in range(30):
                world.gpu.step()
                run.step()
            _ = 1 // 0

    with pytest.raises(ZeroDivisionError):
        train()
    assert world.gpu.limit_w == 250.0
    assert runs[0].result.ending == "abandoned"  # type: ignore[union-attr]
    with job.run() as run:
        assert (run.batch_size, run.plan.trial_number) == (32, 1)
        world.train(run)


def test_the_log_of_one_run_that_failed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A log that cannot be used costs a line in the log, not the training."""
    world.path.write_text("no database " * 1000)
    with world.job().run() as run:
        world.train(run)
    assert run.result.reached  # type: ignore[union-attr]
    assert (run.result.batch_size, run.result.trial_number) == (32, None)  # type: ignore[union-attr]
    assert "is not recorded" in caplog.text


def test_a_log_that_fails_in_between(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with world.job().run() as run:
        world.path.write_text("no database " * 1000)
        world.train(run)
    assert run.result.reached  # type: ignore[union-attr]
    assert caplog.text.count("may be missing from the log") == 1


def test_a_locked_log_does_not_block_training(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perseus.recurring.store._BUSY_S", 0.05)
    connection = sqlite3.connect(world.path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    with world.job().run() as run:
        world.train(run)
    connection.close()
    assert run.result.trial_number is None  # type: ignore[union-attr]


def test_the_limit_a_killed_run_left_behind_is_not_taken_for_the_original(world: World) -> None:
    job = world.job(lease_s=1e-3)
    killed = job.run()
    killed.__enter__()
    world.gpu.limit_w = 100.0  # where it was when it died
    threading.Event().wait(0.01)
    _silence(job)
    with job.run():
        pass
    assert world.gpu.limit_w == 250.0


def _silence(job: Job) -> None:
    """Stop the thread that keeps the lease of a run that was 'killed'."""
    connection = sqlite3.connect(job.store.path, isolation_level=None)
    connection.execute("UPDATE trials SET lease_until = 0")
    connection.close()


def test_no_gpu_at_all(world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def unavailable(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr("perseus.recurring.gpus.importlib.import_module", unavailable)
    job = world.job(gpus=None)
    with job.run() as run:
        for epoch in run.epochs():
            run.report(float(epoch))
    assert run.result.reached  # type: ignore[union-attr]
    assert run.result.cost_j == run.result.time_s  # type: ignore[union-attr]
    assert "its time alone" in caplog.text
    assert job.store.keys() == [JobKey(job="asr", hardware="no GPU")]


def test_maximum_power_is_that_of_all_gpus(world: World) -> None:
    gpus = [FakeGpu(world.clock, uuid=f"GPU-{k}") for k in range(4)]
    with world.job(gpus=gpus).run() as run:
        assert run.plan.preference.max_power_w == 1000.0


def test_the_seed_follows_from_the_name(world: World) -> None:
    assert world.job().settings.policy.seed == world.job().settings.policy.seed != 0
    assert world.job(seed=5).settings.policy.seed == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"better": "up"}, "'higher' or 'lower'"),
        ({"max_epochs": 0}, "at least 1"),
        ({"lease_s": 0.0}, "silent run"),
        ({"target": math.nan}, "metric to reach"),
        ({"eta": 2.0}, "from 0 to 1"),
        ({"default": 7}, "must be one of them"),
    ],
)
def test_settings_are_checked(world: World, change: dict[str, object], message: str) -> None:
    with pytest.raises(JobError, match=message):
        world.job(**change)


def test_a_job_needs_a_name() -> None:
    with pytest.raises(JobError, match="no name"):
        Job("", batch_sizes=[8], default=8, target=1.0)


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    yield
    for thread in threading.enumerate():
        assert thread.name != "perseus-trial-log" or thread.daemon
