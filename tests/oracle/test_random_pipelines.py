"""Random pipelines against linear programs: nothing may be wrong, at any magnitude."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import Pipeline, pipelines
from linear_program import LinearProgram, lower_hull

import perseus


def check_against_program(frontier: perseus.Frontier, program: LinearProgram, fractions: list[float]) -> None:
    """Assert that shortest and longest time and the energies in between are those of the linear program."""
    assert frontier.min_time_s == pytest.approx(program.shortest_s, rel=1e-11)
    longest_s = program.longest_s
    effective_j = program.effective_energy_at(longest_s)
    # A rounding of slopes or times may cut a last, practically flat piece of the frontier.
    at_end_j = program.effective_energy_at(max(frontier.max_time_s, program.shortest_s))
    range_j = program.effective_energy_at(program.shortest_s * (1 + 1e-12)) - effective_j
    allowed_j = 1e-6 * (abs(range_j) + abs(effective_j) + program.instance.power_w * longest_s)
    assert frontier.max_time_s <= longest_s * (1 + 1e-11)
    assert at_end_j - effective_j <= allowed_j
    for fraction in fractions:
        time_s = program.shortest_s + fraction * (longest_s - program.shortest_s)
        time_s = max(time_s, frontier.min_time_s)
        assert frontier.energy_at(time_s) == pytest.approx(program.energy_at(time_s), rel=1e-6, abs=allowed_j)


@settings(max_examples=300)
@given(pipelines(), st.lists(st.floats(0.0, 1.1), min_size=2, max_size=4))
def test_energy_equals_the_linear_program(pipeline: Pipeline, fractions: list[float]) -> None:
    frontier = perseus.solve_frontier(pipeline.dag, pipeline.profiles)
    assert frontier.statistics["certified"]
    check_against_program(frontier, LinearProgram(pipeline.dag, pipeline.profiles), [0.0, 1.0, *fractions])


@settings(max_examples=150)
@given(pipelines(max_operations=40))
def test_both_max_flows_find_the_same_convex_frontier(pipeline: Pipeline) -> None:
    frontier = perseus.solve_frontier(pipeline.dag, pipeline.profiles, max_flow="augment")
    other = perseus.solve_frontier(pipeline.dag, pipeline.profiles, max_flow="push_relabel")
    assert np.array_equal(frontier.times_s, other.times_s)
    assert np.array_equal(frontier.energies_j, other.energies_j)
    assert (np.diff(frontier.times_s) > 0).all()
    effective_j = frontier.energies_j - frontier.blocking_power_w * frontier.times_s
    scale_j = np.abs(effective_j).max() + frontier.blocking_power_w * frontier.max_time_s
    assert (np.diff(effective_j) <= 1e-12 * scale_j).all()
    for here in range(1, len(effective_j) - 1):
        before, after = here - 1, here + 1
        share = (frontier.times_s[here] - frontier.times_s[before]) / (
            frontier.times_s[after] - frontier.times_s[before]
        )
        chord_j = (1 - share) * effective_j[before] + share * effective_j[after]
        assert effective_j[here] <= chord_j + 1e-12 * scale_j


@settings(max_examples=150)
@given(pipelines(), st.floats(0.0, 1.2))
def test_durations_and_plans(pipeline: Pipeline, fraction: float) -> None:
    dag, profiles = pipeline.dag, pipeline.profiles
    frontier = perseus.solve_frontier(dag, profiles)
    time_s = frontier.min_time_s + fraction * (frontier.max_time_s - frontier.min_time_s)
    durations_s = frontier.durations_at(time_s)
    assert dag.makespan_s(durations_s) <= time_s * (1 + 1e-9)
    energy_j = frontier.blocking_power_w * max(time_s, 0.0)
    for i, operation in enumerate(dag.operations):
        power_w = profiles.blocking_power_w[operation.stage]
        if np.isnan(dag.fixed_time_s[i]):
            curve = profiles.curve(operation.stage, operation.kind)
            energy_j += np.interp(durations_s[i], curve.times_s, curve.effective_energies_j)
        else:
            assert durations_s[i] == pytest.approx(dag.fixed_time_s[i], rel=1e-11)
            energy_j += dag.fixed_energy_j[i] - power_w * dag.fixed_time_s[i]
    # Energies are differences of larger numbers: effective energy and blocking energy.
    scale_j = np.abs(frontier._effective_j).max() + frontier.blocking_power_w * max(time_s, frontier.max_time_s)
    assert energy_j == pytest.approx(frontier.energy_at(time_s), rel=1e-6, abs=1e-6 * scale_j)
    plan = frontier.plan_at(time_s)
    assert plan.time_s <= max(time_s, frontier.min_time_s)
    assert plan.energy_j >= frontier.energy_at(plan.time_s) - 1e-9 * scale_j
    later_s = 1.5 * time_s
    waiting_j = frontier.energy_at(time_s, wait_until_s=later_s) - frontier.energy_at(time_s)
    assert waiting_j == pytest.approx(frontier.blocking_power_w * (later_s - time_s), rel=1e-9, abs=1e-12 * scale_j)


def test_the_oracle_notices_wrong_answers() -> None:
    """The checks above fail for an energy that is off by 1e-5, and for a frontier that ends too early."""
    columns = {"stage": [0, 0, 0], "kind": ["F"] * 3, "frequency": [3, 2, 1], "time": [1, 2, 4], "energy": [9, 6, 5]}
    profiles = perseus.read_profiles(columns, blocking_power_w=0.25)
    dag = perseus.PipelineDag.from_orders([["F0", "F1"]])
    program = LinearProgram(dag, profiles)
    frontier = perseus.solve_frontier(dag, profiles)
    check_against_program(frontier, program, [0.3, 0.7])
    off = perseus.solve_frontier(dag, profiles)
    off._effective_j = off._effective_j * (1 + 1e-5)
    with pytest.raises(AssertionError):
        check_against_program(off, program, [0.3])
    shorter = perseus.solve_frontier(dag, profiles)
    shorter.times_s = shorter.times_s[1:]
    shorter._effective_j = shorter._effective_j[1:]
    with pytest.raises(AssertionError):
        check_against_program(shorter, program, [0.3])


def test_the_hull_of_the_oracle() -> None:
    assert lower_hull([(1, 9), (2, 6), (2, 7), (3, 5), (4, 2), (5, 2), (6, 3)]) == [(1, 9), (2, 6), (4, 2)]
    assert lower_hull([(2, 5), (1, 4), (1, 3)]) == [(1, 3)]


def test_the_linear_program_by_hand() -> None:
    """Two operations in a row with slopes 3 and 0.5: the cheaper one gives way first."""
    columns = {"stage": [0, 0, 1, 1], "kind": ["F"] * 4, "frequency": [2, 1, 2, 1]}
    columns |= {"time": [1, 2, 1, 3], "energy": [5, 2, 3, 2]}  # type: ignore[dict-item]
    profiles = perseus.read_profiles(columns, blocking_power_w=0.0)
    dag = perseus.PipelineDag.from_orders([["F0"], ["F0"]])
    program = LinearProgram(dag, profiles)
    assert program.shortest_s == 2
    assert program.longest_s == 5
    assert [program.energy_at(t) for t in (5, 4, 3, 2.5, 2)] == pytest.approx([4, 4.5, 5, 6.5, 8])
