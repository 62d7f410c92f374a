"""Speed of the frontier on the measured GPT-3 175B profile (A100), 1F1B with 8 stages; each case asserts its answer.

    pytest benchmarks/test_frontier_speed.py --benchmark-columns=min,median,rounds --benchmark-sort=name

The profile is looked for at $PERSEUS_SHARED_DATA or ../shared/data beside the repository.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import perseus

PROFILE = "sosp24/gpt3-175b_a100-sxm_pp8_tp8.csv"
# Energy (J) at the shortest iteration time, from an independent linear program.
ENERGY_AT_MIN_TIME_J = {12: 6160.42, 96: 46553.85}


@pytest.fixture(scope="module")
def profiles() -> perseus.Profiles:
    root = Path(os.environ.get("PERSEUS_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (root / PROFILE).exists():
        pytest.skip(f"no measured profile at {root / PROFILE}; set PERSEUS_SHARED_DATA")
    return perseus.read_profiles(root / PROFILE, blocking_power_w=83.64)


def pipeline(num_microbatches: int) -> perseus.PipelineDag:
    return perseus.PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=num_microbatches)


def cpu_timed(benchmark: BenchmarkFixture, solve: Callable[[], perseus.Frontier], rounds: int) -> perseus.Frontier:
    """Run under pytest-benchmark with CPU time, which a busy machine disturbs less, and return the last frontier."""
    benchmark._timer = time.process_time
    frontier = benchmark.pedantic(solve, rounds=rounds, warmup_rounds=1)
    benchmark.extra_info["breakpoints"] = len(frontier)
    benchmark.extra_info["spliced_from_microbatches"] = frontier.statistics["spliced_from_microbatches"]
    assert frontier.statistics["certified"]
    return frontier


@pytest.mark.parametrize("max_flow", ["augment", "push_relabel"])
@pytest.mark.parametrize("num_microbatches", [12, 96, 1024])
def test_direct(benchmark: BenchmarkFixture, profiles: perseus.Profiles, num_microbatches: int, max_flow: str) -> None:
    dag = pipeline(num_microbatches)
    frontier = cpu_timed(
        benchmark,
        lambda: perseus.solve_frontier(dag, profiles, max_flow=max_flow, splice=False),
        rounds=5 if num_microbatches < 1000 else 3,
    )
    assert frontier.statistics["spliced_from_microbatches"] is None
    assert len(frontier) == (537 if num_microbatches == 12 else 622)
    if num_microbatches in ENERGY_AT_MIN_TIME_J:
        assert frontier.energies_j[0] == pytest.approx(ENERGY_AT_MIN_TIME_J[num_microbatches], abs=0.01)


@pytest.mark.parametrize("num_microbatches", [96, 1024, 100_000])
def test_spliced(benchmark: BenchmarkFixture, profiles: perseus.Profiles, num_microbatches: int) -> None:
    # The pipeline is made anew in each round: its arrays are part of the cost.
    frontier = cpu_timed(benchmark, lambda: perseus.solve_frontier(pipeline(num_microbatches), profiles), rounds=5)
    assert frontier.statistics["spliced_from_microbatches"] == 40
    assert len(frontier) == 622
    if num_microbatches in ENERGY_AT_MIN_TIME_J:
        assert frontier.energies_j[0] == pytest.approx(ENERGY_AT_MIN_TIME_J[num_microbatches], abs=0.01)


def test_jittered(benchmark: BenchmarkFixture, profiles: perseus.Profiles) -> None:
    """Every operation of 96 microbatches has its own curve, within 1 %: no symmetry, ten times the breakpoints."""
    random = np.random.default_rng(0)
    base = pipeline(96)
    orders: list[list[tuple[str, int, int]]] = [[] for _ in range(8)]
    columns: dict[str, list[object]] = {name: [] for name in ("stage", "instruction", "frequency", "time", "energy")}
    # One stage for each operation, so that each can have its own measurements.
    for number, operation in enumerate(base.operations):
        measured = profiles[operation.stage, operation.kind]
        scale = 1.0 + random.uniform(-0.01, 0.01)
        columns["stage"] += [number] * len(measured)
        columns["instruction"] += ["forward"] * len(measured)
        columns["frequency"] += measured.knobs["frequency"].tolist()
        columns["time"] += (measured.times_s * scale).tolist()
        columns["energy"] += (measured.energies_j * scale).tolist()
        orders[operation.rank].append(("forward", number, 0))
    jittered = perseus.read_profiles(columns, blocking_power_w=83.64)
    dag = perseus.PipelineDag.from_orders(orders, edges=base.edges.tolist())
    frontier = cpu_timed(benchmark, lambda: perseus.solve_frontier(dag, jittered), rounds=3)
    assert len(frontier) > 5000
    assert np.all(np.diff(frontier.energies_j - frontier.blocking_power_w * frontier.times_s) < 0)


@pytest.mark.parametrize("effort", ["fast", "best"])
def test_plan(benchmark: BenchmarkFixture, profiles: perseus.Profiles, effort: Literal["fast", "best"]) -> None:
    """One plan of 1,536 operations at the shortest iteration time."""
    frontier = perseus.solve_frontier(pipeline(96), profiles)
    plan = benchmark(lambda: frontier.plan_at(frontier.min_time_s, effort=effort))
    assert plan.time_s <= frontier.min_time_s
    assert plan.gap < {"fast": 0.005, "best": 0.0025}[effort]
