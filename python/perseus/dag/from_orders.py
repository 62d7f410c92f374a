"""Reads explicit orders, edges and fixed times into the content of a pipeline."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perseus.dag.content import ArrayContent, Edges, FixedCosts, checked_content, join_program_order
from perseus.errors import DagError
from perseus.orders.dependencies import data_edges
from perseus.orders.kinds import kind_name
from perseus.orders.notation import (
    NameIndex,
    checked_index,
    parse_operation,
    parse_orders,
    table_of_names,
)
from perseus.orders.table import OperationTable


def content_from_orders(
    orders: Iterable[object],
    edges: Iterable[object] | None,
    fixed_times: Mapping[object, object] | None,
    latency_s: object,
) -> ArrayContent:
    """Return the pipeline of `PipelineDag.from_orders`, which documents the parameters and errors."""
    parsed = parse_orders(orders)
    names = [name for order in parsed for name in order]
    ranks = [rank for rank, order in enumerate(parsed) for _ in order]
    first_row = np.cumsum([0, *(len(order) for order in parsed)])
    table = table_of_names(names, ranks)
    index = NameIndex(names, lambda row: f"orders[{ranks[row]}][{row - first_row[ranks[row]]}]")
    if edges is None:
        pairs = data_edges(table)
        latencies = np.full(len(pairs), np.nan)
        if _values(latency_s) is not None:
            raise DagError("latency_s is a sequence, but no edges are given; give one number, or the edges too")
    else:
        pairs, latencies = _read_edges(edges, index, len(table))
    data = Edges(pairs, _filled_latencies(latencies, latency_s, pairs, table))
    return checked_content(
        table,
        join_program_order(data, table.rank),
        _read_fixed_times(fixed_times, index, table),
        is_program_ordered=True,
    )


def _read_edges(
    edges: Iterable[object], index: NameIndex, num_operations: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return pairs, shape (num_edges, 2), and the latency of each edge, NaN where the edge gives none."""
    if isinstance(edges, (str, bytes, Mapping)) or not isinstance(edges, Iterable):
        raise DagError(f"edges is {edges!r}; it must be a sequence of pairs (predecessor, successor)")
    if isinstance(edges, np.ndarray) and edges.dtype.kind in "iu" and edges.ndim == 2 and edges.shape[1] == 2:
        return _checked_pairs(edges, num_operations), np.full(len(edges), np.nan)
    pairs: list[tuple[int, int]] = []
    latencies: list[float] = []
    for number, edge in enumerate(edges):
        if isinstance(edge, str) or not isinstance(edge, Iterable):
            raise DagError(f"edges[{number}] is {edge!r}; it must be (predecessor, successor) or (..., latency_s)")
        ends = tuple(edge)
        if len(ends) not in (2, 3):
            raise DagError(
                f"edges[{number}] has {len(ends)} members; it must be (predecessor, successor) or (..., latency_s)"
            )
        pairs.append((_row_of(ends[0], number, index, num_operations), _row_of(ends[1], number, index, num_operations)))
        latencies.append(np.nan if len(ends) == 2 else checked_seconds(f"the latency_s of edges[{number}]", ends[2]))
    return np.array(pairs, dtype=np.int32).reshape(-1, 2), np.array(latencies, dtype=np.float64)


def _checked_pairs(pairs: NDArray[Any], num_operations: int) -> NDArray[np.int32]:
    outside = np.argwhere((pairs < 0) | (pairs >= num_operations))
    if outside.size:
        edge, end = outside[0]
        checked_index(f"an end of edges[{edge}]", pairs[edge, end], num_operations - 1)
    return pairs.astype(np.int32)


def _row_of(end: object, edge: int, index: NameIndex, num_operations: int) -> int:
    if type(end) is int and 0 <= end < num_operations:
        return end
    where = f"an end of edges[{edge}]"
    if isinstance(end, (str, tuple, list)):
        return index.row(parse_operation(end, where), where)
    return checked_index(where, end, num_operations - 1)


def _filled_latencies(
    latencies: NDArray[np.float64], latency_s: object, pairs: NDArray[np.int32], table: OperationTable
) -> NDArray[np.float64]:
    """Return the latency of each edge: its own, or `latency_s` if it joins two ranks, or 0."""
    given = _values(latency_s)
    if given is not None:
        if len(given) != len(pairs):
            raise DagError(f"latency_s has {len(given)} values for {len(pairs)} edges; give one for each edge")
        if not np.isnan(latencies).all():
            raise DagError("both latency_s and some edges give latencies for each edge; give them in one place")
        return np.array([checked_seconds(f"latency_s[{i}]", value) for i, value in enumerate(given)])
    between_ranks = table.rank[pairs[:, 0]] != table.rank[pairs[:, 1]]
    default = np.where(between_ranks, checked_seconds("latency_s", latency_s), 0.0)
    return np.where(np.isnan(latencies), default, latencies)


def _values(latency_s: object) -> list[object] | None:
    """Return the members of a sequence, None for what should be one number."""
    if not isinstance(latency_s, Collection) or isinstance(latency_s, (str, bytes, Set, Mapping)):
        return None
    return None if getattr(latency_s, "ndim", 1) == 0 else list(latency_s)


def checked_seconds(what: str, value: object) -> float:
    """Return `value` as a float of at least 0, in seconds; `what` names it in the `DagError`."""
    return checked_amount(what, value, "a finite number of seconds, at least 0")


def checked_amount(what: str, value: object, rule: str) -> float:
    """Return `value` as a finite float of at least 0."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise DagError(f"{what} is {value!r}; it must be {rule}")
    try:
        amount = float(value)
    except OverflowError:
        amount = np.inf
    if not (np.isfinite(amount) and amount >= 0):
        raise DagError(f"{what} is {amount}; it must be {rule}")
    return amount


def _read_fixed_times(
    fixed_times: Mapping[object, object] | None, index: NameIndex, table: OperationTable
) -> FixedCosts:
    """Return the fixed costs; those given for an operation go before those given for its kind."""
    fixed = FixedCosts.none(len(table))
    if fixed_times is None:
        return fixed
    if not isinstance(fixed_times, Mapping):
        raise DagError(f"fixed_times is {fixed_times!r}; it must map a kind or operation to (time_s, energy_j)")
    kinds_first = sorted(fixed_times, key=lambda key: not isinstance(key, str))
    for key in kinds_first:
        rows = _rows_of_key(key, index, table)
        fixed.time_s[rows], fixed.energy_j[rows] = checked_cost(f"fixed_times[{key!r}]", fixed_times[key])
    return fixed


def _rows_of_key(key: object, index: NameIndex, table: OperationTable) -> NDArray[np.intp]:
    if isinstance(key, str):
        kind = kind_name(key)
        if kind not in table.kinds:
            raise DagError(
                f"fixed_times names the kind {key!r}, of which there is no operation; "
                f"the kinds here are {', '.join(table.kinds)}"
            )
        return np.flatnonzero(table.kind_code == table.kinds.index(kind))
    name = parse_operation(key, f"the key {key!r} of fixed_times")
    rows = index.rows(name)
    if not rows:
        raise DagError(f"fixed_times names {name}, which is not among the operations; correct or remove it")
    return np.array(rows, dtype=np.intp)


def checked_cost(where: str, cost: object) -> tuple[float, float]:
    """Return (time_s, energy_j), each finite and at least 0; `where` names it in the `DagError`."""
    if isinstance(cost, (str, bytes)) or not isinstance(cost, Iterable):
        raise DagError(f"{where} is {cost!r}; it must be a pair (time_s, energy_j)")
    members = tuple(cost)
    if len(members) != 2:
        raise DagError(f"{where} has {len(members)} members; it must be a pair (time_s, energy_j)")
    return (
        checked_seconds(f"the time of {where}", members[0]),
        checked_amount(f"the energy of {where}", members[1], "a finite number of joules, at least 0"),
    )
