"""The measured GPT-3 175B profiles of SOSP'24: the frontier against linear programs, and the plans' bars."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from linear_program import LinearProgram

import perseus

A100 = ("sosp24/gpt3-175b_a100-sxm_pp8_tp8.csv", 83.64)
A40 = ("sosp24/gpt3-175b_a40_pp8_tp8.csv", 70.38)

# Energy (J) at 12 equal steps from the shortest to the longest time, from a research prototype and LPs.
CHECK_VALUES_J = {
    12: [6160.42, 5771.63, 5632.57, 5594.50, 5595.24, 5624.35, 5672.43, 5736.94, 5811.33, 5890.43, 5970.19, 6050.53],
    96: [
        *[46553.85, 43088.70, 40957.86, 39584.55, 39472.19, 39507.36],
        *[39709.62, 39918.96, 40145.15, 40499.25, 40940.37, 41384.39],
    ],
}


def solve(
    shared_data: Path, profile: tuple[str, float], num_microbatches: int, **options: object
) -> tuple[perseus.PipelineDag, perseus.Profiles, perseus.Frontier]:
    profiles = perseus.read_profiles(shared_data / profile[0], blocking_power_w=profile[1])
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=num_microbatches)
    return dag, profiles, perseus.solve_frontier(dag, profiles, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("num_microbatches", [12, 96])
@pytest.mark.parametrize("profile", [A100, A40], ids=["a100", "a40"])
def test_energy_equals_the_linear_program(shared_data: Path, profile: tuple[str, float], num_microbatches: int) -> None:
    dag, profiles, frontier = solve(shared_data, profile, num_microbatches)
    assert frontier.statistics["certified"]
    program = LinearProgram(dag, profiles)
    assert frontier.min_time_s == pytest.approx(program.shortest_s, rel=1e-12)
    assert frontier.max_time_s == pytest.approx(program.longest_s, rel=1e-12)
    for time_s in np.linspace(frontier.min_time_s, frontier.max_time_s, 20)[::-1]:
        expected_j = program.energy_at(max(time_s, program.shortest_s))
        assert frontier.energy_at(time_s) == pytest.approx(expected_j, rel=1e-9)
        bounds, waiting_j = program.bounds_at(max(time_s, program.shortest_s)), 8 * profile[1] * time_s
        assert bounds.lower_j + waiting_j <= frontier.energy_at(time_s) * (1 + 1e-11)
        assert bounds.upper_j + waiting_j >= frontier.energy_at(time_s) * (1 - 1e-11)
    assert frontier.energies_j.min() == pytest.approx(program.least_energy_bound(), rel=1e-10)


@pytest.mark.parametrize("num_microbatches", [12, 96])
@pytest.mark.parametrize("max_flow", ["augment", "push_relabel"])
@pytest.mark.parametrize("splice", [False, True])
def test_check_values(shared_data: Path, num_microbatches: int, max_flow: str, splice: bool) -> None:
    _, _, frontier = solve(shared_data, A100, num_microbatches, max_flow=max_flow, splice=splice)
    times_s = np.linspace(frontier.min_time_s, frontier.max_time_s, 12)
    energies_j = [frontier.energy_at(t) for t in times_s]
    assert energies_j == pytest.approx(CHECK_VALUES_J[num_microbatches], abs=0.006)
    assert len(frontier) == {12: 537, 96: 622}[num_microbatches]
    if num_microbatches == 12:
        assert frontier.min_time_s == pytest.approx(2.8365, abs=5e-5)
        assert frontier.max_time_s == pytest.approx(4.2442, abs=5e-5)


@pytest.mark.parametrize("num_microbatches", [12, 96])
def test_durations_are_feasible_and_cost_what_is_said(shared_data: Path, num_microbatches: int) -> None:
    dag, profiles, frontier = solve(shared_data, A100, num_microbatches)
    middles_s = (frontier.times_s[1:] + frontier.times_s[:-1]) / 2
    for time_s in [*frontier.times_s[::97], *middles_s[::89], frontier.max_time_s, 1.1 * frontier.max_time_s]:
        durations_s = frontier.durations_at(time_s)
        assert dag.makespan_s(durations_s) <= time_s * (1 + 1e-9)
        effective_j = 0.0
        for (stage, kind), curve in {key: profiles.curve(*key) for key in profiles.keys}.items():
            mine = (dag.stage == stage) & (dag.kind_code == dag.kinds.index(kind))
            effective_j += np.interp(durations_s[mine], curve.times_s, curve.effective_energies_j).sum()
        assert effective_j + 8 * 83.64 * time_s == pytest.approx(frontier.energy_at(time_s), rel=1e-9)


@pytest.mark.parametrize(("num_microbatches", "num_times", "saving"), [(12, 50, 0.159), (96, 50, 0.135)])
def test_plans_are_close_to_the_bound(shared_data: Path, num_microbatches: int, num_times: int, saving: float) -> None:
    dag, _, frontier = solve(shared_data, A100, num_microbatches)
    gaps = []
    for time_s in np.linspace(frontier.min_time_s, frontier.max_time_s, num_times):
        plan = frontier.plan_at(time_s)
        assert plan.time_s <= time_s
        assert dag.makespan_s(plan.durations_s) <= time_s * (1 + 1e-12)
        assert plan.lower_bound_j <= plan.energy_j
        gaps.append(plan.gap)
    assert np.mean(gaps) <= 0.0015
    assert max(gaps) <= 0.0025
    assert frontier.plan_at(frontier.min_time_s).saving >= saving


def test_solve_at_agrees(shared_data: Path) -> None:
    dag, profiles, frontier = solve(shared_data, A100, 96)
    for time_s in np.linspace(frontier.min_time_s, 1.1 * frontier.max_time_s, 7):
        optimum = perseus.solve_at(dag, profiles, time_s)
        assert optimum.energy_j == pytest.approx(frontier.energy_at(time_s), rel=1e-12)
        assert dag.makespan_s(optimum.durations_s) <= time_s * (1 + 1e-12)
    with pytest.raises(perseus.InfeasibleTimeError) as caught:
        perseus.solve_at(dag, profiles, 0.99 * frontier.min_time_s)
    assert caught.value.min_time_s == frontier.min_time_s
