"""The published numbers of Zeus (NSDI'23), recomputed from its traces.

The oracle below shares no code with Perseus: it reads the files with pandas and evaluates every
configuration.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from perseus.recurring.cost import Preference
from perseus.recurring.replay import (
    Replay,
    ReplaySettings,
    Summary,
    best_configuration,
    expected,
    potential,
    replay,
    summarize,
)
from perseus.recurring.trace import TRACED_JOBS, Trace, read_trace

pd = pytest.importorskip("pandas")

_SHARED = Path(os.environ.get("PERSEUS_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data"))
TRACES = _SHARED / "nsdi23"
pytestmark = pytest.mark.skipif(
    not TRACES.is_dir(), reason=f"the Zeus traces are not at {TRACES}; set PERSEUS_SHARED_DATA"
)

GPUS = ("v100", "a40", "p100", "rtx6000")
JOBS = {job.name: job for job in TRACED_JOBS}
EVERY = list(itertools.product(GPUS, JOBS))
SEEDS = 50

# name: dataset, network, optimizer, target, max_epochs, default batch size
ORACLE_JOBS = {
    "DeepSpeech2": ("librispeech", "deepspeech2", "adamw", 40.0, 16, 192),
    "BERT(QA)": ("squad", "bert_base_uncased", "adamw", 84.0, 6, 32),
    "BERT(SA)": ("sentiment140", "bert_base_uncased", "adamw", 0.84, 10, 128),
    "ResNet-50": ("imagenet", "resnet50", "adadelta", 0.65, 100, 256),
    "ShuffleNetV2": ("cifar100", "shufflenetv2", "adadelta", 0.60, 100, 1024),
    "NeuMF": ("movielens-1m", "ncf", "adam", 0.41, 100, 1024),
}
MAX_POWER_W = {"v100": 250.0, "a40": 300.0, "p100": 250.0, "rtx6000": 260.0}


def oracle_table(gpu: str, name: str, eta: float):
    """Every configuration of one job on one GPU, with its mean energy, time and cost; infeasible ones left out."""
    dataset, network, optimizer, target, max_epochs, _ = ORACLE_JOBS[name]
    train = pd.read_csv(TRACES / "summary_train.csv")
    train = train[(train.dataset == dataset) & (train.network == network) & (train.optimizer == optimizer)]
    train = train[np.isclose(train.target_metric, target)]
    power = pd.read_csv(TRACES / f"summary_power_{gpu}.csv")
    power = power[(power.dataset == dataset) & (power.network == network) & (power.optimizer == optimizer)]
    failed = train[~(train.target_epoch <= max_epochs)].batch_size.unique()
    epochs = train[~train.batch_size.isin(failed)].groupby("batch_size").target_epoch.mean()
    table = power[power.batch_size.isin(epochs.index)].copy()
    table["time_s"] = table.time_per_epoch * table.batch_size.map(epochs)
    table["energy_j"] = table.time_s * table.average_power
    table["cost_j"] = eta * table.energy_j + (1 - eta) * MAX_POWER_W[gpu] * table.time_s
    return table


def oracle_default(table, name: str):
    batch_size = min(ORACLE_JOBS[name][5], table.batch_size.max())
    of_default = table[table.batch_size == batch_size]
    return of_default[of_default.power_limit == of_default.power_limit.max()].iloc[0]


@pytest.fixture(scope="module")
def traces() -> dict[tuple[str, str], Trace]:
    return {(gpu, name): read_trace(TRACES, gpu, JOBS[name]) for gpu, name in EVERY}


@pytest.fixture(scope="module")
def replays(traces: dict[tuple[str, str], Trace]) -> dict[tuple[str, str], list[Replay]]:
    settings = ReplaySettings()
    return {key: [replay(trace, settings, seed) for seed in range(SEEDS)] for key, trace in traces.items()}


@pytest.fixture(scope="module")
def summaries(
    traces: dict[tuple[str, str], Trace], replays: dict[tuple[str, str], list[Replay]]
) -> dict[tuple[str, str], Summary]:
    return {key: summarize(traces[key], ReplaySettings(), replays[key]) for key in traces}


PUBLISHED_POTENTIAL = {
    "DeepSpeech2": (0.8200, 0.8381, 0.5721, 32, 100),
    "BERT(QA)": (0.9327, 0.8222, 0.7245, 8, 125),
    "BERT(SA)": (0.9662, 0.7879, 0.7358, 32, 125),
    "ResNet-50": (0.9703, 0.7749, 0.7615, 360, 150),
    "ShuffleNetV2": (0.3679, 0.6855, 0.2532, 128, 100),
    "NeuMF": (0.3500, 0.9703, 0.3340, 16384, 150),
}


@pytest.mark.parametrize("name", JOBS)
def test_published_potential(name: str, traces: dict[tuple[str, str], Trace]) -> None:
    *ratios, batch_size, limit_w = PUBLISHED_POTENTIAL[name]
    found = potential(traces["v100", name])
    assert found[:3] == pytest.approx(ratios, abs=2e-4)
    assert (found.best.batch_size, found.best.limit_w) == (batch_size, limit_w)


PUBLISHED_OPTIMA = {  # V100, eta 0.5: configuration, cost / default
    "DeepSpeech2": (48, 150, 0.7097),
    "BERT(QA)": (12, 200, 0.9212),
    "BERT(SA)": (64, 175, 0.9457),
    "ResNet-50": (360, 175, 0.9492),
    "ShuffleNetV2": (128, 100, 0.4320),
    "NeuMF": (16384, 175, 0.3614),
}


@pytest.mark.parametrize("name", JOBS)
def test_published_optima(name: str, summaries: dict[tuple[str, str], Summary]) -> None:
    batch_size, limit_w, ratio = PUBLISHED_OPTIMA[name]
    summary = summaries["v100", name]
    assert (summary.best.batch_size, summary.best.limit_w) == (batch_size, limit_w)
    assert summary.best.cost_j / summary.default.cost_j == pytest.approx(ratio, abs=1e-4)


@pytest.mark.parametrize(("gpu", "name"), EVERY)
@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
def test_optimum_is_that_of_the_oracle(gpu: str, name: str, eta: float, traces: dict[tuple[str, str], Trace]) -> None:
    table = oracle_table(gpu, name, eta)
    best = table[table.cost_j <= table.cost_j.min() * (1 + 1e-12)]
    found = best_configuration(traces[gpu, name], eta)
    assert (found.batch_size, found.limit_w) in set(zip(best.batch_size, best.power_limit, strict=True))
    assert found.cost_j == pytest.approx(table.cost_j.min(), rel=1e-12)


@pytest.mark.parametrize(("gpu", "name"), EVERY)
def test_decoupling_loses_nothing(gpu: str, name: str, summaries: dict[tuple[str, str], Summary]) -> None:
    """The best batch size at the limit that is chosen for it alone is the joint optimum."""
    summary = summaries[gpu, name]
    measured = summary.trace.batch_sizes[summary.best.batch_size]
    preference = Preference(eta=0.5, max_power_w=summary.trace.max_power_w)
    assert measured.limits_w[measured.cheapest_index(preference)] == summary.best.limit_w


def test_highest_limits(traces: dict[tuple[str, str], Trace]) -> None:
    assert {gpu: trace.max_power_w for (gpu, _), trace in traces.items()} == MAX_POWER_W


def test_power_limits_of_deepspeech2(traces: dict[tuple[str, str], Trace]) -> None:
    published = {2: 125, 4: 125, 8: 125, 12: 125, 16: 150, 24: 175, 32: 150, 48: 150, 56: 175, 64: 175}
    published |= {72: 200, 96: 175, 128: 200, 156: 225, 192: 225}
    trace = traces["v100", "DeepSpeech2"]
    preference = Preference(eta=0.5, max_power_w=250.0)
    found = {
        size: measured.limits_w[measured.cheapest_index(preference)] for size, measured in trace.batch_sizes.items()
    }
    assert found == published


PUBLISHED_PRUNING = {
    "BERT(QA)": "32 24 16 12 8 48 56",
    "BERT(SA)": "128 64 32 16 8",
    "ResNet-50": "256 192 128 64x 360",
    "NeuMF": "1024 512 256x 2048 4096 8192 16384",
}


@pytest.mark.parametrize("name", PUBLISHED_PRUNING)
def test_pruning_order(name: str, replays: dict[tuple[str, str], list[Replay]]) -> None:
    expected_order = PUBLISHED_PRUNING[name].split()
    for item in replays["v100", name]:
        trials = item.trials[: len(expected_order)]
        assert all(trial.phase == "pruning" for trial in trials)
        order = [f"{trial.batch_size}{'' if trial.ending == 'reached' else 'x'}" for trial in trials]
        assert order == expected_order


@pytest.mark.parametrize(("gpu", "name"), EVERY)
def test_last_configurations_are_near_the_optimum(
    gpu: str, name: str, replays: dict[tuple[str, str], list[Replay]], summaries: dict[tuple[str, str], Summary]
) -> None:
    """Judged by the oracle: at most 2 % above its optimum, mean of the last five over 50 seeds."""
    table = oracle_table(gpu, name, 0.5).set_index(["batch_size", "power_limit"]).cost_j
    last = [float(table[c]) for item in replays[gpu, name] for c in item.configurations()[-5:]]
    assert np.mean(last) <= 1.02 * table.min()
    assert summaries[gpu, name].optimality == pytest.approx(np.mean(last) / table.min(), rel=1e-9)


PUBLISHED_SAVINGS = {  # V100, eta 0.5, in percent
    "DeepSpeech2": 38.0,
    "BERT(QA)": 17.9,
    "BERT(SA)": 20.9,
    "ResNet-50": 18.9,
    "ShuffleNetV2": 74.2,
    "NeuMF": 65.2,
}


@pytest.mark.parametrize("name", JOBS)
def test_published_savings(name: str, summaries: dict[tuple[str, str], Summary]) -> None:
    assert 100.0 * summaries["v100", name].energy_saving == pytest.approx(PUBLISHED_SAVINGS[name], abs=1.5)


@pytest.mark.parametrize(("gpu", "published"), [("v100", 0.555), ("a40", 0.538), ("p100", 0.580), ("rtx6000", 0.532)])
def test_published_geometric_means(gpu: str, published: float, summaries: dict[tuple[str, str], Summary]) -> None:
    ratios = [summaries[gpu, name].last_energy_ratio.mean() for name in JOBS]
    assert math.exp(np.log(ratios).mean()) == pytest.approx(published, abs=0.01)


@pytest.mark.parametrize(("gpu", "name"), EVERY)
def test_exploration_pays_for_itself(
    gpu: str, name: str, replays: dict[tuple[str, str], list[Replay]], summaries: dict[tuple[str, str], Summary]
) -> None:
    """The whole run, with all exploration and every retry, costs at most 6 % more than the default would."""
    default_j = float(oracle_default(oracle_table(gpu, name, 0.5), name).cost_j)
    assert summaries[gpu, name].default.cost_j == pytest.approx(default_j, rel=1e-12)
    whole = [item.cost_j / (len(item.configurations()) * default_j) for item in replays[gpu, name]]
    assert np.mean(whole) <= 1.06


@pytest.mark.parametrize(("gpu", "name"), EVERY)
def test_no_abort_and_no_false_reset(gpu: str, name: str, replays: dict[tuple[str, str], list[Replay]]) -> None:
    assert all(item.aborted_at is None for item in replays[gpu, name])
    assert np.mean([item.resets > 0 for item in replays[gpu, name]]) <= 0.02


@pytest.mark.parametrize("window", [0, 10])
def test_no_false_reset_in_long_jobs(window: int, traces: dict[tuple[str, str], Trace]) -> None:
    settings = ReplaySettings(window=window, recurrences=160)
    for name in ("ShuffleNetV2", "DeepSpeech2"):
        resets = [replay(traces["v100", name], settings, seed).resets for seed in range(SEEDS)]
        assert np.mean(np.array(resets) > 0) <= 0.02


def test_without_early_stop_neumf_uses_ten_times_the_energy(summaries: dict[tuple[str, str], Summary]) -> None:
    trace = summaries["v100", "NeuMF"].trace
    settings = ReplaySettings(beta=math.inf)
    unstopped = summarize(trace, settings, [replay(trace, settings, seed) for seed in range(SEEDS)])
    assert unstopped.mean_energy_j >= 10.0 * summaries["v100", "NeuMF"].mean_energy_j


def _drifting() -> Iterator[tuple[str, str, float, float, int]]:
    for gpu, window in itertools.product(GPUS, (10, 0)):
        yield gpu, "ShuffleNetV2", 0.5, 0.6, window
        yield gpu, "DeepSpeech2", 55.0, 40.0, window


@pytest.mark.parametrize(("gpu", "name", "before", "after", "window"), list(_drifting()))
def test_upward_drift(gpu: str, name: str, before: float, after: float, window: int) -> None:
    """A target that becomes harder at 60 of 160 recurrences: nobody gives up, and the new optimum is found."""
    easy = read_trace(TRACES, gpu, dataclasses.replace(JOBS[name], target=before))
    hard = read_trace(TRACES, gpu, dataclasses.replace(JOBS[name], target=after))
    settings = ReplaySettings(window=window, recurrences=160)
    items = [replay(easy, settings, seed, drift=(60, hard)) for seed in range(SEEDS)]
    assert sum(item.aborted_at is not None for item in items) == 0
    best_j = oracle_table(gpu, name, 0.5).cost_j.min()
    last = [expected(hard, *c, 0.5).cost_j for item in items for c in item.configurations()[-20:]]
    assert np.mean(last) <= 1.05 * best_j
    spent = [trial.cost_j for item in items for trial in item.trials if trial.recurrence >= 140]
    assert sum(spent) / (20 * SEEDS) <= 1.05 * best_j
