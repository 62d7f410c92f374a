"""Callbacks for training loops that are not one's own: Hugging Face Trainer and Lightning.

Both take a `Run`, which then ends the training on its target, its cost cap or its last epoch, or a
`GlobalPowerLimit`.  A plain loop needs none: it calls ``step()`` after each training step, or iterates
over ``steps(loader)``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from perseus.errors import MissingExtraError
from perseus.recurring.errors import JobError
from perseus.recurring.global_power_limit import GlobalPowerLimit
from perseus.recurring.run import Run


def transformers_callback(source: Run | GlobalPowerLimit, *, metric: str | None = None) -> Any:
    """Return a ``transformers.TrainerCallback``.

    Parameters
    ----------
    source:
        A run, or a global power limit.
    metric:
        For a run, the name of its metric in what the Trainer's evaluation returns, such as
        ``"eval_loss"``.  Evaluate once per epoch.

    Raises
    ------
    MissingExtraError
        If transformers is not installed.
    JobError
        If ``source`` is a run and ``metric`` is missing.
    """
    base = _import("transformers", "transformers").TrainerCallback
    return type("PerseusCallback", (_TransformersHooks, base), {})(_Progress(source, metric))


def lightning_callback(source: Run | GlobalPowerLimit, *, metric: str | None = None) -> Any:
    """Return a Lightning ``Callback``.

    Parameters
    ----------
    source:
        A run, or a global power limit.
    metric:
        For a run, the name under which the module logs its metric, such as ``"val_loss"``.

    Raises
    ------
    MissingExtraError
        If neither lightning nor pytorch_lightning is installed.
    JobError
        If ``source`` is a run and ``metric`` is missing.
    """
    base = _import("lightning", "lightning.pytorch", "pytorch_lightning").Callback
    return type("PerseusCallback", (_LightningHooks, base), {})(_Progress(source, metric))


def _import(extra: str, *modules: str) -> Any:
    """Import the first of ``modules`` that is installed."""
    for name in modules:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise MissingExtraError(
        f"none of the packages {', '.join(modules)} can be imported; run: pip install 'perseus-energy[{extra}]'"
    )


class _Progress:
    """Brings the events of a foreign loop into the order that a run expects."""

    def __init__(self, source: Run | GlobalPowerLimit, metric: str | None) -> None:
        if isinstance(source, Run) and metric is None:
            raise JobError("the callback of a run needs the name of its metric; pass metric='...'")
        self._source = source
        self._run = source if isinstance(source, Run) else None
        self._metric = metric
        self._in_epoch = False

    @property
    def ended(self) -> bool:
        return self._run is not None and self._run.ended

    def begin_epoch(self) -> None:
        self.end_epoch()
        if self._run is not None:
            self._in_epoch = self._run.begin_epoch()

    def end_epoch(self) -> None:
        self._source.pause()
        if self._run is not None and self._in_epoch:
            self._in_epoch = False
            self._run.end_epoch()

    def step(self) -> None:
        self._source.step()

    def pause(self) -> None:
        self._source.pause()

    def report(self, metrics: Mapping[str, Any]) -> None:
        """Report the run's metric if it is among ``metrics``."""
        if self._run is not None and self._metric is not None and self._in_epoch and self._metric in metrics:
            self._run.report(metrics[self._metric])


class _TransformersHooks:
    def __init__(self, progress: _Progress) -> None:
        self._progress = progress
        self._epoch_is_over = False

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._epoch_is_over = False
        self._progress.begin_epoch()
        self._stop_if_ended(control)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._progress.step()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._progress.pause()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._epoch_is_over = True  # but its evaluation is yet to come
        self._progress.pause()

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        self._progress.report(metrics or {})
        if self._epoch_is_over:
            self._progress.end_epoch()
            self._stop_if_ended(control)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._progress.end_epoch()

    def _stop_if_ended(self, control: Any) -> None:
        if self._progress.ended:
            control.should_training_stop = True


class _LightningHooks:
    def __init__(self, progress: _Progress) -> None:
        self._progress = progress

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._progress.begin_epoch()
        self._stop_if_ended(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
        self._progress.step()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._progress.pause()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._progress.report(trainer.callback_metrics)
        self._progress.end_epoch()
        self._stop_if_ended(trainer)

    def _stop_if_ended(self, trainer: Any) -> None:
        if self._progress.ended:
            trainer.should_stop = True
