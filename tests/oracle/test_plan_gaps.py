"""Plans against proven bounds: brute force on small pipelines, and the measured profiles of the paper."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

import perseus

DATA = Path(os.environ.get("PERSEUS_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data")) / "sosp24"
GPUS = {"a100": ("gpt3-175b_a100-sxm_pp8_tp8.csv", 83.64), "a40": ("gpt3-175b_a40_pp8_tp8.csv", 70.38)}
# Savings (%) at the shortest time that rounding the optimal durations down and reclaiming slack reaches.
ROUNDED_SAVING = {("a100", 12): 15.94, ("a100", 24): 14.72, ("a40", 12): 12.22, ("a40", 24): 10.56}
SMALL = [(1, 2), (2, 2), (2, 3), (3, 2), (1, 5), (1, 6), (2, 1), (6, 1)]


def random_profiles(random: np.random.Generator, num_stages: int, num_points: int) -> perseus.Profiles:
    rows: dict[str, list[object]] = {"stage": [], "instruction": [], "frequency": [], "time": [], "energy": []}
    for stage, kind in itertools.product(range(num_stages), ("forward", "backward")):
        times_s = (1.0 + np.cumsum(random.uniform(0.02, 0.4, num_points))) * (1.0 if kind == "forward" else 2.0)
        energies_j = 40.0 + 100.0 * np.sort(random.uniform(0.0, 1.0, num_points))[::-1] / times_s
        for point in range(num_points):
            row = (stage, kind, 1500 - 15 * point, times_s[point], energies_j[point])
            for column, value in zip(rows.values(), row, strict=True):
                column.append(value)
    return perseus.read_profiles(rows, blocking_power_w=float(random.uniform(0.0, 10.0)))


def brute_force_j(dag: perseus.PipelineDag, profiles: perseus.Profiles, deadline_s: float) -> float:
    """Return the least effective energy of all choices that meet the deadline."""
    menus = [(profiles[o.stage, o.kind], profiles.blocking_power_w[o.stage]) for o in dag.operations]
    sizes = [len(profile.times_s) for profile, _ in menus]
    count = int(np.prod(sizes))
    choices = np.array(np.unravel_index(np.arange(count), sizes))
    energies_j, finish_s = np.zeros(count), np.zeros((dag.num_operations, count))
    for v in dag.topological_order().tolist():
        profile, power_w = menus[v]
        energies_j += (profile.energies_j - power_w * profile.times_s)[choices[v]]
        before = dag.edges[dag.edges[:, 1] == v, 0]
        finish_s[v] = finish_s[before].max(axis=0, initial=0.0) + profile.times_s[choices[v]]
    return float(energies_j[finish_s.max(axis=0) <= deadline_s * (1.0 + 1e-12)].min())


def test_200_small_pipelines_against_brute_force() -> None:
    random = np.random.default_rng(7)
    num_equal = 0
    for index in range(200):
        num_stages, num_microbatches = SMALL[index % len(SMALL)]
        num_operations = 2 * num_stages * num_microbatches
        schedule = ("1f1b", "gpipe")[index % 2]
        dag = perseus.PipelineDag.from_schedule(schedule, num_stages=num_stages, num_microbatches=num_microbatches)
        num_points = {12: 3, 10: 4, 8: 5}.get(num_operations, 6)
        profiles = random_profiles(random, num_stages, num_points)
        frontier = perseus.solve_frontier(dag, profiles)
        deadline_s = frontier.min_time_s + random.uniform() * (frontier.max_time_s - frontier.min_time_s)
        plan = frontier.plan_at(deadline_s)
        power_w = plan.blocking_power_w[dag.rank]
        mine_j = float((plan.energies_j - power_w * plan.durations_s).sum())
        least_j = brute_force_j(dag, profiles, deadline_s)
        bound_j = frontier.energy_at(deadline_s) - frontier.blocking_power_w * deadline_s
        assert plan.time_s <= deadline_s
        assert bound_j <= least_j + 1e-9 * abs(least_j)
        assert mine_j >= least_j - 1e-9 * abs(least_j)
        num_equal += mine_j <= least_j + 1e-9 * abs(least_j)
    assert num_equal >= 190


@pytest.mark.skipif(not DATA.exists(), reason="the measured profiles are not here: set PERSEUS_SHARED_DATA")
@pytest.mark.parametrize(
    ("gpu", "num_microbatches", "mean", "most"),
    [("a100", 12, 0.00045, 0.0015), ("a100", 24, 0.00045, 0.0015), ("a40", 12, 0.0008, 0.0045)],
)
def test_gaps_over_the_whole_frontier(gpu: str, num_microbatches: int, mean: float, most: float) -> None:
    name, power_w = GPUS[gpu]
    profiles = perseus.read_profiles(DATA / name, blocking_power_w=power_w)
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=num_microbatches)
    frontier = perseus.solve_frontier(dag, profiles)
    deadlines_s = np.linspace(frontier.min_time_s, frontier.max_time_s, 50)
    plans = [frontier.plan_at(deadline_s) for deadline_s in deadlines_s]
    assert all(plan.time_s <= deadline_s for plan, deadline_s in zip(plans, deadlines_s, strict=True))
    gaps = np.array([plan.gap for plan in plans])
    assert gaps.min() >= 0.0
    assert gaps.mean() <= mean
    assert gaps.max() <= most


@pytest.mark.skipif(not DATA.exists(), reason="the measured profiles are not here: set PERSEUS_SHARED_DATA")
@pytest.mark.parametrize(("gpu", "num_microbatches"), ROUNDED_SAVING)
def test_savings_at_the_shortest_time(gpu: str, num_microbatches: int) -> None:
    name, power_w = GPUS[gpu]
    profiles = perseus.read_profiles(DATA / name, blocking_power_w=power_w)
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=num_microbatches)
    frontier = perseus.solve_frontier(dag, profiles)
    assert 100 * frontier.plan_at(frontier.min_time_s).saving >= ROUNDED_SAVING[gpu, num_microbatches] - 0.005
