"""Reads a pipeline from a networkx graph, and writes one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from perseus.dag.content import ArrayContent, Content, Edges, FixedCosts, checked_content
from perseus.dag.from_orders import checked_cost, checked_seconds
from perseus.errors import DagError, MissingExtraError
from perseus.orders.notation import NameIndex, OperationName, checked_index, checked_name, table_of_names
from perseus.orders.table import MAX_STAGE, NO_MICROBATCH

if TYPE_CHECKING:
    import networkx as nx


def content_from_networkx(graph: Any) -> ArrayContent:
    """Return the pipeline of `PipelineDag.from_networkx`, which documents the attributes and errors."""
    try:
        is_directed = graph.is_directed()
        nodes: list[tuple[Hashable, Mapping[str, object]]] = list(graph.nodes(data=True))
        edges: list[tuple[Hashable, Hashable, Mapping[str, object]]] = list(graph.edges(data=True))
    except (AttributeError, TypeError):
        raise DagError(f"the graph is of type {type(graph).__name__}; it must be a networkx.DiGraph") from None
    if not is_directed:
        raise DagError("the graph has no directions; it must be a networkx.DiGraph, edges from first to next")
    if not nodes:
        raise DagError("the graph has no nodes; a pipeline has at least one operation")
    names = [_name_of_node(label, attributes) for label, attributes in nodes]
    NameIndex(names, lambda row: f"node {nodes[row][0]!r}")
    row_of = {label: row for row, (label, _) in enumerate(nodes)}
    pairs = [(row_of[before], row_of[after]) for before, after, _ in edges]
    latencies = [_latency_of_edge(*edge) for edge in edges]
    return checked_content(
        table_of_names(names, _ranks(nodes, names)),
        Edges(np.array(pairs, dtype=np.int32).reshape(-1, 2), np.array(latencies, dtype=np.float64)),
        _fixed_costs(nodes),
        labels=tuple(label for label, _ in nodes),
    )


def _name_of_node(label: Hashable, attributes: Mapping[str, object]) -> OperationName:
    for required in ("stage", "kind"):
        if required not in attributes:
            raise DagError(
                f"node {label!r} has no attribute {required!r}; every node needs 'stage' and 'kind', e.g. "
                f"graph.add_node({label!r}, stage=0, kind='forward', microbatch=0)"
            )
    where = f"node {label!r}"
    return checked_name(attributes["kind"], attributes["stage"], attributes.get("microbatch"), where)


def _ranks(nodes: list[tuple[Hashable, Mapping[str, object]]], names: list[OperationName]) -> list[int]:
    """Return the ranks, numbered from 0 without gaps in the order of the numbers found."""
    found = [
        name.stage
        if attributes.get("rank") is None
        else checked_index(f"the rank of node {label!r}", attributes["rank"], MAX_STAGE)
        for (label, attributes), name in zip(nodes, names, strict=True)
    ]
    number_of = {rank: number for number, rank in enumerate(sorted(set(found)))}
    return [number_of[rank] for rank in found]


def _latency_of_edge(before: Hashable, after: Hashable, attributes: Mapping[str, object]) -> float:
    latency_s = attributes.get("latency_s")
    return 0.0 if latency_s is None else checked_seconds(f"latency_s of edge {before!r} -> {after!r}", latency_s)


def _fixed_costs(nodes: list[tuple[Hashable, Mapping[str, object]]]) -> FixedCosts:
    fixed = FixedCosts.none(len(nodes))
    for row, (label, attributes) in enumerate(nodes):
        cost = attributes.get("fixed_time_s"), attributes.get("fixed_energy_j")
        if cost == (None, None):
            continue
        if None in cost:
            raise DagError(
                f"node {label!r} has only one of 'fixed_time_s' and 'fixed_energy_j'; an operation of fixed "
                "time needs both: add the other, or remove it for an operation with a profile"
            )
        fixed.time_s[row], fixed.energy_j[row] = checked_cost(f"node {label!r}", cost)
    return fixed


def networkx_graph(content: Content) -> nx.DiGraph[Hashable]:
    """Return the pipeline as a graph that `content_from_networkx` reads back.

    Raises
    ------
    MissingExtraError
        If networkx is not installed.
    """
    try:
        import networkx as nx
    except ImportError:
        raise MissingExtraError(
            "networkx is not installed, and graphs need it; run: pip install 'perseus-energy[networkx]'"
        ) from None
    graph: nx.DiGraph[Hashable] = nx.DiGraph()
    labels = content.labels or tuple(range(content.num_operations))
    graph.add_nodes_from(zip(labels, _node_attributes(content), strict=True))
    pairs, latencies = content.edges
    for (before, after), latency_s in zip(pairs.tolist(), latencies.tolist(), strict=True):
        graph.add_edge(labels[before], labels[after], latency_s=latency_s)
    return graph


def _node_attributes(content: Content) -> list[dict[str, object]]:
    table, fixed = content.table, content.fixed
    nodes: list[dict[str, object]] = [
        {"stage": stage, "kind": table.kinds[code], "rank": rank}
        for stage, code, rank in zip(table.stage.tolist(), table.kind_code.tolist(), table.rank.tolist(), strict=True)
    ]
    for row in np.flatnonzero(table.microbatch != NO_MICROBATCH).tolist():
        nodes[row]["microbatch"] = int(table.microbatch[row])
    for row in np.flatnonzero(~np.isnan(fixed.time_s)).tolist():
        nodes[row]["fixed_time_s"] = float(fixed.time_s[row])
        nodes[row]["fixed_energy_j"] = float(fixed.energy_j[row])
    return nodes
