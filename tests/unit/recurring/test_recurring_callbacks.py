import sys
from types import ModuleType, SimpleNamespace

import pytest
from fake_gpu import Clock, FakeGpu
from test_recurring_run import make_run

from perseus.errors import MissingExtraError
from perseus.recurring import GlobalPowerLimit, JobError, Run, lightning_callback, transformers_callback


class Base:
    """Stands for the framework's own class."""


@pytest.fixture
def frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, attribute in (
        ("transformers", "TrainerCallback"),
        ("lightning", None),
        ("lightning.pytorch", "Callback"),
    ):
        module = ModuleType(name)
        if attribute:
            setattr(module, attribute, Base)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu(Clock(), tick_s=0.01)


def transformers_train(callback: object, gpu: FakeGpu, losses: list[float], *, evaluate: bool = True) -> int:
    """Send the events of a Trainer that evaluates after every epoch; return the number of epochs."""
    control = SimpleNamespace(should_training_stop=False)
    event = lambda name, **kw: getattr(callback, name)(None, None, control, **kw)  # noqa: E731
    epochs = 0
    for loss in losses:
        event("on_epoch_begin")
        if control.should_training_stop:
            break
        for _ in range(20):
            gpu.step()
            event("on_step_end")
        event("on_epoch_end")
        epochs += 1
        if evaluate:
            event("on_prediction_step")
            gpu.clock.now_s += 1.0
            event("on_evaluate", metrics={"eval_loss": loss})
        if control.should_training_stop:
            break
    event("on_train_end")
    return epochs


def lightning_train(callback: object, gpu: FakeGpu, losses: list[float]) -> int:
    trainer = SimpleNamespace(should_stop=False, callback_metrics={})
    event = lambda name, *args: getattr(callback, name)(trainer, None, *args)  # noqa: E731
    for epoch, loss in enumerate(losses):
        event("on_train_epoch_start")
        if trainer.should_stop:
            return epoch
        for k in range(20):
            gpu.step()
            event("on_train_batch_end", None, None, k)
        event("on_validation_start")
        gpu.clock.now_s += 1.0
        trainer.callback_metrics["val_loss"] = loss
        event("on_train_epoch_end")
        if trainer.should_stop:
            return epoch + 1
    return len(losses)


def make_loss_run(gpu: FakeGpu, **changes: object) -> Run:
    return make_run(gpu, gpu.clock, higher_is_better=False, target=0.5, **changes)


@pytest.mark.usefixtures("frameworks")
class TestRuns:
    def test_transformers_stops_on_target(self, gpu: FakeGpu) -> None:
        run = make_loss_run(gpu)
        callback = transformers_callback(run, metric="eval_loss")
        assert isinstance(callback, Base)
        assert transformers_train(callback, gpu, [0.9, 0.4, 0.3]) == 2
        result = run.close()
        assert (result.reached, result.epochs, result.metric) == (True, 2, 0.4)
        assert result.time_s == pytest.approx(40 * gpu.step_s() + 2.0)  # evaluations included

    def test_transformers_without_evaluation_ends_with_its_epochs(self, gpu: FakeGpu) -> None:
        run = make_loss_run(gpu, max_epochs=2)
        callback = transformers_callback(run, metric="eval_loss")
        assert transformers_train(callback, gpu, [0.9] * 5, evaluate=False) == 2
        assert run.close().ending == "exhausted"

    def test_lightning_stops_on_target(self, gpu: FakeGpu) -> None:
        run = make_loss_run(gpu)
        assert lightning_train(lightning_callback(run, metric="val_loss"), gpu, [0.9, 0.4, 0.3]) == 2
        result = run.close()
        assert (result.reached, result.epochs, result.metric) == (True, 2, 0.4)

    def test_lightning_stops_on_cost(self, gpu: FakeGpu) -> None:
        run = make_loss_run(gpu, cap_j=1.0)
        assert lightning_train(lightning_callback(run, metric="val_loss"), gpu, [0.9] * 4) == 1
        assert run.close().ending == "capped"

    def test_a_run_that_must_not_begin(self, gpu: FakeGpu) -> None:
        run = make_loss_run(gpu, cap_j=1.0, epoch_cost_j=2.0)
        assert lightning_train(lightning_callback(run, metric="val_loss"), gpu, [0.9] * 4) == 0
        assert run.close().ending == "capped"

    def test_power_limits_are_measured(self, gpu: FakeGpu) -> None:
        run = make_loss_run(gpu, to_measure_w=(250.0, 150.0), max_epochs=50)
        transformers_train(transformers_callback(run, metric="eval_loss"), gpu, [0.9] * 50)
        assert run.power_limit_w == 150.0

    def test_global_power_limit_needs_no_metric(self, gpu: FakeGpu) -> None:
        with GlobalPowerLimit(max_slowdown=0.1, gpus=[gpu], clock=gpu.clock) as limit:
            transformers_train(transformers_callback(limit), gpu, [0.9] * 100)
            assert limit.power_limit_w is not None
        with GlobalPowerLimit(max_slowdown=0.1, gpus=[gpu], clock=gpu.clock) as limit:
            lightning_train(lightning_callback(limit), gpu, [0.9] * 100)
            assert limit.power_limit_w is not None

    def test_a_run_needs_the_name_of_its_metric(self, gpu: FakeGpu) -> None:
        for make in (transformers_callback, lightning_callback):
            with pytest.raises(JobError, match="name of its metric"):
                make(make_loss_run(gpu))


@pytest.mark.parametrize(
    ("make", "extra", "modules"),
    [
        (transformers_callback, "transformers", ["transformers"]),
        (lightning_callback, "lightning", ["lightning.pytorch", "pytorch_lightning"]),
    ],
)
def test_a_missing_framework(
    make: object, extra: str, modules: list[str], gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'perseus-energy\[{extra}\]'"):
        make(GlobalPowerLimit(gpus=[gpu]))  # type: ignore[operator]
