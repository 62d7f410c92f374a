"""Measured training and power traces, for replaying a recurring job without running it.

The format is that of the public artifact of Zeus (NSDI'23): ``summary_train.csv`` lists, per training
run, the epoch at which each target metric was first met; ``summary_power_GPU.csv`` lists, per batch size
and power limit, the time of an epoch and the average power.  A batch size can be replayed when both files
know it.
"""

from __future__ import annotations

import csv
import math
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perseus.recurring.cost import Preference
from perseus.recurring.errors import TraceError
from perseus.recurring.power_profile import PowerPoint, cheapest_point


@dataclass(frozen=True, kw_only=True)
class TracedJob:
    """A job of the traces: which rows are its own, and what it has to reach.

    Attributes
    ----------
    name:
        Name for people.
    dataset, network, optimizer:
        Select its rows.
    target:
        The metric to reach, as the column ``target_metric`` has it.
    max_epochs:
        A run that has not reached the target by then has failed.
    default_batch_size:
        What its users run; a GPU on which it does not fit starts at the largest that does.
    """

    name: str
    dataset: str
    network: str
    optimizer: str
    target: float
    max_epochs: int
    default_batch_size: int


# Zeus, table 1 and section 6.1; the targets and epoch limits are those of the authors' evaluation.
TRACED_JOBS = (
    TracedJob(
        name="DeepSpeech2",
        dataset="librispeech",
        network="deepspeech2",
        optimizer="adamw",
        target=40.0,
        max_epochs=16,
        default_batch_size=192,
    ),
    TracedJob(
        name="BERT(QA)",
        dataset="squad",
        network="bert_base_uncased",
        optimizer="adamw",
        target=84.0,
        max_epochs=6,
        default_batch_size=32,
    ),
    TracedJob(
        name="BERT(SA)",
        dataset="sentiment140",
        network="bert_base_uncased",
        optimizer="adamw",
        target=0.84,
        max_epochs=10,
        default_batch_size=128,
    ),
    TracedJob(
        name="ResNet-50",
        dataset="imagenet",
        network="resnet50",
        optimizer="adadelta",
        target=0.65,
        max_epochs=100,
        default_batch_size=256,
    ),
    TracedJob(
        name="ShuffleNetV2",
        dataset="cifar100",
        network="shufflenetv2",
        optimizer="adadelta",
        target=0.60,
        max_epochs=100,
        default_batch_size=1024,
    ),
    TracedJob(
        name="NeuMF",
        dataset="movielens-1m",
        network="ncf",
        optimizer="adam",
        target=0.41,
        max_epochs=100,
        default_batch_size=1024,
    ),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class TracedBatchSize:
    """What was measured at one batch size on one GPU.

    Attributes
    ----------
    epochs_to_target:
        Per training run, the epoch that met the target; infinite where it was never met.
    limits_w, epoch_times_s, average_powers_w:
        Per power limit, ascending: the limit in W, the time of an epoch in s, the average power in W.
    """

    epochs_to_target: NDArray[np.float64]
    limits_w: NDArray[np.float64]
    epoch_times_s: NDArray[np.float64]
    average_powers_w: NDArray[np.float64]

    def points(self) -> list[PowerPoint]:
        """Return the power limits as a live job would have measured them; the unit of work is an epoch."""
        columns = zip(self.limits_w.tolist(), self.average_powers_w.tolist(), self.epoch_times_s.tolist(), strict=True)
        return [PowerPoint(limit, power, 1.0 / time) for limit, power, time in columns]

    def cheapest_index(self, preference: Preference) -> int:
        """Return the index of the power limit that a live job would choose."""
        chosen = cheapest_point(self.points(), preference)
        return int(np.searchsorted(self.limits_w, chosen.limit_w))

    def mean_epochs(self, max_epochs: int) -> float:
        """Return the mean number of epochs to the target; infinite if some run does not reach it in time."""
        epochs = np.where(self.epochs_to_target <= max_epochs, self.epochs_to_target, math.inf)
        return float(epochs.mean())


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """One job on one GPU.

    Attributes
    ----------
    job, gpu:
        Which.
    batch_sizes:
        The measurements, by batch size, ascending.
    max_power_w:
        The highest power limit of the GPU, in W.
    """

    job: TracedJob
    gpu: str
    batch_sizes: dict[int, TracedBatchSize]
    max_power_w: float

    @property
    def default(self) -> int:
        """The default batch size, or the largest below it if this GPU lacks it, or else the smallest."""
        fitting = [size for size in self.batch_sizes if size <= self.job.default_batch_size]
        return max(fitting, default=min(self.batch_sizes))

    @property
    def num_power_limits(self) -> int:
        """How many power limits were measured at the default batch size."""
        return len(self.batch_sizes[self.default].limits_w)


def gpus_of(directory: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the GPUs that ``directory`` has a power trace of, by name."""
    prefix = "summary_power_"
    names = sorted(path.stem[len(prefix) :] for path in Path(directory).glob(f"{prefix}*.csv"))
    if not names:
        raise TraceError(f"{directory} has no file {prefix}GPU.csv; give the directory of the Zeus traces")
    return tuple(names)


def read_trace(directory: str | os.PathLike[str], gpu: str, job: TracedJob) -> Trace:
    """Read one job on one GPU.

    Raises
    ------
    TraceError
        If a file, a column, or every common batch size of the two files is missing, or a number is none.
    """
    try:
        return _read_trace(Path(directory), gpu, job)
    except ValueError as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"the traces in {directory} have a bad row ({error}); restore the original files") from error


def _read_trace(directory: Path, gpu: str, job: TracedJob) -> Trace:
    power_rows = [row for row in _rows(directory / f"summary_power_{gpu}.csv", _POWER_COLUMNS) if _is_of(row, job)]
    train_rows = [row for row in _rows(directory / "summary_train.csv", _TRAIN_COLUMNS) if _is_of(row, job)]
    epochs = _epochs_by_batch_size(train_rows, job.target)
    powers: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    for row in power_rows:
        point = (float(row["power_limit"]), float(row["time_per_epoch"]), float(row["average_power"]))
        powers[int(row["batch_size"])].append(point)
    common = sorted(epochs.keys() & powers.keys())
    if not common:
        raise TraceError(
            f"{job.name} on {gpu}: no batch size has both a training run to target {job.target:g} and "
            f"a power measurement in {directory}; choose another job, target or GPU"
        )
    return Trace(
        job=job,
        gpu=gpu,
        batch_sizes={size: _batch_size(epochs[size], powers[size]) for size in common},
        max_power_w=max(limit for size in common for limit, _, _ in powers[size]),
    )


_SELECTORS = ("dataset", "network", "optimizer")
_TRAIN_COLUMNS = (*_SELECTORS, "batch_size", "target_metric", "target_epoch")
_POWER_COLUMNS = (*_SELECTORS, "batch_size", "power_limit", "time_per_epoch", "average_power")


def _rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise TraceError(f"{path} lacks the columns {', '.join(missing)}; is it a Zeus trace?")
            return list(reader)
    except OSError as error:
        raise TraceError(f"{path} cannot be read ({error.strerror}); give the directory of the Zeus traces") from error


def _is_of(row: dict[str, str], job: TracedJob) -> bool:
    return (row["dataset"], row["network"], row["optimizer"]) == (job.dataset, job.network, job.optimizer)


def _epochs_by_batch_size(rows: list[dict[str, str]], target: float) -> dict[int, list[float]]:
    epochs: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if math.isclose(float(row["target_metric"]), target):
            epochs[int(row["batch_size"])].append(float(row["target_epoch"] or "inf"))
    return epochs


def _batch_size(epochs: list[float], points: list[tuple[float, float, float]]) -> TracedBatchSize:
    limits, times, powers = np.array(sorted(points)).T
    return TracedBatchSize(
        epochs_to_target=np.array(epochs), limits_w=limits, epoch_times_s=times, average_powers_w=powers
    )
