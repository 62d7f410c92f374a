"""Simulated iterations by hand-made examples."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import perseus
from perseus.errors import PlanError


def profiles(second_s: float = 2.0) -> perseus.Profiles:
    """Forward 1 or 2 s, backward 2 or 4 s; 40 or 80 J either way; 10 W while waiting."""
    return perseus.read_profiles(
        {
            "stage": [0, 0, 0, 0, 1, 1, 1, 1],
            "instruction": ["forward", "forward", "backward", "backward"] * 2,
            "frequency": [1400, 700] * 4,
            "time": [1.0, second_s, 2.0, 4.0] * 2,
            "energy": [40.0, 30.0, 80.0, 60.0] * 2,
        },
        blocking_power_w=10.0,
    )


@pytest.fixture
def dag() -> perseus.PipelineDag:
    return perseus.PipelineDag.from_schedule("1f1b", num_stages=2, num_microbatches=2)


def test_the_highest_clocks(dag: perseus.PipelineDag) -> None:
    plan = perseus.max_clock_plan(dag, profiles())
    run = perseus.simulate(dag, profiles(), plan)
    assert run.time_s == run.until_s == plan.time_s == 9.0
    assert run.energy_j == pytest.approx(plan.energy_j)
    assert run.compute_energy_j == run.max_clock_compute_energy_j == 480.0
    assert run.bloat_removed_j == 0.0
    assert_allclose(run.blocking_s, [3.0, 3.0])
    assert run.blocking_energy_j == pytest.approx(60.0)
    assert_array_equal(run.start_times_s, plan.start_times_s)
    # Rank 0 waits for the first backward of rank 1; rank 1 waits for the first forward and at the end.
    assert_array_equal(run.power_at([0.5, 3.0, 5.0]), [[40.0, 10.0, 40.0], [10.0, 40.0, 40.0]])
    assert_array_equal(run.power_at([-1.0, 9.0]), np.zeros((2, 2)))
    is_critical = {tuple(dag.operations[i])[:3] for i in np.flatnonzero(run.is_critical)}
    assert (0, 1, "forward") not in is_critical
    assert {(0, 0, "forward"), (1, 1, "backward"), (0, 1, "backward")} <= is_critical


def test_power_adds_up_to_energy(dag: perseus.PipelineDag) -> None:
    frontier = perseus.solve_frontier(dag, profiles())
    plan = frontier.plan_at(12.5, wait_until_s=15.0)
    run = perseus.simulate(dag, profiles(), plan)
    assert run.until_s == 15.0
    assert run.energy_j == pytest.approx(plan.energy_j)
    assert run.bloat_removed_j > 0.0
    steps_s = run.power_steps_s()
    middles_s = (steps_s[1:] + steps_s[:-1]) / 2
    assert float((run.power_at(middles_s) * np.diff(steps_s)).sum()) == pytest.approx(run.energy_j)


def test_newer_measurements(dag: perseus.PipelineDag) -> None:
    plan = perseus.solve_frontier(dag, profiles()).plan_at(18.0)
    run = perseus.simulate(dag, profiles(second_s=2.5), plan, wait_until_s=30.0)
    assert run.time_s > plan.time_s
    assert run.until_s == 30.0


def test_errors(dag: perseus.PipelineDag) -> None:
    plan = perseus.max_clock_plan(dag, profiles())
    other = perseus.PipelineDag.from_schedule("1f1b", num_stages=2, num_microbatches=3)
    with pytest.raises(PlanError, match="for 8 operations, the pipeline has 12"):
        perseus.simulate(other, profiles(), plan)
    with pytest.raises(PlanError, match="takes 9 s on this profile, but the straggler ends at 8 s"):
        perseus.simulate(dag, profiles(), plan, wait_until_s=8.0)
    table = {"stage": [0, 1] * 2, "instruction": ["forward", "forward", "backward", "backward"]}
    lower = perseus.read_profiles(
        {**table, "frequency": [900] * 4, "time": [1.0] * 4, "energy": [1.0] * 4}, blocking_power_w=10.0
    )
    with pytest.raises(PlanError, match=r"sets frequency=1400\.0 for"):
        perseus.simulate(dag, lower, plan)
