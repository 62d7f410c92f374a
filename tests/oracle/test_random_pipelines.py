"""Random pipelines against linear programs: nothing may be wrong, at any magnitude."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from instances import Pipeline, pipelines
from linear_program import LinearProgram

import perseus

# Times are whole multiples of a decimal quantum of which the longest path has at least 4e14, and are rounded up.
QUANTUM = 2.5e-15


def check_against_program(frontier: perseus.Frontier, program: LinearProgram, fractions: list[float]) -> None:
    """Assert that shortest and longest time and the energies in between are those of the linear program.

    The energy for a time must be at most the least one for the time shortened by the rounding of all operations' times
    (near the shortest time: at most what that rounding is worth on the steepest curves), and at least the one for the
    time lengthened by as much. Beyond that, slopes may be rounded by 1e-9 of what all energies vary by, and energies as
    doubles are.
    """
    size = program.instance
    rounding_s = (frontier.dag.num_operations + 2) * QUANTUM * program.longest_s
    assert abs(frontier.min_time_s - program.shortest_s) <= rounding_s
    assert frontier.max_time_s <= program.longest_s + rounding_s
    for fraction in fractions:
        time_s = program.shortest_s + fraction * (program.longest_s - program.shortest_s)
        time_s = max(time_s, frontier.min_time_s)
        waiting_j = frontier.blocking_power_w * time_s
        allowed_j = 1e-9 * size.range_j + 1e-14 * (size.size_j + waiting_j)
        effective_j = frontier.energy_at(time_s) - waiting_j
        assert effective_j >= program.bounds_at(time_s + rounding_s).lower_j - allowed_j
        if time_s - rounding_s < program.shortest_s:
            allowed_j += rounding_s * size.steepest_w
        assert effective_j <= program.bounds_at(max(time_s - rounding_s, program.shortest_s)).upper_j + allowed_j


def check_least_energy(frontier: perseus.Frontier, program: LinearProgram) -> None:
    """Assert that no iteration time at all has less energy than T*."""
    least_j = frontier.energy_at(frontier.min_energy_time_s)
    assert least_j == pytest.approx(frontier.energies_j.min(), rel=1e-14)
    size_j = program.instance.size_j + frontier.blocking_power_w * frontier.max_time_s
    allowed_j = 1e-9 * program.instance.range_j + 1e-13 * size_j
    # That this energy is possible at T* is checked above, where T* is one of the times.
    rounding_s = (frontier.dag.num_operations + 2) * QUANTUM * program.longest_s
    at_shortest_j = rounding_s * program.instance.steepest_w
    bound_j = program.least_energy_bound()
    assert bound_j - allowed_j <= least_j <= bound_j + allowed_j + at_shortest_j


@settings(max_examples=300)
@given(pipelines(), st.lists(st.floats(0.0, 1.1), min_size=2, max_size=4))
def test_energy_equals_the_linear_program(pipeline: Pipeline, fractions: list[float]) -> None:
    frontier = perseus.solve_frontier(pipeline.dag, pipeline.profiles)
    assert frontier.statistics["certified"]
    program = LinearProgram(pipeline.dag, pipeline.profiles)
    check_against_program(frontier, program, [0.0, 1.0, *fractions])
    check_least_energy(frontier, program)


@settings(max_examples=300)
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
    assert (np.diff(frontier._slopes_w) < 0).all()
    for here in range(1, len(effective_j) - 1):
        before, after = here - 1, here + 1
        span_s = frontier.times_s[after] - frontier.times_s[before]
        share = (frontier.times_s[here] - frontier.times_s[before]) / span_s
        chord_j = (1 - share) * effective_j[before] + share * effective_j[after]
        # Times are doubles: on a steep curve the last bits of one are worth much energy.
        slope_w = (effective_j[before] - effective_j[after]) / span_s
        assert effective_j[here] <= chord_j + 2.0**-50 * (scale_j + frontier.times_s[after] * slope_w)


@settings(max_examples=300)
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
    """The checks above fail for an energy that is off by 1e-8, and for a frontier that ends too early."""
    columns = {"stage": [0, 0, 0], "kind": ["F"] * 3, "frequency": [3, 2, 1], "time": [1, 2, 4], "energy": [9, 6, 5]}
    profiles = perseus.read_profiles(columns, blocking_power_w=0.25)
    dag = perseus.PipelineDag.from_orders([["F0", "F1"]])
    program = LinearProgram(dag, profiles)
    frontier = perseus.solve_frontier(dag, profiles)
    check_against_program(frontier, program, [0.3, 0.7])
    off = perseus.solve_frontier(dag, profiles)
    off._effective_j = off._effective_j * (1 + 1e-8)
    with pytest.raises(AssertionError):
        check_against_program(off, program, [0.3])
    shorter = perseus.solve_frontier(dag, profiles)
    shorter.times_s = shorter.times_s[1:]
    shorter._effective_j = shorter._effective_j[1:]
    with pytest.raises(AssertionError):
        check_against_program(shorter, program, [0.3])


@settings(max_examples=300)
@given(pipelines(max_operations=40), st.sampled_from([1 - 1e-9, 0.9, 0.5, 0.0, -1.0]))
def test_times_below_the_shortest_are_refused(pipeline: Pipeline, share: float) -> None:
    frontier = perseus.solve_frontier(pipeline.dag, pipeline.profiles)
    assume(frontier.min_time_s > 0.0)
    for ask in (frontier.energy_at, frontier.durations_at, frontier.plan_at):
        with pytest.raises(perseus.InfeasibleTimeError) as caught:
            ask(share * frontier.min_time_s)
        assert caught.value.min_time_s == frontier.min_time_s


@settings(max_examples=40)
@given(pipelines(max_operations=150))
def test_long_and_wide_pipelines(pipeline: Pipeline) -> None:
    frontier = perseus.solve_frontier(pipeline.dag, pipeline.profiles)
    assert frontier.statistics["certified"]
    program = LinearProgram(pipeline.dag, pipeline.profiles)
    check_against_program(frontier, program, [0.0, 0.2, 0.6, 1.0, 1.2])
    check_least_energy(frontier, program)
