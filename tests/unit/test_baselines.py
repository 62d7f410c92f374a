"""What others do: by hand-made examples, and EnvPipe against its published emulation."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest

import perseus
from perseus import baselines
from perseus.errors import InfeasibleTimeError, PlanError, ProfileError

DATA = Path(os.environ.get("PERSEUS_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data")) / "sosp24"
GPUS = {"a100_sxm": ("gpt3-175b_a100-sxm_pp8_tp8.csv", 83.64), "a40": ("gpt3-175b_a40_pp8_tp8.csv", 70.38)}


def unequal() -> perseus.Profiles:
    """Stage 1 takes twice as long as stage 0, at each of three clocks."""
    rows: dict[str, list[object]] = {"stage": [], "instruction": [], "frequency": [], "time": [], "energy": []}
    for stage in (0, 1):
        for kind, base_s in (("forward", 1.0), ("backward", 2.0)):
            for clock, factor, energy_j in ((1400, 1.0, 60.0), (1000, 1.3, 42.0), (700, 2.0, 38.0)):
                row = (stage, kind, clock, base_s * factor * (stage + 1), energy_j * base_s * (stage + 1))
                for column, value in zip(rows.values(), row, strict=True):
                    column.append(value)
    return perseus.read_profiles(rows, blocking_power_w=10.0)


@pytest.fixture
def dag() -> perseus.PipelineDag:
    return perseus.PipelineDag.from_schedule("1f1b", num_stages=2, num_microbatches=4)


def test_one_clock_for_all(dag: perseus.PipelineDag) -> None:
    plans = baselines.zeus_global_plans(dag, unequal())
    assert [set(plan.frequencies_mhz) for plan in plans] == [{1400.0}, {1000.0}, {700.0}]
    best = baselines.zeus_global(dag, unequal())
    assert best.energy_j == min(plan.energy_j for plan in plans)
    shortest = baselines.zeus_global(dag, unequal(), deadline_s=plans[0].time_s)
    assert shortest.time_s == baselines.max_clock_plan(dag, unequal()).time_s
    with pytest.raises(InfeasibleTimeError, match="no clocks of this kind take less"):
        baselines.zeus_global(dag, unequal(), deadline_s=1.0)
    waiting = baselines.zeus_global_plans(dag, unequal(), wait_until_s=plans[1].time_s)
    assert [plan.wait_until_s for plan in waiting] == [plans[1].time_s] * 2


def test_one_clock_for_each_stage(dag: perseus.PipelineDag) -> None:
    plans = baselines.zeus_per_stage_plans(dag, unequal())
    clocks = [[float(plan.frequencies_mhz[dag.stage == stage].max()) for stage in (0, 1)] for plan in plans]
    assert [700.0, 1400.0] in clocks  # forwards of 2 s each
    assert all(len(set(plan.frequencies_mhz[dag.stage == 0])) == 1 for plan in plans)
    assert baselines.zeus_per_stage(dag, unequal()).energy_j == min(plan.energy_j for plan in plans)


def test_no_clock_in_common(dag: perseus.PipelineDag) -> None:
    rows = {
        "stage": [0, 0, 1, 1],
        "instruction": ["forward", "backward"] * 2,
        "frequency": [1, 2, 3, 4],
        "time": [1.0] * 4,
        "energy": [1.0] * 4,
    }
    profiles = perseus.read_profiles(rows, blocking_power_w=0.0)
    for best in (baselines.zeus_global, baselines.zeus_per_stage):
        with pytest.raises(PlanError, match="no clock that all operations have in common"):
            best(dag, profiles)
    with pytest.raises(ProfileError, match="no knob 'power_limit'"):
        baselines.zeus_global(dag, profiles, knob="power_limit")


def test_envpipe_keeps_the_envelope_at_the_highest_clocks(dag: perseus.PipelineDag) -> None:
    plan = baselines.envpipe(dag, unequal())
    assert plan.time_s == pytest.approx(baselines.max_clock_plan(dag, unequal()).time_s)
    assert set(plan.frequencies_mhz[dag.stage == 1]) == {1400.0}
    first, *inner, last = plan.frequencies_mhz[dag.rank == 0]
    assert first == last == 1400.0
    assert min(inner) < 1400.0


def test_envpipe_ends_where_the_critical_path_never_meets_the_envelope(dag: perseus.PipelineDag) -> None:
    # Stage 0 takes ten times as long as the last one: the critical path stays inside at any clock.
    rows = {
        "stage": [0, 0, 0, 0, 1, 1],
        "instruction": ["forward", "forward", "backward", "backward", "forward", "backward"],
        "frequency": [1400, 700] * 2 + [1400] * 2,
        "time": [10.0, 15.0, 20.0, 30.0, 1.0, 2.0],
        "energy": [500.0, 400.0, 1000.0, 800.0, 50.0, 100.0],
    }
    plan = baselines.envpipe(dag, perseus.read_profiles(rows, blocking_power_w=10.0))
    assert set(plan.frequencies_mhz) == {1400.0}


def test_fixed_steps(dag: perseus.PipelineDag) -> None:
    frontier = perseus.solve_frontier(dag, unequal())
    plan = baselines.fixed_step_perseus(dag, unequal(), step_s=0.01, lower_bound=frontier.energy_at)
    assert plan.time_s == pytest.approx(frontier.min_time_s)
    assert plan.gap >= 0.0
    slower = baselines.fixed_step_perseus(dag, unequal(), deadline_s=frontier.max_time_s, step_s=0.01)
    assert slower.time_s > plan.time_s
    assert slower.energies_j.sum() < plan.energies_j.sum()
    with pytest.raises(PlanError, match=r"step_s is 0\.0"):
        baselines.fixed_step_perseus(dag, unequal(), step_s=0.0)


@pytest.mark.skipif(not DATA.exists(), reason="the measured profiles are not here: set PERSEUS_SHARED_DATA")
@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("num_microbatches", [12, 24, 48, 96])
def test_envpipe_as_published(gpu: str, num_microbatches: int) -> None:
    # Published times are scaled by 10, energies by 10 and the 8 GPUs of tensor parallelism.
    with (DATA / "envpipe_emulation.csv").open(encoding="utf-8") as file:
        (row,) = (
            row
            for row in csv.DictReader(file)
            if (row["model"], row["device"], row["num_microbatches"]) == ("gpt3-175b", gpu, str(num_microbatches))
        )
    name, power_w = GPUS[gpu]
    profiles = perseus.read_profiles(DATA / name, blocking_power_w=power_w)
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=num_microbatches)
    plan = baselines.envpipe(dag, profiles)
    assert 10 * plan.time_s == pytest.approx(float(row["iteration_time"]), rel=1e-4)
    assert 80 * plan.energy_j == pytest.approx(float(row["energy"]), rel=0.002)


@pytest.mark.skipif(not DATA.exists(), reason="the measured profiles are not here: set PERSEUS_SHARED_DATA")
def test_ours_beats_all_of_them_at_the_shortest_time() -> None:
    name, power_w = GPUS["a100_sxm"]
    profiles = perseus.read_profiles(DATA / name, blocking_power_w=power_w)
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=12)
    frontier = perseus.solve_frontier(dag, profiles)
    ours = frontier.plan_at(frontier.min_time_s)
    others = [
        baselines.max_clock_plan(dag, profiles),
        baselines.zeus_global(dag, profiles, deadline_s=frontier.min_time_s),
        baselines.envpipe(dag, profiles),
        baselines.fixed_step_perseus(dag, profiles),
    ]
    for other in others:
        assert other.energy_j > ours.energy_j
        assert other.time_s >= ours.time_s * (1.0 - 1e-9)
    assert np.argmin([plan.energy_j for plan in others]) in (2, 3)
