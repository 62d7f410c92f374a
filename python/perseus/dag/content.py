"""What a `PipelineDag` holds: given as arrays and checked, or defined by a schedule and made when needed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from perseus.dag import precedence
from perseus.errors import DagError
from perseus.orders.dependencies import implied_by_program_order, program_edges
from perseus.orders.notation import OperationName
from perseus.orders.registry import find_schedule
from perseus.orders.schedule import Schedule, ScheduleSizes
from perseus.orders.table import NO_MICROBATCH, OperationTable


class Edges(NamedTuple):
    """Edges between operations.

    Attributes
    ----------
    pairs:
        int32, shape (num_edges, 2): predecessor and successor.
    latency_s:
        float64, shape (num_edges,): seconds from the predecessor's end to the successor's start, at least 0.
    """

    pairs: NDArray[np.int32]
    latency_s: NDArray[np.float64]

    @classmethod
    def without_latency(cls, pairs: NDArray[np.int32]) -> Edges:
        """Return edges that cost no time."""
        return cls(pairs, np.zeros(len(pairs)))

    def take(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Edges:
        """Return the edges at `rows`."""
        return Edges(self.pairs[rows], self.latency_s[rows])


class FixedCosts(NamedTuple):
    """Time and energy of operations that have no choice: float64, shape (num_operations,), NaN elsewhere."""

    time_s: NDArray[np.float64]
    energy_j: NDArray[np.float64]

    @classmethod
    def none(cls, num_operations: int) -> FixedCosts:
        """Return the costs of a pipeline in which every operation has a profile."""
        return cls(np.full(num_operations, np.nan), np.full(num_operations, np.nan))


class Content(Protocol):
    """The parts of a `PipelineDag`. The sizes and kinds cost nothing, the others may be made on first use."""

    @property
    def num_operations(self) -> int:
        """Number of operations; costs nothing."""

    @property
    def num_ranks(self) -> int:
        """Number of ranks; costs nothing."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the kinds of operation; cost nothing."""

    @property
    def table(self) -> OperationTable:
        """The operations."""

    @property
    def edges(self) -> Edges:
        """Program order and data dependencies, without parallel edges."""

    @property
    def fixed(self) -> FixedCosts:
        """Costs of the operations without a choice."""

    @property
    def labels(self) -> tuple[Hashable, ...] | None:
        """The user's own names of the operations."""


class ScheduleContent:
    """A pipeline defined by a schedule and its sizes.

    Its orders are free of deadlock for all sizes that the schedule accepts (the tests hold it), so nothing is
    checked here.
    """

    labels: tuple[Hashable, ...] | None = None

    def __init__(self, schedule: Schedule, sizes: ScheduleSizes) -> None:
        self.schedule = schedule
        self.sizes = sizes
        self.num_operations = schedule.num_operations(sizes)
        self.num_ranks = schedule.num_ranks(sizes)
        self.kinds = schedule.kinds

    def __reduce__(self) -> tuple[Callable[..., ScheduleContent], tuple[str, ScheduleSizes]]:
        return _schedule_content, (self.schedule.name, self.sizes)

    def is_same_as(self, other: Content) -> bool:
        """Tell whether `other` is defined by the same schedule and sizes."""
        return isinstance(other, ScheduleContent) and (self.schedule.name, self.sizes) == (
            other.schedule.name,
            other.sizes,
        )

    @cached_property
    def table(self) -> OperationTable:
        """The operations."""
        return self.schedule.table(self.sizes)

    @cached_property
    def edges(self) -> Edges:
        """Program order and data dependencies, without parallel edges."""
        data = Edges.without_latency(self.schedule.data_edges(self.table))
        return join_program_order(data, self.table.rank)

    @cached_property
    def fixed(self) -> FixedCosts:
        """Costs of the operations without a choice."""
        return FixedCosts.none(self.num_operations)


def _schedule_content(name: str, sizes: ScheduleSizes) -> ScheduleContent:
    return ScheduleContent(find_schedule(name), sizes)


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayContent:
    """A pipeline given by its arrays; make it with `checked_content`."""

    table: OperationTable
    edges: Edges
    fixed: FixedCosts
    labels: tuple[Hashable, ...] | None = None

    @property
    def num_operations(self) -> int:
        """Number of operations; costs nothing."""
        return len(self.table)

    @cached_property
    def num_ranks(self) -> int:
        """Number of ranks; costs nothing."""
        return int(self.table.rank.max()) + 1

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the kinds of operation; cost nothing."""
        return self.table.kinds


def operation_name(table: OperationTable, labels: tuple[Hashable, ...] | None, row: int) -> str:
    """Return an operation's name for a message, such as "forward(stage 0, microbatch 3)"."""
    kind, microbatch = table.kinds[table.kind_code[row]], int(table.microbatch[row])
    name = str(OperationName(kind, int(table.stage[row]), microbatch))
    if labels is not None:
        return f"{labels[row]!r} = {name}"
    # Without a microbatch the name may occur several times.
    return f"operation {row} {name}" if microbatch == NO_MICROBATCH else name


def join_program_order(edges: Edges, rank: NDArray[np.int32]) -> Edges:
    """Return the program order of each rank and the edges that it does not imply.

    Parameters
    ----------
    edges:
        Further edges; one inside a rank is dropped if the program order implies it and it has no latency.
    rank:
        Shape (num_operations,), the operations' ranks, rank by rank in program order.
    """
    program = Edges.without_latency(program_edges(rank))
    kept = edges.take(~implied_by_program_order(edges.pairs, rank) | (edges.latency_s > 0))
    return Edges(np.concatenate((program.pairs, kept.pairs)), np.concatenate((program.latency_s, kept.latency_s)))


def merge_parallel(edges: Edges, num_operations: int) -> Edges:
    """Return the edges with those between the same two operations joined into one, of the largest latency."""
    keys = edges.pairs[:, 0].astype(np.int64) * num_operations + edges.pairs[:, 1]
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    if first.size == keys.size:
        return edges
    latency_s = np.zeros(first.size)
    np.maximum.at(latency_s, group.reshape(-1), edges.latency_s)
    in_given_order = np.argsort(first)
    return Edges(edges.pairs[first[in_given_order]], latency_s[in_given_order])


def checked_content(
    table: OperationTable,
    edges: Edges,
    fixed: FixedCosts,
    *,
    labels: tuple[Hashable, ...] | None = None,
    is_program_ordered: bool = False,
) -> ArrayContent:
    """Return the content of a valid pipeline.

    Parameters
    ----------
    table, edges, fixed:
        Numbers in range; parallel edges are allowed.
    labels:
        The user's own names of the operations.
    is_program_ordered:
        Whether an edge from an operation to the next one of its rank is program order, for the message.

    Raises
    ------
    DagError
        If an edge joins an operation to itself, or edges form a cycle; the message names the operations.
    """
    edges = merge_parallel(edges, len(table))
    name_of = partial(operation_name, table, labels)

    loops = np.flatnonzero(edges.pairs[:, 0] == edges.pairs[:, 1])
    if loops.size:
        raise DagError(
            f"an edge joins {name_of(int(edges.pairs[loops[0], 0]))} to itself; "
            "no operation can wait for itself: remove the edge"
        )
    order = precedence.topological_order(len(table), edges.pairs)
    if order.size < len(table):
        cycle = precedence.find_short_cycle(len(table), edges.pairs, order)
        raise DagError(_cycle_message(cycle, name_of, table.rank if is_program_ordered else None))
    return ArrayContent(table=table, edges=edges, fixed=fixed, labels=labels)


def _cycle_message(cycle: list[int], name_of: Callable[[int], str], rank: NDArray[np.int32] | None) -> str:
    if rank is None:
        chain = precedence.cycle_text(cycle, name_of, lambda before, after: "")
        return f"the edges form a cycle: {chain}; no operation can wait for itself: remove one of these edges"

    def reason_of(before: int, after: int) -> str:
        next_in_order = after == before + 1 and rank[before] == rank[after]
        return f" (order of rank {rank[before]})" if next_in_order else " (dependency)"

    return (
        "the orders deadlock, each of these operations waits for the one before it: "
        f"{precedence.cycle_text(cycle, name_of, reason_of)}; the orders must let every operation run after the "
        "data that it needs: move one of these operations in its rank's order, or remove an edge"
    )
