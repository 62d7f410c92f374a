"""PipelineDag: its constructors, every error, its value semantics, its file form."""

from __future__ import annotations

import copy
import json
import math
import pickle
import subprocess
import sys
import time
from fractions import Fraction
from typing import Any

import networkx as nx
import numpy as np
import pytest

from perseus.dag import Operation, PipelineDag, precedence
from perseus.dag.content import ScheduleContent
from perseus.errors import DagError, MissingExtraError, ScheduleError
from perseus.orders import SCHEDULES, ScheduleSizes

ARRAYS = ("stage", "microbatch", "rank", "kind_code", "fixed_time_s", "fixed_energy_j", "edges", "latency_s")


def edge_texts(dag: PipelineDag) -> list[str]:
    def text(row: int) -> str:
        operation = dag.operations[row]
        return f"{operation.stage}{operation.kind[0].upper()}{'' if operation.microbatch < 0 else operation.microbatch}"

    return sorted(f"{text(before)}>{text(after)}" for before, after in dag.edges.tolist())


def latencies(dag: PipelineDag) -> dict[tuple[int, int], float]:
    return {(u, v): s for (u, v), s in zip(dag.edges.tolist(), dag.latency_s.tolist(), strict=True)}


# -- from_schedule -----------------------------------------------------------------------------------------


def test_schedule_pipeline_tells_its_sizes_without_arrays() -> None:
    start = time.perf_counter()
    dag = PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=100_000)
    assert (dag.num_operations, dag.num_ranks, dag.kinds) == (1_600_000, 8, ("forward", "backward"))
    assert (dag.schedule, dag.num_stages, dag.num_microbatches, dag.num_chunks) == ("1f1b", 8, 100_000, 1)
    assert repr(dag) == "<PipelineDag 1f1b num_stages=8, num_microbatches=100000: 1600000 operations>"
    assert hash(dag) == hash(PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=100_000))
    assert dag == pickle.loads(pickle.dumps(dag))
    assert time.perf_counter() - start < 0.5  # about 0.0001 s on an idle core
    content = dag._content
    assert isinstance(content, ScheduleContent)
    assert not {"table", "edges", "fixed"} & vars(content).keys()


def test_hundred_thousand_operations_are_made_in_well_under_a_second() -> None:
    dag = PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=6250)
    start = time.perf_counter()
    assert [len(getattr(dag, name)) for name in ARRAYS] == [100_000] * 6 + [187_492] * 2
    assert time.perf_counter() - start < 0.5  # about 0.01 s on an idle core


def test_schedule_operations_go_rank_by_rank_in_program_order() -> None:
    dag = PipelineDag.from_schedule("1f1b", num_stages=2, num_microbatches=3)
    assert dag.rank.tolist() == dag.stage.tolist() == [0] * 6 + [1] * 6
    assert dag.microbatch.tolist() == [0, 1, 0, 2, 1, 2, 0, 0, 1, 1, 2, 2]
    assert [dag.kinds[code] for code in dag.kind_code[:4]] == ["forward", "forward", "backward", "forward"]
    assert np.isnan(dag.fixed_time_s).all()
    assert np.isnan(dag.fixed_energy_j).all()
    assert not dag.latency_s.any()
    assert dag.labels is None


def test_schedule_edges_are_program_order_and_data_between_ranks() -> None:
    dag = PipelineDag.from_schedule("gpipe", num_stages=2, num_microbatches=2)
    program = [f"{s}{edge.replace('>', f'>{s}')}" for s in (0, 1) for edge in ("F0>F1", "F1>B0", "B0>B1")]
    assert edge_texts(dag) == sorted([*program, "0F0>1F0", "0F1>1F1", "1B0>0B0", "1B1>0B1"])


def test_arrays_have_their_types_and_cannot_be_written() -> None:
    for dag in (
        PipelineDag.from_schedule("1f1b", num_stages=2, num_microbatches=3),
        PipelineDag.from_orders(["F0 B0", "F0 B0"]),
        pickle.loads(pickle.dumps(PipelineDag.from_orders(["F0 B0", "F0 B0"]))),
    ):
        for name in ARRAYS:
            array = getattr(dag, name)
            assert array.dtype == (np.float64 if name.endswith(("_s", "_j")) else np.int32)
            assert array is getattr(dag, name)
            assert array.flags.c_contiguous
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0
        with pytest.raises(ValueError, match="read-only"):
            dag.topological_order()[0] = 0


def test_schedule_errors_reach_the_caller() -> None:
    with pytest.raises(ScheduleError, match="did you mean '1f1b'"):
        PipelineDag.from_schedule("1f1", num_stages=4, num_microbatches=8)
    with pytest.raises(ScheduleError, match="num_stages is 0"):
        PipelineDag.from_schedule("1f1b", num_stages=0, num_microbatches=8)
    with pytest.raises(ScheduleError, match="num_chunks is 2"):
        PipelineDag.from_schedule("1f1b", num_stages=4, num_microbatches=8, num_chunks=2)


# -- from_orders -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEDULES)
def test_orders_of_a_schedule_give_the_pipeline_of_the_schedule(name: str) -> None:
    made = PipelineDag.from_schedule(name, num_stages=3, num_microbatches=4)
    orders = [[o for o in made.operations if o.rank == rank] for rank in range(3)]
    read = PipelineDag.from_orders(orders)
    assert read == made
    assert hash(read) == hash(made)
    assert np.array_equal(read.edges, made.edges)
    assert read.schedule is read.num_stages is read.num_microbatches is read.num_chunks is None
    assert repr(read) == "<PipelineDag 24 operations (forward, backward), 3 ranks, 37 edges>"


def test_orders_may_mix_forms_and_come_from_generators() -> None:
    text = PipelineDag.from_orders(["F0 F1 B0 B1", "F0 B0 F1 B1"])
    mixed = PipelineDag.from_orders(
        order
        for order in (
            ("F0", ("forward", 0, 1), ["B", 0, 0], Operation(stage=0, microbatch=1, kind="backward", rank=0)),
            (item for item in ("1F0", ("B", 1, 0), "F1", "B1")),
        )
    )
    assert mixed == text


def test_several_stages_on_a_rank() -> None:
    dag = PipelineDag.from_orders(["0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0"])
    assert dag.num_ranks == 2
    assert [dag.stages_of_rank(rank) for rank in (0, 1)] == [(0, 3), (1, 2)]
    # 1F0 > 2F0 and 2B0 > 1B0 lie inside rank 1 and follow from its program order.
    assert edge_texts(dag) == sorted(
        ["0F0>3F0", "3F0>3B0", "3B0>0B0", "1F0>2F0", "2F0>2B0", "2B0>1B0", "0F0>1F0", "2F0>3F0", "3B0>2B0", "1B0>0B0"]
    )


def test_fixed_times_by_kind_and_by_operation() -> None:
    dag = PipelineDag.from_orders(
        ["load F0 B0 optimizer", "F0 B0 optimizer"],
        fixed_times={
            ("optimizer", 1): (0.5, 1),
            "load": (np.float32(0.25), Fraction(3)),
            "optimizer": [0, 0.0],
            Operation(stage=0, microbatch=0, kind="backward", rank=0): (2.0, 9.0),
        },
    )
    nan = math.nan
    assert dag.kinds == ("forward", "backward", "load", "optimizer")
    np.testing.assert_array_equal(dag.fixed_time_s, [0.25, nan, 2.0, 0, nan, nan, 0.5])
    np.testing.assert_array_equal(dag.fixed_energy_j, [3, nan, 9.0, 0, nan, nan, 1])


def test_letter_names_a_kind_of_fixed_time() -> None:
    dag = PipelineDag.from_orders(["F0 B0"], fixed_times={"F": (1, 2)})
    np.testing.assert_array_equal(dag.fixed_time_s, [1, math.nan])


def test_latency_of_derived_edges_is_between_ranks_only() -> None:
    dag = PipelineDag.from_orders(["F0 B0", "F0 B0"], latency_s=0.125)
    assert latencies(dag) == {(0, 1): 0, (2, 3): 0, (0, 2): 0.125, (3, 1): 0.125}


def test_explicit_edges_replace_derived_ones_and_keep_program_order() -> None:
    dag = PipelineDag.from_orders(["F0 B0", "F0 B0"], edges=[("0F0", ("F", 1, 0))])
    assert edge_texts(dag) == ["0F0>0B0", "0F0>1F0", "1F0>1B0"]
    assert edge_texts(PipelineDag.from_orders(["F0 B0", "F0 B0"], edges=[])) == ["0F0>0B0", "1F0>1B0"]


@pytest.mark.parametrize("integer", [np.int64, np.uint8, np.int16])
def test_edges_may_be_an_array(integer: type) -> None:
    dag = PipelineDag.from_orders(["F0 B0", "F0 B0"], edges=np.array([[0, 2], [3, 1]], dtype=integer))
    assert dag == PipelineDag.from_orders(["F0 B0", "F0 B0"])
    assert PipelineDag.from_orders(["F0"], edges=np.empty((0, 2), dtype=integer)).edges.shape == (0, 2)


def test_edge_ends_in_every_form() -> None:
    operation = Operation(stage=1, microbatch=0, kind="backward", rank=1)
    dag = PipelineDag.from_orders(["F0 B0", "F0 B0"], edges=[(0, np.int64(2)), (operation, ["B", 0, 0])])
    assert dag == PipelineDag.from_orders(["F0 B0", "F0 B0"])


def test_latency_of_explicit_edges_is_their_own_or_the_common_one() -> None:
    orders, edges = ["F0 B0", "F0 B0"], [(0, 2, 0.5), (3, 1)]
    assert latencies(PipelineDag.from_orders(orders, edges, latency_s=0.25)) == {
        (0, 1): 0, (2, 3): 0, (0, 2): 0.5, (3, 1): 0.25,
    }  # fmt: skip
    per_edge = PipelineDag.from_orders(orders, [(0, 2), (3, 1)], latency_s=np.array([0.5, 0.25]))
    assert per_edge == PipelineDag.from_orders(orders, edges, latency_s=0.25)


def test_edges_inside_a_rank_stay_if_they_have_a_latency() -> None:
    orders = ["F0 F1 B0"]
    assert len(PipelineDag.from_orders(orders, [(0, 2)]).edges) == 2
    assert latencies(PipelineDag.from_orders(orders, [(0, 2, 0.5), (0, 1, 0.25)])) == {
        (0, 1): 0.25, (1, 2): 0, (0, 2): 0.5,
    }  # fmt: skip
    # The common latency is for edges between ranks.
    assert len(PipelineDag.from_orders(orders, [(0, 2)], latency_s=9.0).edges) == 2


def test_of_parallel_edges_the_larger_latency_holds() -> None:
    dag = PipelineDag.from_orders(["F0", "F0"], [(0, 1, 0.5), (0, 1, 0.75), (0, 1)])
    assert latencies(dag) == {(0, 1): 0.75}


def test_operations_without_microbatch_may_repeat() -> None:
    dag = PipelineDag.from_orders(["sync F0 sync", "sync"], [(2, 3)], fixed_times={("sync", 0): (1, 1)})
    assert dag.operations.count(Operation(stage=0, microbatch=-1, kind="sync", rank=0)) == 2
    np.testing.assert_array_equal(dag.fixed_time_s, [1, math.nan, 1, math.nan])


F0B0 = ["F0 B0", "F0 B0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"orders": []}, "orders is empty; a pipeline has at least one rank"),
        ({"orders": ["F0", ""]}, r"orders\[1\] is empty; every rank has at least one operation"),
        ({"orders": [[], ["F0"]]}, r"orders\[0\] is empty"),
        ({"orders": "F0 B0"}, "orders is 'F0 B0'; it must hold one order for each rank"),
        ({"orders": 3}, "orders is 3; it must hold one order"),
        ({"orders": None}, "orders is None"),
        ({"orders": {0: "F0"}}, "orders is {0: 'F0'}; it must hold one order"),
        ({"orders": [{"F0"}]}, r"orders\[0\] is {'F0'}; it must be the sequence"),
        ({"orders": [3]}, r"orders\[0\] is 3; it must be the sequence of the operations of rank 0"),
        ({"orders": [b"F0"]}, r"orders\[0\] is b'F0'"),
        ({"orders": [Operation(0, 0, "forward", 0)]}, r"orders\[0\] is Operation.*must be the sequence"),
        ({"orders": [[("F", 0, 0), "Q1"]]}, r"orders\[0\]\[1\] is 'Q1'; write an operation as"),
        ({"orders": [[Operation(0, 0, "forward", 1)]]}, r"whose rank is 1; put it into orders\[1\]"),
        (
            {"orders": ["F0 B0", "F0 0B0"]},
            r"backward\(stage 0, microbatch 0\) occurs twice, at orders\[0\]\[1\] and at orders\[1\]\[1\]; each",
        ),
        ({"orders": F0B0, "edges": "0F0"}, "edges is '0F0'; it must be a sequence of pairs"),
        ({"orders": F0B0, "edges": 3}, "edges is 3"),
        ({"orders": F0B0, "edges": {(0, 2): 0.5}}, "edges is {"),
        ({"orders": F0B0, "edges": [(0, 2), 3]}, r"edges\[1\] is 3; it must be \(predecessor, successor\)"),
        ({"orders": F0B0, "edges": ["ab"]}, r"edges\[0\] is 'ab'"),
        ({"orders": F0B0, "edges": [(0,)]}, r"edges\[0\] has 1 members"),
        ({"orders": F0B0, "edges": [(0, 1, 2, 3)]}, r"edges\[0\] has 4 members"),
        ({"orders": F0B0, "edges": [(0, 4)]}, r"an end of edges\[0\] is 4; it must be an integer from 0 to 3"),
        ({"orders": F0B0, "edges": [(-1, 2)]}, r"an end of edges\[0\] is -1; it must be an integer from 0 to 3"),
        ({"orders": F0B0, "edges": [(0.0, 2)]}, r"an end of edges\[0\] is 0.0, of type float"),
        ({"orders": F0B0, "edges": [(True, 2)]}, r"an end of edges\[0\] is True, of type bool"),
        ({"orders": F0B0, "edges": np.array([[0, 2], [1, 4]])}, r"an end of edges\[1\] is 4; it must be an integer"),
        ({"orders": F0B0, "edges": np.array([[0, -1]])}, r"an end of edges\[0\] is -1"),
        ({"orders": F0B0, "edges": np.array([[0.0, 2.0]])}, "of type float64"),
        ({"orders": F0B0, "edges": np.array([0, 2])}, r"edges\[0\] is .*0\)?; it must be \(predecessor"),
        ({"orders": F0B0, "edges": [("F0", "1F0")]}, r"an end of edges\[0\] is 'F0', which names no stage"),
        (
            {"orders": F0B0, "edges": [("0F0", "1F7")]},
            r"an end of edges\[0\] is forward\(stage 1, microbatch 7\), which is not among the operations",
        ),
        (
            {"orders": ["sync sync", "F0"], "edges": [(("sync", 0), 2)]},
            r"an end of edges\[0\] is sync\(stage 0\), which occurs 2 times; name it by its index, one of \[0, 1\]",
        ),
        (
            {"orders": F0B0, "edges": [(1, 1)]},
            r"an edge joins backward\(stage 0, microbatch 0\) to itself; no operation can wait for itself",
        ),
        ({"orders": F0B0, "edges": [(0, 2, -0.5)]}, r"the latency_s of edges\[0\] is -0.5; it must be a finite"),
        ({"orders": F0B0, "edges": [(0, 2, math.nan)]}, r"the latency_s of edges\[0\] is nan"),
        ({"orders": F0B0, "edges": [(0, 2, "1")]}, r"the latency_s of edges\[0\] is '1'; it must be a finite"),
        ({"orders": F0B0, "edges": [(0, 2, None)]}, r"the latency_s of edges\[0\] is None"),
        ({"orders": F0B0, "latency_s": -1}, "latency_s is -1.0; it must be a finite number of seconds, at least 0"),
        ({"orders": F0B0, "latency_s": math.inf}, "latency_s is inf"),
        ({"orders": F0B0, "latency_s": 10**400}, "latency_s is inf"),
        ({"orders": F0B0, "latency_s": True}, "latency_s is True"),
        ({"orders": F0B0, "latency_s": "fast"}, "latency_s is 'fast'"),
        ({"orders": F0B0, "latency_s": {"nvlink": 1}}, "latency_s is {"),
        ({"orders": F0B0, "latency_s": np.array(0.5)}, r"latency_s is array\(0.5\)"),
        ({"orders": F0B0, "latency_s": [0.5]}, "latency_s is a sequence, but no edges are given"),
        ({"orders": F0B0, "edges": [(0, 2)], "latency_s": []}, "latency_s has 0 values for 1 edges"),
        ({"orders": F0B0, "edges": [(0, 2)], "latency_s": [1, 2]}, "latency_s has 2 values for 1 edges"),
        ({"orders": F0B0, "edges": [(0, 2)], "latency_s": [math.nan]}, r"latency_s\[0\] is nan"),
        ({"orders": F0B0, "edges": [(0, 2)], "latency_s": [[1, 2]]}, r"latency_s\[0\] is \[1, 2\]"),
        ({"orders": F0B0, "edges": [(0, 2, 0.5)], "latency_s": [1]}, "both latency_s and some edges"),
        ({"orders": F0B0, "fixed_times": 3}, "fixed_times is 3; it must map"),
        ({"orders": F0B0, "fixed_times": {"load": (1, 1)}}, "names the kind 'load', of which there is no operation"),
        ({"orders": F0B0, "fixed_times": {("F", 9, 9): (1, 1)}}, r"names forward\(stage 9, microbatch 9\), which is"),
        ({"orders": F0B0, "fixed_times": {7: (1, 1)}}, "the key 7 of fixed_times is 7; write an operation"),
        ({"orders": F0B0, "fixed_times": {"F": 3}}, r"fixed_times\['F'\] is 3; it must be a pair"),
        ({"orders": F0B0, "fixed_times": {"F": "12"}}, r"fixed_times\['F'\] is '12'; it must be a pair"),
        ({"orders": F0B0, "fixed_times": {"F": (1,)}}, r"fixed_times\['F'\] has 1 members"),
        ({"orders": F0B0, "fixed_times": {"F": (-1, 1)}}, r"the time of fixed_times\['F'\] is -1.0; it must be"),
        ({"orders": F0B0, "fixed_times": {"F": (math.nan, 1)}}, r"the time of fixed_times\['F'\] is nan"),
        ({"orders": F0B0, "fixed_times": {"F": (1, -1)}}, r"the energy of fixed_times\['F'\] is -1.0; it must be"),
        ({"orders": F0B0, "fixed_times": {"F": (1, math.inf)}}, r"the energy of fixed_times\['F'\] is inf"),
        ({"orders": F0B0, "fixed_times": {"F": (True, 1)}}, r"the time of fixed_times\['F'\] is True"),
    ],
)
def test_orders_that_make_no_pipeline(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DagError, match=message):
        PipelineDag.from_orders(**arguments)


def test_deadlock_names_the_operations_and_why_each_waits() -> None:
    with pytest.raises(DagError) as error:
        PipelineDag.from_orders(["F0 B0 F1 B1", "F1 F0 B0 B1"])
    text = str(error.value)
    assert text.startswith("the orders deadlock, each of these operations waits for the one before it: ")
    # Rank 1 begins with microbatch 1, rank 0 sends it only after the backward of microbatch 0.
    cycle = [
        "backward(stage 0, microbatch 0)",
        "forward(stage 0, microbatch 1) (order of rank 0)",
        "forward(stage 1, microbatch 1) (dependency)",
        "forward(stage 1, microbatch 0) (order of rank 1)",
        "backward(stage 1, microbatch 0) (order of rank 1)",
        "backward(stage 0, microbatch 0) (dependency)",
    ]
    assert " -> ".join(cycle) in text
    assert "move one of these operations in its rank's order" in text


def test_backward_before_its_own_forward_deadlocks() -> None:
    with pytest.raises(
        DagError,
        match=r": backward\(stage 0, microbatch 0\) -> forward\(stage 0, microbatch 0\) \(order of rank 0\) -> "
        r"backward\(stage 0, microbatch 0\) \(dependency\);",
    ):
        PipelineDag.from_orders(["B0 F0"])


def test_operations_without_microbatch_are_named_by_number() -> None:
    with pytest.raises(DagError, match=r": operation 0 sync\(stage 0\) -> operation 1 sync\(stage 0\) \(order"):
        PipelineDag.from_orders(["sync sync"], [(1, 0)])


def test_long_cycle_is_shortened_in_the_message() -> None:
    ring = [(i, (i + 1) % 1000) for i in range(1000)]
    with pytest.raises(DagError, match="990 more") as error:
        PipelineDag.from_orders([[("load", i)] for i in range(1000)], ring)
    assert len(str(error.value)) < 2000


def test_short_cycle_is_found_beside_a_long_one() -> None:
    ring = [(i, (i + 1) % 1000) for i in range(1000)]
    edges = np.array([*ring, (500, 499)], dtype=np.int32)
    order = precedence.topological_order(1000, edges)
    assert order.size == 0
    cycle = precedence.find_short_cycle(1000, edges, order)
    assert len(cycle) <= 1000  # any cycle will do; the shortest through one of its operations is given
    edges = np.array([*ring, *((i, 0) for i in range(1, 1000))], dtype=np.int32)
    assert sorted(precedence.find_short_cycle(1000, edges, order)) == [0, 1]


# -- from_networkx -----------------------------------------------------------------------------------------


def small_graph() -> nx.DiGraph[Any]:
    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.add_node("load", stage=3, kind="load", fixed_time_s=0.5, fixed_energy_j=2, colour="red")
    graph.add_node(("F", 0), stage=3, kind="F", microbatch=0)
    graph.add_node(7, stage=5, kind="forward", microbatch=0, rank=None)
    graph.add_node("alone", stage=4, kind="probe", microbatch=None, rank=9)
    graph.add_edge("load", ("F", 0))
    graph.add_edge(("F", 0), 7, latency_s=0.25, weight=1)
    return graph


def test_graph_becomes_a_pipeline() -> None:
    dag = PipelineDag.from_networkx(small_graph())
    assert dag.labels == ("load", ("F", 0), 7, "alone")
    assert dag.kinds == ("forward", "load", "probe")
    assert dag.stage.tolist() == [3, 3, 5, 4]
    assert dag.rank.tolist() == [0, 0, 1, 2]  # stages 3 and 5, and the rank called 9
    assert dag.microbatch.tolist() == [-1, 0, 0, -1]
    assert latencies(dag) == {(0, 1): 0, (1, 2): 0.25}
    np.testing.assert_array_equal(dag.fixed_time_s, [0.5, math.nan, math.nan, math.nan])
    assert [dag.stages_of_rank(rank) for rank in range(3)] == [(3,), (5,), (4,)]
    assert dag.makespan_s([0.5, 1, 2, 3.5]) == 3.75


def test_graph_gets_no_program_order() -> None:
    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.add_node("a", stage=0, kind="forward", microbatch=0)
    graph.add_node("b", stage=0, kind="backward", microbatch=0)
    assert PipelineDag.from_networkx(graph).edges.shape == (0, 2)


def test_parallel_edges_of_a_multigraph_are_joined() -> None:
    graph: nx.MultiDiGraph[Any] = nx.MultiDiGraph()
    graph.add_node("a", stage=0, kind="forward")
    graph.add_node("b", stage=1, kind="forward")
    graph.add_edge("a", "b", latency_s=0.25)
    graph.add_edge("a", "b", latency_s=0.5)
    assert latencies(PipelineDag.from_networkx(graph)) == {(0, 1): 0.5}


def test_pipeline_becomes_a_graph_and_returns() -> None:
    dag = PipelineDag.from_networkx(small_graph())
    graph = dag.to_networkx()
    assert list(graph) == ["load", ("F", 0), 7, "alone"]
    assert graph.nodes["load"] == {"stage": 3, "kind": "load", "rank": 0, "fixed_time_s": 0.5, "fixed_energy_j": 2.0}
    assert PipelineDag.from_networkx(graph) == dag
    made = PipelineDag.from_schedule("1f1b", num_stages=3, num_microbatches=4)
    assert PipelineDag.from_networkx(made.to_networkx()) == made


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({}, r"node 'x' has no attribute 'stage'; every node needs 'stage' and 'kind'"),
        ({"stage": 0}, r"node 'x' has no attribute 'kind'"),
        ({"stage": 1.0, "kind": "F"}, "the stage of node 'x' is 1.0, of type float"),
        ({"stage": -1, "kind": "F"}, "the stage of node 'x' is -1"),
        ({"stage": 0, "kind": ""}, "the kind of node 'x' is ''"),
        ({"stage": 0, "kind": None}, "the kind of node 'x' is None"),
        ({"stage": 0, "kind": "F", "microbatch": 0.5}, "the microbatch of node 'x' is 0.5"),
        ({"stage": 0, "kind": "F", "rank": -1}, "the rank of node 'x' is -1"),
        ({"stage": 0, "kind": "F", "rank": "a"}, "the rank of node 'x' is 'a'"),
        ({"stage": 0, "kind": "F", "fixed_time_s": 1}, "node 'x' has only one of 'fixed_time_s' and 'fixed_energy_j'"),
        ({"stage": 0, "kind": "F", "fixed_energy_j": 1}, "node 'x' has only one of"),
        ({"stage": 0, "kind": "F", "fixed_time_s": -1, "fixed_energy_j": 1}, "the time of node 'x' is -1.0"),
        ({"stage": 0, "kind": "F", "fixed_time_s": 1, "fixed_energy_j": math.nan}, "the energy of node 'x' is nan"),
        (
            {"stage": 0, "kind": "B", "microbatch": 3},
            r"backward\(stage 0, microbatch 3\) occurs twice, at node 'o' and",
        ),
    ],
)
def test_node_that_is_no_operation(node: dict[str, Any], message: str) -> None:
    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.add_node("o", stage=0, kind="backward", microbatch=3)
    graph.add_node("x", **node)
    with pytest.raises(DagError, match=message):
        PipelineDag.from_networkx(graph)


@pytest.mark.parametrize("latency_s", [-1, math.nan, math.inf, "1"])
def test_edge_of_a_graph_with_a_wrong_latency(latency_s: object) -> None:
    graph = small_graph()
    graph.add_edge("load", 7, latency_s=latency_s)
    with pytest.raises(DagError, match=r"latency_s of edge 'load' -> 7 is .*it must be a finite number of seconds"):
        PipelineDag.from_networkx(graph)


def test_cycle_of_a_graph_names_its_nodes() -> None:
    graph = small_graph()
    graph.add_edge(7, "load")
    with pytest.raises(
        DagError, match=r"the edges form a cycle: 'load' = load\(stage 3\) -> .* -> 7 = forward\(st.* -> 'load' = "
    ):
        PipelineDag.from_networkx(graph)


def test_self_edge_of_a_graph() -> None:
    graph = small_graph()
    graph.add_edge(7, 7)
    with pytest.raises(DagError, match=r"an edge joins 7 = forward\(stage 5, microbatch 0\) to itself"):
        PipelineDag.from_networkx(graph)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.DiGraph(), "the graph has no nodes"),
        (nx.path_graph(3), "the graph has no directions"),
        ({"a": []}, "the graph is of type dict; it must be a networkx.DiGraph"),
        (None, "the graph is of type NoneType"),
    ],
)
def test_what_is_no_graph(graph: Any, message: str) -> None:
    with pytest.raises(DagError, match=message):
        PipelineDag.from_networkx(graph)


def test_networkx_is_needed_for_writing_a_graph_only() -> None:
    code = (
        "import sys; sys.modules['networkx'] = None\n"
        "from perseus.dag import PipelineDag\n"
        "dag = PipelineDag.from_schedule('1f1b', num_stages=2, num_microbatches=2)\n"
        "try: dag.to_networkx()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.startswith(MissingExtraError.__name__)
    assert result.stdout.endswith("run: pip install 'perseus-energy[networkx]'\n")


# -- time --------------------------------------------------------------------------------------------------


def test_starts_and_makespan_honour_latency() -> None:
    dag = PipelineDag.from_orders(F0B0, latency_s=0.5)
    starts = dag.earliest_starts([1, 2, 1, 2])
    np.testing.assert_array_equal(starts, [0, 5, 1.5, 2.5])
    assert dag.makespan_s([1, 2, 1, 2]) == 7.0


@pytest.mark.parametrize(
    ("durations_s", "message"),
    [
        ([1, 2], r"durations_s has shape \(2,\); it must be \(4,\)"),
        (1.0, r"durations_s has shape \(\)"),
        ([1, 2, 3, -1], r"durations_s\[3\] is -1.0; a duration is a finite"),
        ([1, math.nan, 3, 1], r"durations_s\[1\] is nan"),
        ([1, math.inf, 3, 1], r"durations_s\[1\] is inf"),
        (["a", 1, 1, 1], "durations_s are not real numbers"),
        (["1", "1", "1", "1"], "durations_s are not real numbers"),
        ([1j, 1, 1, 1], "durations_s are not real numbers"),
        ([[1], 1, 1, 1], "durations_s are not real numbers"),
    ],
)
def test_wrong_durations(durations_s: Any, message: str) -> None:
    dag = PipelineDag.from_orders(F0B0)
    for method in (dag.earliest_starts, dag.makespan_s):
        with pytest.raises(DagError, match=message):
            method(durations_s)


@pytest.mark.parametrize("rank", [-1, 2])
def test_stages_of_a_rank_that_is_not_there(rank: int) -> None:
    with pytest.raises(DagError, match=f"rank is {rank}; this pipeline has the ranks 0 to 1"):
        PipelineDag.from_orders(F0B0).stages_of_rank(rank)


def test_deep_pipeline_needs_no_recursion() -> None:
    dag = PipelineDag.from_orders([[("F", 0, m) for m in range(20_000)]])
    assert dag.makespan_s(np.ones(20_000)) == 20_000


# -- the view of operations ----------------------------------------------------------------------------------


def test_operations_behave_as_a_sequence() -> None:
    dag = PipelineDag.from_schedule("1f1b", num_stages=2, num_microbatches=3)
    view, listed = dag.operations, list(dag.operations)
    assert len(view) == 12
    assert view == listed
    assert view == dag.operations
    assert view != listed[:-1]
    assert view != [*listed[:-1], listed[0]]
    assert view != "text"
    assert view != 3
    assert [view[i] for i in range(-12, 12)] == [listed[i] for i in range(-12, 12)]
    for part in (slice(2, 9, 3), slice(None, None, -1), slice(-3, None), slice(5, 5)):
        assert view[part] == listed[part]
        assert list(view[part]) == listed[part]
    assert view[2:9][-1] == listed[8]
    assert list(reversed(view)) == listed[::-1]
    assert all(type(value) is int for value in (view[0].stage, view[0].microbatch, view[0].rank))
    for outside in (12, -13):
        with pytest.raises(IndexError):
            view[outside]


def test_operations_are_found() -> None:
    dag = PipelineDag.from_schedule("1f1b", num_stages=2, num_microbatches=3)
    view = dag.operations
    for place, operation in enumerate(view):
        assert operation in view
        assert view.index(operation) == place
        assert view.count(operation) == 1
        assert view[::-1].index(operation) == 11 - place
    assert view.index(view[5], 5, 6) == 5
    assert view.index(view[5], -7) == 5
    with pytest.raises(ValueError, match="is not among these operations"):
        view.index(view[5], 6)
    assert view[5] not in view[6:]
    for other in (Operation(0, 3, "forward", 0), Operation(0, 0, "load", 0), "forward", (0, 0, "forward"), None):
        assert other not in view
        assert view.count(other) == 0
    assert (0, 0, ["forward"], 0) not in view
    assert (None, "a", "forward", [1]) not in view


def test_operations_show_their_first_few() -> None:
    dag = PipelineDag.from_orders(F0B0)
    assert repr(dag.operations).startswith("<4 operations: Operation(stage=0, microbatch=0, kind='forward', rank=0), ")
    assert repr(dag.operations).endswith(", ...>")
    assert repr(dag.operations[:0]) == "<0 operations: >"


# -- value semantics -----------------------------------------------------------------------------------------


def test_pipeline_is_immutable() -> None:
    dag = PipelineDag.from_orders(F0B0)
    with pytest.raises(AttributeError, match="immutable; 'kinds' cannot be set"):
        dag.kinds = ()  # type: ignore[misc]
    with pytest.raises(AttributeError, match="immutable; 'new' cannot be set"):
        dag.new = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="immutable; 'kinds' cannot be deleted"):
        del dag.kinds


def test_equal_pipelines() -> None:
    def made(**changes: Any) -> PipelineDag:
        arguments = {"orders": ["F0 B0", "F0 B0"], "latency_s": 0.5, "fixed_times": {"B": (1, 1)}} | changes
        return PipelineDag.from_orders(**arguments)

    assert made() == made()
    assert made() == copy.copy(made())
    assert made() == copy.deepcopy(made())
    for changes in (
        {"latency_s": 0.25},
        {"fixed_times": None},
        {"fixed_times": {"B": (1, 2)}},
        {"fixed_times": {"B": (2, 1)}},
        {"edges": []},
        {"edges": [(0, 2)]},
        {"orders": ["F1 B1", "F1 B1"]},
        {"orders": ["1F0 1B0", "0F0 0B0"]},
        {"orders": ["F0 B0"]},
        {"orders": ["F0 I0", "F0 I0"], "fixed_times": {"I": (1, 1)}},
    ):
        assert made() != made(**changes)
    assert made() != "text"
    assert len({made(), made(), made(latency_s=0.25)}) == 2


def test_edges_are_equal_in_any_order_and_labels_do_not_count() -> None:
    orders = ["F0 B0", "F0 B0"]
    assert PipelineDag.from_orders(orders, [(0, 2), (3, 1)]) == PipelineDag.from_orders(orders, [(3, 1), (0, 2)])
    graph = PipelineDag.from_orders(orders).to_networkx()
    assert PipelineDag.from_networkx(nx.relabel_nodes(graph, str)) == PipelineDag.from_networkx(graph)


def test_schedules_of_the_same_order_are_equal() -> None:
    sizes = {"num_stages": 3, "num_microbatches": 1}
    assert PipelineDag.from_schedule("gpipe", **sizes) == PipelineDag.from_schedule("1f1b", **sizes)
    other = PipelineDag.from_schedule("1f1b", num_stages=3, num_microbatches=2)
    assert PipelineDag.from_schedule("gpipe", num_stages=3, num_microbatches=2) != other


def test_pickled_schedule_pipeline_is_small() -> None:
    dag = PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=1000)
    dag.edges.sum()
    assert len(pickle.dumps(dag)) < 1000
    assert pickle.loads(pickle.dumps(dag)).num_microbatches == 1000


# -- JSON form ---------------------------------------------------------------------------------------------


def returned(dag: PipelineDag) -> PipelineDag:
    return PipelineDag.from_dict(json.loads(json.dumps(dag.to_dict(), allow_nan=False)))


def test_schedule_is_written_as_its_sizes() -> None:
    dag = PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=100_000)
    assert dag.to_dict() == {
        "format": "perseus-pipeline-dag",
        "version": 1,
        "schedule": "1f1b",
        "num_stages": 8,
        "num_microbatches": 100_000,
        "num_chunks": 1,
    }
    assert returned(dag) == dag
    assert returned(dag).schedule == "1f1b"


@pytest.mark.parametrize(
    "dag",
    [
        PipelineDag.from_orders(["load F0 B0", "F0 B0"], fixed_times={"load": (1, 2)}, latency_s=0.1),
        PipelineDag.from_orders(["F0"]),
        PipelineDag.from_networkx(small_graph()),
    ],
)
def test_arrays_return_from_json(dag: PipelineDag) -> None:
    assert returned(dag) == dag
    assert returned(dag).labels == dag.labels
    assert returned(dag).to_dict() == dag.to_dict()


def test_labels_that_json_cannot_hold_are_left_out() -> None:
    class Label:
        pass

    for label in (Label(), frozenset({1}), math.inf, (1, Label())):
        graph: nx.DiGraph[Any] = nx.DiGraph()
        graph.add_node(label, stage=0, kind="forward")
        assert returned(PipelineDag.from_networkx(graph)).labels is None
    graph = nx.DiGraph()
    for label in ("a", 1, 2.5, False, ("F", (0, None))):
        graph.add_node(label, stage=0, kind="forward")
    assert returned(PipelineDag.from_networkx(graph)).labels == ("a", 1, 2.5, False, ("F", (0, None)))


ORDERS_DOCUMENT = PipelineDag.from_orders(
    ["load F0 B0", "F0 B0"], fixed_times={"load": (1, 2)}, latency_s=0.5
).to_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "the format is 'other'; a pipeline's is 'perseus-pipeline-dag'"),
        ({"version": 2}, "the version is 2, this release reads 1"),
        ({"version": True}, "the version is True"),
        ({"version": None}, "the version is None"),
        ({"extra": 1}, "the pipeline has the unknown extra"),
        ({"kinds": []}, r"kinds is \[\]; it must hold at least one name"),
        ({"kinds": ["load", 3]}, "kinds is .*it must hold at least one name"),
        ({"kinds": "load"}, "kinds is of type str; it must be a list"),
        ({"kind_code": []}, "kind_code is empty"),
        ({"kind_code": [0, 0, 1, 0, 3]}, r"kind_code\[4\] is 3; it must be an integer from 0 to 2"),
        ({"stage": [0, 0, 0, 1]}, "stage has 4 values where 5 belong"),
        ({"stage": [0, 0, 0, 1, 1.0]}, r"stage\[4\] is 1.0; it must be an integer"),
        ({"stage": [0, 0, 0, 1, True]}, r"stage\[4\] is True; it must be an integer"),
        ({"stage": [0, 0, 0, 1, -1]}, r"stage\[4\] is -1; it must be an integer from 0"),
        ({"microbatch": [-2, 0, 0, 0, 0]}, r"microbatch\[0\] is -2; it must be an integer from -1"),
        ({"microbatch": [-1, 0, 0, 0, 2**31]}, r"microbatch\[4\] is 2147483648"),
        ({"rank": [0, 0, 0, 2, 2]}, "rank lacks some of 0 to 2"),
        ({"rank": [1, 1, 1, 1, 1]}, "rank lacks some of 0 to 1"),
        (
            {"stage": [0, 0, 0, 0, 1]},
            r"forward\(stage 0, microbatch 0\) occurs twice, at operation 1 and at operation 3",
        ),
        ({"predecessor": [0]}, "successor has 5 values where 1 belong"),
        ({"predecessor": [0, 1, 3, 1, 9]}, r"predecessor\[4\] is 9; it must be an integer from 0 to 4"),
        ({"predecessor": [2, 1, 3, 1, 4], "successor": [1, 2, 4, 3, 2]}, "the edges form a cycle"),
        ({"predecessor": [1, 1, 3, 1, 4], "successor": [1, 2, 4, 3, 2]}, "an edge joins .* to itself"),
        ({"latency_s": -1}, "latency_s is -1.0"),
        ({"latency_s": [0, 0, 0, 0, math.nan]}, r"latency_s\[4\] is nan"),
        ({"latency_s": [0]}, "latency_s has 1 values where 5 belong"),
        ({"fixed": []}, r"fixed is \[\]; it must be a mapping"),
        ({"fixed": {}}, "the pipeline lacks energy_j, operation, time_s"),
        ({"fixed": {"operation": [5], "time_s": [1], "energy_j": [1]}}, r"operation\[0\] is 5"),
        ({"fixed": {"operation": [0], "time_s": [], "energy_j": [1]}}, "fixed time_s has 0 values where 1 belong"),
        ({"fixed": {"operation": [0], "time_s": [1], "energy_j": [None]}}, "a fixed energy_j is None"),
        ({"fixed": {"operation": [0], "time_s": [-1], "energy_j": [1]}}, "a fixed time_s is -1.0"),
        ({"labels": ["a"]}, "labels has 1 values where 5 belong"),
        ({"labels": ["a", "b", "c", "d", {}]}, "a label is {}"),
        ({"labels": ["a", "b", "c", "d", "a"]}, "some labels occur twice"),
        ({"labels": "abcde"}, "labels is of type str"),
        ({"schedule": "1f1b"}, "the pipeline lacks num_chunks, num_microbatches, num_stages"),
    ],
)
def test_document_that_is_no_pipeline(change: dict[str, object], message: str) -> None:
    with pytest.raises(DagError, match=message):
        PipelineDag.from_dict({**ORDERS_DOCUMENT, **change})


@pytest.mark.parametrize("key", ORDERS_DOCUMENT)
def test_document_without_one_of_its_parts(key: str) -> None:
    with pytest.raises(DagError, match=key):
        PipelineDag.from_dict({k: v for k, v in ORDERS_DOCUMENT.items() if k != key})


@pytest.mark.parametrize("data", [None, [], "text", 3, {}])
def test_what_is_no_document(data: Any) -> None:
    with pytest.raises(DagError, match=r"the pipeline is of type|the format is None"):
        PipelineDag.from_dict(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": "1f2b"}, "unknown schedule '1f2b'"),
        ({"schedule": None}, "unknown schedule None"),
        ({"num_stages": 0}, "num_stages is 0"),
        ({"num_stages": None}, "num_stages is None"),
        ({"num_microbatches": "8"}, "num_microbatches is '8'"),
        ({"num_chunks": 2}, "num_chunks is 2"),
        ({"stage": []}, "the pipeline has the unknown stage"),
    ],
)
def test_schedule_document_that_is_no_pipeline(change: dict[str, object], message: str) -> None:
    dag = PipelineDag.from_schedule("1f1b", num_stages=2, num_microbatches=2)
    with pytest.raises(DagError, match=message):
        PipelineDag.from_dict({**dag.to_dict(), **change})


def test_every_schedule_can_be_pickled_by_name() -> None:
    for schedule in SCHEDULES.values():
        content = ScheduleContent(schedule, ScheduleSizes(num_stages=2, num_microbatches=2))
        assert pickle.loads(pickle.dumps(content)).schedule is schedule
