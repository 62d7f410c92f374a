"""Plans of random pipelines: within the deadline, above the bound, no worse than rounding down, near brute force."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

import perseus
from perseus.plan import make_plan

NAMES = ("start_times_s", "durations_s", "energies_j", "blocking_power_w")


class Case(NamedTuple):
    dag: perseus.PipelineDag
    profiles: perseus.Profiles
    share: float
    """Of the way from the shortest time to the longest."""

    def deadline_s(self, frontier: perseus.Frontier) -> float:
        # Exactly the longest time, not a last bit less: that bit would cost a whole step of some clock.
        if self.share == 1.0:
            return frontier.max_time_s
        return frontier.min_time_s + self.share * (frontier.max_time_s - frontier.min_time_s)


@st.composite
def random_profiles(draw: st.DrawFn, num_stages: int, most_points: int) -> perseus.Profiles:
    """Points of decreasing clock: slower, and of any energy; times and energies of any magnitude."""
    time_unit_s, energy_unit_j = (10.0 ** draw(st.integers(-6, 3)) for _ in range(2))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    rows: dict[str, list[object]] = {"stage": [], "instruction": [], "frequency": [], "time": [], "energy": []}
    for stage, kind in itertools.product(range(num_stages), ("forward", "backward")):
        num_points = random.integers(1, most_points + 1)
        times_s = (1.0 + np.cumsum(random.uniform(0.02, 0.4, num_points))) * time_unit_s
        energies_j = random.uniform(0.5, 2.0) * np.linspace(2.0, 1.0, num_points) + random.uniform(0, 0.1, num_points)
        for point in range(num_points):
            row = (stage, kind, 1500 - 15 * point, times_s[point], energies_j[point] * energy_unit_j)
            for column, value in zip(rows.values(), row, strict=True):
                column.append(value)
    blocking_w = draw(st.sampled_from([0.0, 0.3])) * energy_unit_j / time_unit_s
    return perseus.read_profiles(rows, blocking_power_w=blocking_w)


@st.composite
def small_cases(draw: st.DrawFn) -> Case:
    """At most 8 operations with at most 4 choices each."""
    num_stages, num_microbatches = draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1)]))
    dag = perseus.PipelineDag.from_schedule(
        draw(st.sampled_from(["gpipe", "1f1b"])), num_stages=num_stages, num_microbatches=num_microbatches
    )
    return Case(dag, draw(random_profiles(num_stages, 4)), draw(st.integers(0, 100)) / 100)


@st.composite
def small_graphs(draw: st.DrawFn) -> Case:
    """At most 7 operations in any DAG, with latencies, and operations of fixed time that may be zero."""
    profiles = draw(random_profiles(2, 4))
    unit_s = float(profiles[0, "forward"].times_s[0])
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    graph: nx.DiGraph[int] = nx.DiGraph()
    size = draw(st.integers(1, 7))
    for node in range(size):
        fixed = {"fixed_time_s": random.choice([0.0, 0.7]) * unit_s, "fixed_energy_j": random.uniform(0, 2)}
        kind = str(random.choice(["forward", "backward", "load"]))
        graph.add_node(
            node, stage=int(random.integers(2)), kind=kind, microbatch=node, **(fixed if kind == "load" else {})
        )
    for before, after in itertools.combinations(random.permutation(size).tolist(), 2):
        if random.random() < 0.4:
            graph.add_edge(before, after, latency_s=random.choice([0.0, 0.3]) * unit_s)
    return Case(perseus.PipelineDag.from_networkx(graph), profiles, draw(st.integers(0, 100)) / 100)


@st.composite
def pipelines(draw: st.DrawFn) -> Case:
    num_stages = draw(st.integers(1, 5))
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=num_stages, num_microbatches=draw(st.integers(1, 12)))
    return Case(dag, draw(random_profiles(num_stages, 20)), draw(st.integers(0, 120)) / 100)


def energies_of(plan: perseus.FrequencyPlan) -> NDArray[np.float64]:
    return plan.energies_j - plan.blocking_power_w[plan.dag.rank] * plan.durations_s


def effective_energy_j(plan: perseus.FrequencyPlan) -> float:
    return float(energies_of(plan).sum())


def choices_of(case: Case, index: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times (s) and effective energies (J) that an operation can choose from."""
    dag, profiles = case.dag, case.profiles
    operation = dag.operations[index]
    if np.isnan(dag.fixed_time_s[index]):
        profile = profiles[operation.stage, operation.kind]
        times_s, energies_j = profile.times_s, profile.energies_j
    else:
        times_s, energies_j = dag.fixed_time_s[[index]], dag.fixed_energy_j[[index]]
    return times_s, energies_j - profiles.blocking_power_w[operation.stage] * times_s


def brute_force_j(case: Case, deadline_s: float) -> float:
    """Return the least effective energy of all choices that meet the deadline."""
    dag = case.dag
    points = [choices_of(case, index) for index in range(dag.num_operations)]
    combinations = np.array(list(itertools.product(*(range(len(times_s)) for times_s, _ in points))))
    energies_j = np.sum([e[c] for (_, e), c in zip(points, combinations.T, strict=True)], axis=0)
    finish_s = np.zeros((dag.num_operations, len(combinations)))
    for v in dag.topological_order():
        into = dag.edges[:, 1] == v
        ready_s = finish_s[dag.edges[into, 0]] + dag.latency_s[into, np.newaxis]
        finish_s[v] = points[v][0][combinations[:, v]] + ready_s.max(axis=0, initial=0.0)
    return float(energies_j[finish_s.max(axis=0) <= deadline_s * (1.0 + 1e-12)].min())


def rounded_down_j(case: Case, frontier: perseus.Frontier, deadline_s: float) -> float:
    """Return the effective energy when each operation takes the best choice within its optimal duration."""
    total_j = 0.0
    for index, planned_s in enumerate(frontier.durations_at(deadline_s)):
        times_s, effective_j = choices_of(case, index)
        total_j += float(effective_j[times_s <= planned_s].min(initial=effective_j[0]))
    return total_j


@settings(deadline=None, max_examples=150)
@given(st.one_of(small_cases(), small_graphs()))
def test_small_plans_lie_between_brute_force_and_rounding_down(case: Case) -> None:
    frontier = perseus.solve_frontier(case.dag, case.profiles)
    deadline_s = case.deadline_s(frontier)
    plan = frontier.plan_at(deadline_s)
    assert plan.time_s <= deadline_s
    least_j, most_j = brute_force_j(case, deadline_s), rounded_down_j(case, frontier, deadline_s)
    slip_j = 1e-9 * (abs(least_j) + abs(most_j))
    assert least_j - slip_j <= effective_energy_j(plan) <= most_j + slip_j
    assert plan.lower_bound_j <= plan.energy_j


@settings(deadline=None, max_examples=100)
@given(pipelines())
def test_plans_of_any_pipeline(case: Case) -> None:
    dag, profiles = case.dag, case.profiles
    frontier = perseus.solve_frontier(dag, profiles)
    deadline_s = case.deadline_s(frontier)
    plan = frontier.plan_at(deadline_s)
    assert plan.time_s <= plan.deadline_s <= deadline_s
    assert plan.time_s == pytest.approx(dag.makespan_s(plan.durations_s), rel=1e-12)
    np.testing.assert_allclose(plan.start_times_s, dag.earliest_starts(plan.durations_s), atol=1e-12 * plan.time_s)
    assert plan.gap >= 0.0
    assert (
        effective_energy_j(plan)
        <= rounded_down_j(case, frontier, plan.deadline_s) * (1.0 + 1e-9) + 1e-9 * plan.energy_j
    )
    # What it says is what the profile says.
    for row in itertools.chain.from_iterable(plan.by_stage().values()):
        profile = profiles[row.operation.stage, row.operation.kind]
        point = int(np.flatnonzero(profile.knobs["frequency"] == row.knobs["frequency"])[0])
        assert (row.duration_s, row.energy_j) == (profile.times_s[point], profile.energies_j[point])


@settings(deadline=None, max_examples=40)
@given(pipelines(), st.integers(0, 2**32 - 1))
def test_any_planned_durations_give_a_plan_within_the_deadline(case: Case, seed: int) -> None:
    frontier = perseus.solve_frontier(case.dag, case.profiles)
    deadline_s = case.deadline_s(frontier)
    planned_s = np.random.default_rng(seed).uniform(0.0, 2.0, case.dag.num_operations) * frontier.max_time_s
    plan = make_plan(case.dag, case.profiles, planned_s, deadline_s, frontier.energy_at)
    assert plan.time_s <= deadline_s
    assert plan.gap >= 0.0


@settings(deadline=None, max_examples=40)
@given(case=pipelines(), wait=st.one_of(st.none(), st.floats(1.0, 3.0)))
def test_files_keep_every_bit(case: Case, wait: float | None, tmp_path_factory: pytest.TempPathFactory) -> None:
    frontier = perseus.solve_frontier(case.dag, case.profiles)
    deadline_s = case.deadline_s(frontier)
    assume(np.isfinite(deadline_s))
    plan = frontier.plan_at(deadline_s, wait_until_s=None if wait is None else wait * deadline_s)
    path: Path = tmp_path_factory.mktemp("plans") / "plan.json"
    plan.save(path)
    read = perseus.FrequencyPlan.load(path)
    assert read.dag == plan.dag
    for name in ("time_s", "energy_j", "lower_bound_j", "baseline_energy_j", "deadline_s", "wait_until_s"):
        assert getattr(read, name) == getattr(plan, name)
    for name in NAMES:
        assert_array_equal(getattr(read, name), getattr(plan, name))
    assert_array_equal(read.frequencies_mhz, plan.frequencies_mhz)
