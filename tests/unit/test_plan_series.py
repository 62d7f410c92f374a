"""Plans along a frontier, and ways to choose among them."""

from __future__ import annotations

import numpy as np
import pytest

import perseus
from perseus.errors import InfeasibleTimeError, PlanError


@pytest.fixture(scope="module")
def frontier() -> perseus.Frontier:
    profiles = perseus.read_profiles(perseus.example_profile_path(), blocking_power_w=75.0)
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=4, num_microbatches=6)
    return perseus.solve_frontier(dag, profiles)


@pytest.fixture(scope="module")
def plans(frontier: perseus.Frontier) -> perseus.PlanSeries:
    return frontier.plans(15, effort="fast")


def until_common_time_j(plans: perseus.PlanSeries) -> list[float]:
    end_s = plans[-1].time_s
    return [p.energy_j + float(p.blocking_power_w.sum()) * (end_s - p.time_s) for p in plans]


def test_slower_never_costs_more(plans: perseus.PlanSeries, frontier: perseus.Frontier) -> None:
    assert len(plans) > 10
    assert (np.diff(plans.times_s) > 0.0).all()
    assert (np.diff(until_common_time_j(plans)) < 0.0).all()
    assert plans[0].time_s == pytest.approx(frontier.min_time_s)
    assert plans.gaps.max() < 0.02
    assert [plan.time_s for plan in plans[:2]] == plans.times_s[:2].tolist()


def test_as_many_threads_as_you_like(frontier: perseus.Frontier) -> None:
    one, three = (frontier.plans(step_s=0.2, workers=workers) for workers in (1, 3))
    assert one.times_s.tolist() == three.times_s.tolist()
    assert one.energies_j.tolist() == three.energies_j.tolist()
    assert (np.diff([plan.deadline_s for plan in one]) <= 0.2 + 1e-9).all()


def test_choosing(plans: perseus.PlanSeries) -> None:
    times_s, energies_j = plans.times_s, plans.energies_j
    assert plans.within((times_s[3] + times_s[4]) / 2) is plans[3]
    assert plans.within(times_s[4]) is plans[4]
    assert plans.within(1e9) is plans[-1]
    assert plans.within_slowdown(1.0) is plans[0]
    assert plans.least_energy() is plans[int(energies_j.argmin())]
    assert plans.within_power(1e9) is plans[0]
    cap_w = energies_j[5] / times_s[5]
    assert plans.within_power(cap_w).time_s <= times_s[5]
    assert plans.within_power(cap_w).energy_j / plans.within_power(cap_w).time_s <= cap_w
    assert plans.cheapest(price_per_kwh=0.1, price_per_hour=0.0) is plans.least_energy()
    assert plans.cheapest(price_per_kwh=0.1, price_per_hour=1e6) is plans[0]
    assert plans.least_carbon(grid_g_per_kwh=400.0) is plans.least_energy()
    assert plans.least_carbon(grid_g_per_kwh=400.0, embodied_g_per_hour=1e3).time_s <= plans.least_energy().time_s


def test_stragglers(plans: perseus.PlanSeries) -> None:
    until_s = (plans.times_s[6] + plans.times_s[7]) / 2
    waiting = plans.for_straggler(until_s)
    assert (waiting.time_s, waiting.wait_until_s) == (plans[6].time_s, until_s)
    more_j = float(waiting.blocking_power_w.sum()) * (until_s - waiting.time_s)
    assert waiting.energy_j == pytest.approx(plans[6].energy_j + more_j)
    assert plans.for_straggler(0.0) is plans[0]


def test_knee(frontier: perseus.Frontier) -> None:
    knee_s = frontier.knee()
    assert frontier.min_time_s < knee_s < frontier.min_energy_time_s
    least_j, most_j = float(frontier.energies_j.min()), float(frontier.energies_j[0])
    share = (knee_s - frontier.min_time_s) / (frontier.min_energy_time_s - frontier.min_time_s)
    assert (most_j - frontier.energy_at(knee_s)) / (most_j - least_j) > share + 0.2
    rows = {"stage": [0], "instruction": ["forward"], "frequency": [1], "time": [1.0], "energy": [1.0]}
    single = perseus.read_profiles(
        {k: v * 2 for k, v in rows.items()} | {"instruction": ["forward", "backward"]}, blocking_power_w=0.0
    )
    dag = perseus.PipelineDag.from_schedule("gpipe", num_stages=1, num_microbatches=1)
    point = perseus.solve_frontier(dag, single)
    assert point.knee() == point.min_time_s
    assert len(point.plans(5)) == 1


def test_errors(frontier: perseus.Frontier, plans: perseus.PlanSeries) -> None:
    with pytest.raises(PlanError, match="exclude each other"):
        frontier.plans(3, step_s=0.1)
    with pytest.raises(PlanError, match="n=0 is not"):
        frontier.plans(0)
    with pytest.raises(PlanError, match=r"step_s=-1\.0 is not"):
        frontier.plans(step_s=-1.0)
    with pytest.raises(PlanError, match="effort='slow' is unknown"):
        frontier.plans(3, effort="slow")  # type: ignore[arg-type]
    with pytest.raises(InfeasibleTimeError, match="the shortest plan takes"):
        plans.within(0.01)
    with pytest.raises(PlanError, match="raise the cap"):
        plans.within_power(1.0)
    with pytest.raises(PlanError, match=r"slowdown is 0\.5"):
        plans.within_slowdown(0.5)
    with pytest.raises(PlanError, match=r"price_per_hour is -1\.0"):
        plans.cheapest(price_per_kwh=1.0, price_per_hour=-1.0)
