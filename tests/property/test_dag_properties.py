"""Properties of schedules and pipelines of any size, against closed forms, networkx and brute force."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from perseus.dag import PipelineDag, precedence
from perseus.dag.content import Edges, merge_parallel
from perseus.errors import DagError
from perseus.orders import LETTERS, SCHEDULES, OperationTable, data_edges, find_schedule
from perseus.orders.table import OperationLookup

# A busy machine is no failure.
at_any_speed = settings(deadline=None)

names = st.sampled_from(sorted(SCHEDULES))
stages = st.integers(1, 9)
microbatches = st.integers(1, 24)


def scheduled(name: str, num_stages: int, num_microbatches: int) -> PipelineDag:
    return PipelineDag.from_schedule(name, num_stages=num_stages, num_microbatches=num_microbatches)


def graph_of(num_operations: int, edges: NDArray[np.int32]) -> nx.DiGraph[Any]:
    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.add_nodes_from(range(num_operations))
    graph.add_edges_from(map(tuple, edges.tolist()))
    return graph


def shortest_cycle_through(node: int, graph: nx.DiGraph[Any]) -> int:
    back = nx.single_target_shortest_path_length(graph, node)
    return 1 + min(dict(back).get(after, len(graph)) for after in graph.successors(node))


def brute_force_starts(
    num_operations: int, edges: NDArray[np.int32], latency_s: NDArray[np.float64], durations_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Relax all edges until nothing changes (Bellman-Ford)."""
    starts = np.zeros(num_operations)
    while True:
        relaxed = starts.copy()
        np.maximum.at(relaxed, edges[:, 1], starts[edges[:, 0]] + durations_s[edges[:, 0]] + latency_s)
        if np.array_equal(relaxed, starts):
            return starts
        starts = relaxed


# -- schedules ---------------------------------------------------------------------------------------------


@at_any_speed
@given(names, stages, microbatches)
def test_every_operation_occurs_once_and_each_rank_has_its_stage(name: str, S: int, M: int) -> None:
    dag = scheduled(name, S, M)
    found = {(o.kind, o.stage, o.microbatch) for o in dag.operations}
    assert found == {(kind, s, m) for kind in ("forward", "backward") for s in range(S) for m in range(M)}
    assert dag.num_operations == len(dag.stage) == 2 * S * M
    assert dag.num_ranks == S
    assert np.array_equal(dag.rank, np.repeat(np.arange(S), 2 * M))
    assert [dag.stages_of_rank(rank) for rank in range(S)] == [(s,) for s in range(S)]


@at_any_speed
@given(names, stages, microbatches)
def test_edges_are_program_order_and_data_and_have_no_cycle(name: str, S: int, M: int) -> None:
    dag = scheduled(name, S, M)
    row = {operation[:3]: index for index, operation in enumerate(dag.operations)}
    wanted = {(i, i + 1) for i in range(2 * S * M - 1) if dag.rank[i] == dag.rank[i + 1]}
    for s, after in pairwise(range(S)):
        for m in range(M):
            wanted.add((row[s, m, "forward"], row[after, m, "forward"]))
            wanted.add((row[after, m, "backward"], row[s, m, "backward"]))
    assert sorted(map(tuple, dag.edges.tolist())) == sorted(wanted)
    assert len(dag.edges) == 2 * S * M - S + 2 * (S - 1) * M
    assert nx.is_directed_acyclic_graph(graph_of(dag.num_operations, dag.edges))


@at_any_speed
@given(names, stages, microbatches)
def test_program_order_holds_the_dependencies_inside_each_rank(name: str, S: int, M: int) -> None:
    dag = scheduled(name, S, M)
    row = {operation[:3]: index for index, operation in enumerate(dag.operations)}
    assert all(row[s, m, "forward"] < row[s, m, "backward"] for s in range(S) for m in range(M))


@at_any_speed
@given(stages, microbatches)
def test_1f1b_holds_few_microbatches_in_flight(S: int, M: int) -> None:
    schedule = find_schedule("1f1b")
    for stage, order in enumerate(schedule.rank_orders(schedule.sizes(S, M))):
        in_flight = np.cumsum(np.where(order.kind_code == 0, 1, -1))
        assert in_flight.max() == min(M, S - stage)
        assert in_flight.min() == in_flight[-1] == 0


@at_any_speed
@given(names, stages, microbatches)
def test_uniform_pipeline_has_the_known_makespan(name: str, S: int, M: int) -> None:
    dag = scheduled(name, S, M)
    assert dag.makespan_s(np.where(dag.kind_code == 0, 1.0, 2.0)) == (M + S - 1) * 3


@at_any_speed
@given(names, stages, microbatches)
def test_pipeline_is_the_same_from_its_orders_graph_pickle_and_json(name: str, S: int, M: int) -> None:
    dag = scheduled(name, S, M)
    orders = [
        " ".join(f"{LETTERS[dag.kind_code[i]]}{dag.microbatch[i]}" for i in np.flatnonzero(dag.rank == rank))
        for rank in range(S)
    ]
    read = PipelineDag.from_orders(orders)
    for other in (
        read,
        PipelineDag.from_networkx(dag.to_networkx()),
        pickle.loads(pickle.dumps(read)),
        PipelineDag.from_dict(json.loads(json.dumps(read.to_dict()))),
        PipelineDag.from_dict(json.loads(json.dumps(dag.to_dict()))),
    ):
        assert other == dag
        assert hash(other) == hash(dag)


# -- any graph -----------------------------------------------------------------------------------------------


@st.composite
def edge_arrays(draw: st.DrawFn, is_acyclic: bool) -> tuple[int, NDArray[np.int32]]:
    size = draw(st.integers(1, 14))
    node = st.integers(0, size - 1)
    pairs = [(u, v) for u, v in draw(st.lists(st.tuples(node, node), max_size=40)) if u != v]
    if is_acyclic:
        place = draw(st.permutations(range(size)))
        pairs = [(u, v) if place[u] < place[v] else (v, u) for u, v in pairs]
    return size, np.array(pairs, dtype=np.int32).reshape(-1, 2)


def from_pairs(size: int, edges: NDArray[np.int32], **arguments: Any) -> PipelineDag:
    return PipelineDag.from_orders([[("load", rank)] for rank in range(size)], edges, **arguments)


@at_any_speed
@given(edge_arrays(is_acyclic=False))
def test_cycles_are_found_as_networkx_finds_them(case: tuple[int, NDArray[np.int32]]) -> None:
    size, edges = case
    graph = graph_of(size, edges)
    order = precedence.topological_order(size, edges)
    if nx.is_directed_acyclic_graph(graph):
        for found in (order, from_pairs(size, edges).topological_order()):
            assert sorted(found.tolist()) == list(range(size))
            place = np.argsort(found)
            assert (place[edges[:, 0]] < place[edges[:, 1]]).all()
        return
    cycle = precedence.find_short_cycle(size, edges, order)
    assert len(set(cycle)) == len(cycle) >= 2
    assert all(graph.has_edge(u, v) for u, v in pairwise([*cycle, cycle[0]]))
    # It is a shortest one through at least one of its own operations.
    assert len(cycle) in {shortest_cycle_through(node, graph) for node in cycle}
    with pytest.raises(DagError, match="deadlock"):
        from_pairs(size, edges)


@at_any_speed
@given(edge_arrays(is_acyclic=True), st.data())
def test_starts_are_the_longest_paths(case: tuple[int, NDArray[np.int32]], data: st.DataObject) -> None:
    size, edges = case
    # Multiples of 1/8 add without rounding, so that paths compare exactly.
    eighths = st.integers(0, 80).map(lambda n: n / 8)
    latency_s = data.draw(st.lists(eighths, min_size=len(edges), max_size=len(edges)))
    durations_s = np.array(data.draw(st.lists(eighths, min_size=size, max_size=size)))
    dag = from_pairs(size, edges, latency_s=latency_s)
    starts = dag.earliest_starts(durations_s)
    assert np.array_equal(starts, brute_force_starts(size, edges, np.array(latency_s), durations_s))
    assert dag.makespan_s(durations_s) == (starts + durations_s).max()


@at_any_speed
@given(edge_arrays(is_acyclic=True), st.data())
def test_any_pipeline_returns_from_json_and_pickle(case: tuple[int, NDArray[np.int32]], data: st.DataObject) -> None:
    size, edges = case
    amount = st.floats(0, 1e9)
    latency_s = data.draw(st.lists(amount, min_size=len(edges), max_size=len(edges)))
    fixed = data.draw(st.dictionaries(st.integers(0, size - 1).map(lambda s: ("load", s)), st.tuples(amount, amount)))
    dag = from_pairs(size, edges, latency_s=latency_s, fixed_times=fixed)
    assert PipelineDag.from_dict(json.loads(json.dumps(dag.to_dict(), allow_nan=False))) == dag
    assert pickle.loads(pickle.dumps(dag)) == dag
    assert PipelineDag.from_networkx(dag.to_networkx()) == dag


@at_any_speed
@given(edge_arrays(is_acyclic=False), st.data())
def test_parallel_edges_keep_the_largest_latency(case: tuple[int, NDArray[np.int32]], data: st.DataObject) -> None:
    size, edges = case
    latency_s = data.draw(st.lists(st.floats(0, 9), min_size=len(edges), max_size=len(edges)))
    largest: dict[tuple[int, int], float] = {}
    for (u, v), latency in zip(edges.tolist(), latency_s, strict=True):
        largest[u, v] = max(latency, largest.get((u, v), 0.0))
    pairs, latencies = merge_parallel(Edges(edges, np.array(latency_s)), size)
    assert list(map(tuple, pairs.tolist())) == list(largest)
    assert latencies.tolist() == list(largest.values())


# -- any orders ----------------------------------------------------------------------------------------------


@st.composite
def tables(draw: st.DrawFn) -> OperationTable:
    """Draw any set of operations of the known kinds, their numbers dense or far apart."""
    spread = draw(st.sampled_from([1, 1000]))
    name = st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(-1, 3))
    found = draw(st.lists(name, min_size=1, max_size=60, unique=True))
    code, stage, microbatch = (np.array(column, dtype=np.int32) for column in zip(*found, strict=True))
    return OperationTable(
        kinds=("forward", "backward", "input_grad", "weight_grad", "recompute"),
        kind_code=code,
        stage=stage,
        microbatch=np.where(microbatch >= 0, microbatch * spread, microbatch).astype(np.int32),
        rank=np.zeros(len(found), dtype=np.int32),
    )


@at_any_speed
@given(tables())
def test_data_dependencies_follow_the_rules(table: OperationTable) -> None:
    row: dict[tuple[str, int, int], int] = {}
    for i, (code, stage, m) in enumerate(zip(table.kind_code, table.stage, table.microbatch, strict=True)):
        if m >= 0:
            row[LETTERS[code], int(stage), int(m)] = i

    def first_of(letters: str, stage: int, m: int) -> list[int]:
        return [row[letter, stage, m] for letter in letters if (letter, stage, m) in row][:1]

    wanted: list[tuple[int, int]] = []
    for (letter, s, m), after in row.items():
        before = {
            "F": first_of("F", s - 1, m),
            "R": first_of("F", s, m),
            "B": first_of("RF", s, m) + first_of("BI", s + 1, m),
            "I": first_of("RF", s, m) + first_of("IB", s + 1, m),
            "W": first_of("I", s, m),
        }[letter]
        wanted += [(b, after) for b in before]
    assert sorted(map(tuple, data_edges(table).tolist())) == sorted(wanted)


@at_any_speed
@given(tables())
def test_lookup_finds_each_operation_and_no_other(table: OperationTable) -> None:
    lookup = OperationLookup(table)
    named = table.microbatch >= 0
    for code in range(5):
        rows = np.flatnonzero(named & (table.kind_code == code))
        assert np.array_equal(lookup.rows(code, table.stage[rows], table.microbatch[rows]), rows)
        absent = lookup.rows(code, np.full(rows.size, table.stage.max() + 1, dtype=np.int32), table.microbatch[rows])
        assert (absent == -1).all()


@at_any_speed
@given(st.integers(1, 4), st.integers(1, 4), st.randoms(use_true_random=False))
def test_shuffled_orders_are_a_pipeline_exactly_if_networkx_finds_no_cycle(S: int, M: int, random: Any) -> None:
    orders = []
    for rank in range(S):
        order = [(kind, rank, m) for kind in "FB" for m in range(M)]
        for _ in range(random.randint(0, 3)):
            i, j = random.randrange(2 * M), random.randrange(2 * M)
            order[i], order[j] = order[j], order[i]
        orders.append(order)
    graph: nx.DiGraph[Any] = nx.DiGraph()
    for order in orders:
        graph.add_nodes_from(order)
        graph.add_edges_from(pairwise(order))
    for s in range(S):
        for m in range(M):
            graph.add_edge(("F", s, m), ("B", s, m))
            if s + 1 < S:
                graph.add_edge(("F", s, m), ("F", s + 1, m))
                graph.add_edge(("B", s + 1, m), ("B", s, m))
    if not nx.is_directed_acyclic_graph(graph):
        with pytest.raises(DagError, match="the orders deadlock"):
            PipelineDag.from_orders(orders)
        return
    dag = PipelineDag.from_orders(orders)
    durations = {node: 1.0 + (node[0] == "B") for node in graph}
    end: dict[Any, float] = {}
    for node in nx.topological_sort(graph):
        end[node] = durations[node] + max((end[before] for before in graph.predecessors(node)), default=0.0)
    assert dag.makespan_s(np.where(dag.kind_code == 0, 1.0, 2.0)) == max(end.values())
