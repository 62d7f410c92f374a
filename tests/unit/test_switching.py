"""Plans that count their changes of clock."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import perseus
from perseus.errors import InfeasibleTimeError, PlanError


@pytest.fixture(scope="module")
def frontier() -> perseus.Frontier:
    profiles = perseus.read_profiles(perseus.example_profile_path(), blocking_power_w=75.0)
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=4, num_microbatches=8)
    return perseus.solve_frontier(dag, profiles)


def changes_of(plan: perseus.FrequencyPlan) -> list[int]:
    clocks = [plan.frequencies_mhz[plan.dag.rank == rank] for rank in range(plan.dag.num_ranks)]
    return [int((c[1:] != c[:-1]).sum()) for c in clocks]


def simulated_s(plan: perseus.FrequencyPlan, latency_s: float) -> float:
    """Iteration time with a pause before each change, operation by operation."""
    dag, end_s = plan.dag, np.zeros(plan.dag.num_operations)
    for v in dag.topological_order().tolist():
        ready_s = max((end_s[u] for u, w in dag.edges.tolist() if w == v), default=0.0)
        before = [u for u in range(v) if dag.rank[u] == dag.rank[v]]
        if before and plan.frequencies_mhz[before[-1]] != plan.frequencies_mhz[v]:
            ready_s = max(ready_s, end_s[before[-1]] + latency_s)
        end_s[v] = ready_s + plan.durations_s[v]
    return float(end_s.max())


@pytest.mark.parametrize("latency_s", [0.005, 0.02])
@pytest.mark.parametrize("slowdown", [1.0, 1.1])
def test_pauses_are_in_the_time_and_the_energy(frontier: perseus.Frontier, latency_s: float, slowdown: float) -> None:
    deadline_s = slowdown * frontier.min_time_s
    found = frontier.switch_aware_plan_at(deadline_s, switch_latency_s=latency_s)
    plan = found.plan
    assert plan.time_s <= deadline_s
    assert plan.time_s == pytest.approx(simulated_s(plan, latency_s), rel=1e-9)
    assert found.changes.tolist() == changes_of(plan)
    assert found.unrestricted_changes.tolist() == changes_of(found.unrestricted)
    assert found.unrestricted_time_s == pytest.approx(simulated_s(found.unrestricted, latency_s))
    assert found.unrestricted_time_s > plan.time_s
    assert found.price >= 0.0
    waits_s = plan.time_s - np.bincount(plan.dag.rank, weights=plan.durations_s)
    assert plan.energy_j == pytest.approx(plan.energies_j.sum() + plan.blocking_power_w @ waits_s)
    assert plan.gap >= 0.0
    assert plan.saving > 0.0


@pytest.mark.parametrize("max_changes", [0, 1, 3])
def test_no_more_changes_than_allowed(frontier: perseus.Frontier, max_changes: int) -> None:
    plan = frontier.switch_aware_plan_at(1.05 * frontier.min_time_s, max_changes=max_changes).plan
    assert max(changes_of(plan)) <= max_changes


def test_clocks_are_kept_long_enough(frontier: perseus.Frontier) -> None:
    plan = frontier.switch_aware_plan_at(1.1 * frontier.min_time_s, min_dwell_s=0.4).plan
    assert sum(changes_of(plan)) > 0
    for rank in range(plan.dag.num_ranks):
        rows = zip(plan.frequencies_mhz[plan.dag.rank == rank], plan.durations_s[plan.dag.rank == rank], strict=True)
        for _, run in itertools.groupby(rows, key=lambda row: row[0]):
            assert sum(duration_s for _, duration_s in run) >= 0.4 - 1e-9


def test_looser_restrictions_cost_less(frontier: perseus.Frontier) -> None:
    deadline_s = 1.1 * frontier.min_time_s
    assert frontier.switch_aware_plan_at(deadline_s).price == 0.0
    none, few = (frontier.switch_aware_plan_at(deadline_s, max_changes=n).price for n in (0, 4))
    assert none > few > 0.0


def test_errors(frontier: perseus.Frontier) -> None:
    with pytest.raises(PlanError, match="switch_latency_s is -1"):
        frontier.switch_aware_plan_at(10.0, switch_latency_s=-1.0)
    with pytest.raises(PlanError, match="max_changes is -1"):
        frontier.switch_aware_plan_at(10.0, max_changes=-1)
    with pytest.raises(InfeasibleTimeError):
        frontier.switch_aware_plan_at(0.1)


def test_one_clock_for_all_where_none_is_fast_enough() -> None:
    # Forwards are fastest at 1, backwards at 2: the shortest time needs a change between them.
    rows = {
        "stage": [0, 0, 0, 0],
        "instruction": ["forward", "forward", "backward", "backward"],
        "frequency": [1, 2, 1, 2],
        "time": [1.0, 1.5, 2.5, 2.0],
        "energy": [10.0, 5.0, 5.0, 10.0],
    }
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=1, num_microbatches=2)
    frontier = perseus.solve_frontier(dag, perseus.read_profiles(rows, blocking_power_w=1.0))
    with pytest.raises(InfeasibleTimeError, match="the shortest takes 7 s"):
        frontier.switch_aware_plan_at(6.0, max_changes=0)
    assert frontier.switch_aware_plan_at(7.0, max_changes=0).plan.time_s == 7.0


def test_operations_of_a_gpu_without_order() -> None:
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph()
    for node in range(2):
        graph.add_node(node, stage=0, kind="forward", microbatch=node)
    rows = {"stage": [0, 0], "instruction": ["forward"] * 2, "frequency": [1, 2], "time": [1.0, 2.0], "energy": [2, 1]}
    profiles = perseus.read_profiles(rows, blocking_power_w=0.0)
    frontier = perseus.solve_frontier(perseus.PipelineDag.from_networkx(graph), profiles)
    with pytest.raises(PlanError, match="stand in no order"):
        frontier.switch_aware_plan_at(1.5, max_changes=0)
