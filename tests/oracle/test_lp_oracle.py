"""The linear program that frontiers are held against, held against brute force and against mutations of itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import linear_program
import networkx as nx
import numpy as np
import pytest
from brute_force import BruteForce, mixture_energy
from hypothesis import assume, given, settings
from instances import Pipeline, whole_pipelines
from linear_program import Instance, LinearProgram, lower_hull

import perseus

MOST_COMBINATIONS = 20_000


def check_against_brute_force(dag: perseus.PipelineDag, profiles: perseus.Profiles) -> None:
    """Assert that the linear program gives the energies that trying all durations gives."""
    brute = BruteForce(dag, profiles)
    program = LinearProgram(dag, profiles)
    assert program.shortest_s == brute.shortest
    energies_j = {time_s: brute.energy_at(time_s) for time_s in range(brute.shortest, int(program.longest_s) + 3)}
    for time_s, energy_j in energies_j.items():
        assert program.energy_at(time_s) == pytest.approx(energy_j, rel=1e-9, abs=1e-9)
        bounds = program.bounds_at(time_s)
        effective_j = energy_j - program.instance.power_w * time_s
        assert bounds.lower_j - 1e-9 <= effective_j <= bounds.upper_j + 1e-9
    assert energies_j[int(program.longest_s)] - program.instance.power_w * program.longest_s == pytest.approx(
        brute.energy_at(10**6) - program.instance.power_w * 10**6, abs=1e-6
    )
    assert program.least_energy_bound() == pytest.approx(min(energies_j.values()), rel=1e-9, abs=1e-9)


@settings(max_examples=150)
@given(whole_pipelines())
def test_the_linear_program_equals_brute_force(pipeline: Pipeline) -> None:
    assume(BruteForce.count(pipeline.dag, pipeline.profiles) <= MOST_COMBINATIONS)
    check_against_brute_force(pipeline.dag, pipeline.profiles)


@settings(max_examples=100)
@given(whole_pipelines())
def test_the_frontier_equals_brute_force(pipeline: Pipeline) -> None:
    assume(BruteForce.count(pipeline.dag, pipeline.profiles) <= MOST_COMBINATIONS)
    brute = BruteForce(pipeline.dag, pipeline.profiles)
    frontier = perseus.solve_frontier(pipeline.dag, pipeline.profiles)
    assert frontier.min_time_s == pytest.approx(brute.shortest, rel=1e-12, abs=0.0)
    for time_s in range(brute.shortest, int(frontier.max_time_s) + 3):
        time_s = max(float(time_s), frontier.min_time_s)
        energy_j = brute.energy_at(round(time_s))
        assert frontier.energy_at(time_s) == pytest.approx(energy_j, rel=1e-10, abs=1e-8)


def diamond(latency_s: float = 2.0, *, edge: bool = True, steeper_j: float = 0.0, power_w: float = 0.5) -> Pipeline:
    """Two branches with curves of their own, one behind a latency, joined by an operation of fixed time."""
    points = {  # stage: (time, energy)
        0: [(2, 40), (3, 31), (4, 30.5), (5, 24)],  # (4, 30.5) is above the hull
        1: [(1, 30 + steeper_j), (2, 22), (4, 14)],
        2: [(3, 25), (5, 19), (6, 20)],  # (6, 20) pays only by what it saves in blocking
    }
    columns: dict[str, list[float | str]] = {name: [] for name in ("stage", "kind", "frequency", "time", "energy")}
    for stage, menu in points.items():
        for clock, point in enumerate(menu):
            for column, value in zip(columns.values(), (stage, "F", 1500 - clock, *point), strict=True):
                column.append(value)
    graph = nx.DiGraph()
    graph.add_nodes_from((i, {"stage": i, "kind": "forward", "microbatch": 0}) for i in range(3))
    graph.add_node(3, stage=0, kind="optimizer", fixed_time_s=1.0, fixed_energy_j=7.0)
    graph.add_edge(0, 1, latency_s=latency_s)
    graph.add_edges_from([(0, 2), (1, 3), (2, 3)] if edge else [(1, 3), (2, 3)])
    profiles = perseus.read_profiles(columns, blocking_power_w={0: power_w, 1: 2.0, 2: 1.5})
    return Pipeline(perseus.PipelineDag.from_networkx(graph), profiles)


def all_points(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Like `lower_hull`, but keeps points above the hull."""
    result = [min(points)]
    for time, energy in sorted(points):
        if energy < result[-1][1]:
            result.append((time, energy))
    return result


def changed(change: Callable[[Instance], dict[str, object]]) -> Callable[..., Instance]:
    """Return `Instance.of` with a fault."""
    right = Instance.of

    def of(dag: perseus.PipelineDag, profiles: perseus.Profiles, longest_time: float) -> Instance:
        instance = right(dag, profiles, longest_time)
        return dataclasses.replace(instance, **change(instance))  # type: ignore[arg-type]

    return of


FAULTS: dict[str, Callable[[Instance], dict[str, object]]] = {
    "an edge is lost": lambda i: {"edges": i.edges[1:], "latency": i.latency[1:]},
    "latencies are lost": lambda i: {"latency": 0.0 * i.latency},
    "blocking power is lost": lambda i: {"power_w": 0.0},
    "the fastest point is lost": lambda i: {"hulls": [h[1:] if len(h) > 2 else h for h in i.hulls]},
    "the slowest point is lost": lambda i: {"hulls": [h[:-1] if len(h) > 2 else h for h in i.hulls]},
    "an energy is off by a millionth": lambda i: {"hulls": [[(t, e * (1 + 1e-6)) for t, e in h] for h in i.hulls]},
    "fixed operations take no time": lambda i: {"hulls": [h if len(h) > 1 else [(0.0, h[0][1])] for h in i.hulls]},
}


def test_the_unchanged_oracle_passes() -> None:
    check_against_brute_force(diamond().dag, diamond().profiles)


@pytest.mark.parametrize("fault", FAULTS)
def test_brute_force_notices_a_fault_of_the_oracle(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Instance, "of", changed(FAULTS[fault]))
    with pytest.raises(AssertionError):
        check_against_brute_force(diamond().dag, diamond().profiles)


def test_brute_force_notices_points_above_the_hull(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_program, "lower_hull", all_points)
    with pytest.raises(AssertionError):
        check_against_brute_force(diamond().dag, diamond().profiles)


@pytest.mark.parametrize(
    "change", [{"latency_s": 4.0}, {"edge": False}, {"steeper_j": 5.0}, {"power_w": 4.0}], ids=lambda c: next(iter(c))
)
def test_a_changed_pipeline_and_back(change: dict[str, float]) -> None:
    """Change the pipeline, solve again, and change it back: solver, oracle and brute force all follow."""
    before, after, again = diamond(), diamond(**change), diamond()  # type: ignore[arg-type]
    frontiers = [perseus.solve_frontier(p.dag, p.profiles) for p in (before, after, again)]
    times_s = range(6, 16)
    energies_j = [[f.energy_at(max(t, f.min_time_s)) for t in times_s] for f in frontiers]
    assert energies_j[0] != pytest.approx(energies_j[1], rel=1e-3)
    assert energies_j[0] == energies_j[2]
    for pipeline, found_j in zip((before, after), energies_j, strict=False):
        check_against_brute_force(pipeline.dag, pipeline.profiles)
        brute = BruteForce(pipeline.dag, pipeline.profiles)
        expected_j = [brute.energy_at(max(t, brute.shortest)) for t in times_s]
        assert found_j == pytest.approx(expected_j, rel=1e-12)


def test_bounds_of_a_worse_answer_still_enclose() -> None:
    """The bounds hold for any hint: here all flows a tenth too large, and all start times too early or too late."""
    program = LinearProgram(diamond().dag, diamond().profiles)
    exact_j = program.bounds_at(10.5)
    network, deadline = program.network, linear_program.whole(10.5 / program.instance.time_unit, 100)
    edge_flow, through = program._flows()
    scaled, flow = network.conserving([f * 11 // 10 for f in edge_flow], [f * 11 // 10 for f in through[:3]] + [0])
    scaled, flow = network.conserving(scaled, [0, 0, 0, through[3] * 11 // 10])
    lower_j = program._joules(network.dual_constant(scaled, flow) - flow[3] * deadline)
    assert lower_j < exact_j.lower_j
    for start in (0, deadline):
        assert program._joules(network.upper_bound([start] * 4, deadline)) >= exact_j.upper_j * (1 - 1e-12)


def test_the_hull_of_the_oracle() -> None:
    assert lower_hull([(1, 9), (2, 6), (2, 7), (3, 5), (4, 2), (5, 2), (6, 3)]) == [(1, 9), (2, 6), (4, 2)]
    assert lower_hull([(2, 5), (1, 4), (1, 3)]) == [(1, 3)]


def test_mixtures_by_hand() -> None:
    points = [(1.0, 9.0), (3.0, 8.0), (5.0, 1.0), (6.0, 4.0)]
    assert [mixture_energy(points, d) for d in (0, 1, 2, 3, 4, 5, 6, 7)] == [np.inf, 9, 7, 5, 3, 1, 1, 1]


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
    assert program.least_energy_bound() == pytest.approx(4)
