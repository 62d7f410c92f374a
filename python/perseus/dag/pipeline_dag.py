"""The operations of one training iteration and what each must wait for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perseus.dag import document, precedence
from perseus.dag.content import Content, Edges, ScheduleContent
from perseus.dag.from_orders import content_from_orders
from perseus.dag.graph import content_from_networkx, networkx_graph
from perseus.errors import DagError
from perseus.orders.notation import Operation
from perseus.orders.registry import find_schedule
from perseus.orders.table import OperationTable

if TYPE_CHECKING:
    import networkx as nx


class PipelineDag:
    """The operations of one training iteration and the edges between them: an immutable value.

    Make one with `from_schedule`, `from_orders` or `from_networkx`. It is valid by construction: numbers in
    range, no cycle, no negative latency. Arrays are made on first use, kept, and read-only.

    Operations are numbered rank by rank, in program order within a rank (`from_schedule`, `from_orders`),
    or as the graph's nodes (`from_networkx`). Edges are the program order of each rank and the data dependencies
    between ranks; a dependency inside a rank follows from its program order and is not stored again.

    Two pipelines are equal if their operations (in order), fixed costs and edges (in any order) are; labels
    do not count. Pipelines are hashable and can be pickled.
    """

    def __init__(self, content: Content) -> None:
        """Hold checked content; users call one of the `from_` methods."""
        self.__dict__["_content"] = content

    _content: Content

    # -- making one ----------------------------------------------------------------------------------------

    @classmethod
    def from_schedule(
        cls, name: str, *, num_stages: int, num_microbatches: int, num_chunks: int | None = None
    ) -> PipelineDag:
        """Return the pipeline of a named schedule. Takes microseconds: arrays are made when asked for.

        Parameters
        ----------
        name:
            A key of `perseus.orders.SCHEDULES`: "gpipe", "1f1b".
        num_stages, num_microbatches:
            Sizes, at least 1.
        num_chunks:
            Stages on each rank, for schedules with virtual chunks.

        Raises
        ------
        ScheduleError
            If the name is unknown (the message lists the names), or a size breaks a rule of the schedule.

        Examples
        --------
        >>> dag = PipelineDag.from_schedule("1f1b", num_stages=2, num_microbatches=3)
        >>> [f"{o.kind[0]}{o.microbatch}" for o in dag.operations if o.rank == 0]
        ['f0', 'f1', 'b0', 'f2', 'b1', 'b2']
        """
        schedule = find_schedule(name)
        return cls(ScheduleContent(schedule, schedule.sizes(num_stages, num_microbatches, num_chunks)))

    @classmethod
    def from_orders(
        cls,
        orders: Iterable[object],
        edges: Iterable[object] | None = None,
        *,
        fixed_times: Mapping[Any, object] | None = None,
        latency_s: object = 0.0,
    ) -> PipelineDag:
        """Return the pipeline in which each rank runs its operations in the order given.

        Parameters
        ----------
        orders:
            For each rank the sequence of its operations, or one text with operations separated by blanks. An
            operation is an `Operation`, a tuple ``(kind, stage, microbatch)`` or ``(kind, stage)``, or text:
            ``"F3"`` is microbatch 3 on the stage numbered like the rank, ``"2F3"`` is on stage 2,
            ``"optimizer"`` is a kind without microbatch. Kinds are names or letters (F, B, I, W, R).
        edges:
            What waits for what besides the program order of each rank: ``(predecessor, successor)`` or
            ``(predecessor, successor, latency_s)``, each end an operation as above (text must name its
            stage) or its number. None derives the data dependencies of F, B, I, W and R by the rules of
            `perseus.orders.dependencies`. Of two edges between the same operations the larger latency
            holds.
        fixed_times:
            ``(time_s, energy_j)`` of operations without a choice, by kind or, taking precedence, by
            operation (a tuple or an `Operation`).
        latency_s:
            Seconds for each of these edges that joins two ranks and gives none itself, or a sequence with
            one value for each of `edges`.

        Raises
        ------
        DagError
            If an operation cannot be read or occurs twice, a rank is empty, an edge or fixed time names none
            of the operations, a number is out of range, or the orders deadlock (the message names the
            operations).

        Examples
        --------
        >>> dag = PipelineDag.from_orders(["F0 F1 B0 B1 optimizer", "F0 B0 F1 B1 optimizer"],
        ...                               fixed_times={"optimizer": (0.02, 3.0)})
        >>> dag.num_operations, len(dag.edges)
        (10, 12)
        """
        return cls(content_from_orders(orders, edges, fixed_times, latency_s))

    @classmethod
    def from_networkx(cls, graph: nx.DiGraph[Any]) -> PipelineDag:
        """Return the pipeline of a graph of operations, whose edges are all there is to wait for.

        Nodes have the attributes ``stage`` and ``kind``, and may have ``microbatch``, ``rank`` (else the
        stage) and ``fixed_time_s`` with ``fixed_energy_j``; edges may have ``latency_s``. Other attributes
        are ignored. Operations are numbered as `graph.nodes`, and `labels` holds the nodes. Ranks are
        renumbered from 0 without gaps, in ascending order. No program order is added: operations of one
        rank that no path joins may overlap in time.

        Raises
        ------
        DagError
            If an attribute is missing or out of range, two nodes are the same operation, the graph is empty
            or undirected, or it has a cycle (the message names its nodes).
        """
        return cls(content_from_networkx(graph))

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> PipelineDag:
        """Return the pipeline that `to_dict` wrote.

        Raises
        ------
        DagError
            If the data has another format or version, or does not describe a valid pipeline.
        """
        return cls(document.read_content(data))

    def to_dict(self) -> dict[str, object]:
        """Return the pipeline as JSON values: its schedule and sizes if it has one, otherwise all arrays.

        Labels made of text, numbers, None and tuples of them are kept; with any other, all are left out.
        """
        return document.write_content(self._content)

    def to_networkx(self) -> nx.DiGraph[Any]:
        """Return a graph that `from_networkx` reads back; nodes are the labels, or 0, 1, ....

        Raises
        ------
        MissingExtraError
            If networkx is not installed.
        """
        return networkx_graph(self._content)

    # -- what it holds -------------------------------------------------------------------------------------

    @property
    def num_operations(self) -> int:
        """Number of operations."""
        return self._content.num_operations

    @property
    def num_ranks(self) -> int:
        """Number of ranks: the GPUs of the pipeline."""
        return self._content.num_ranks

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the kinds of operation, indexed by `kind_code`."""
        return self._content.kinds

    @property
    def stage(self) -> NDArray[np.int32]:
        """Stage of each operation; int32, (num_operations,)."""
        return _read_only(self._content.table.stage)

    @property
    def microbatch(self) -> NDArray[np.int32]:
        """Microbatch of each operation, -1 where it belongs to none; int32, (num_operations,)."""
        return _read_only(self._content.table.microbatch)

    @property
    def rank(self) -> NDArray[np.int32]:
        """Rank that runs each operation; int32, (num_operations,)."""
        return _read_only(self._content.table.rank)

    @property
    def kind_code(self) -> NDArray[np.int32]:
        """Index of each operation's kind in `kinds`; int32, (num_operations,)."""
        return _read_only(self._content.table.kind_code)

    @property
    def fixed_time_s(self) -> NDArray[np.float64]:
        """Seconds of each operation without a choice, NaN where it has a profile; (num_operations,)."""
        return _read_only(self._content.fixed.time_s)

    @property
    def fixed_energy_j(self) -> NDArray[np.float64]:
        """Joules of each operation without a choice, NaN where it has a profile; (num_operations,)."""
        return _read_only(self._content.fixed.energy_j)

    @property
    def edges(self) -> NDArray[np.int32]:
        """Predecessor and successor of each edge; int32, (num_edges, 2)."""
        return _read_only(self._content.edges.pairs)

    @property
    def latency_s(self) -> NDArray[np.float64]:
        """Seconds from the predecessor's end to the successor's start; (num_edges,), at least 0."""
        return _read_only(self._content.edges.latency_s)

    @property
    def labels(self) -> tuple[Hashable, ...] | None:
        """The nodes of the graph that the pipeline was read from, in the order of the operations, or None."""
        return self._content.labels

    @property
    def operations(self) -> Sequence[Operation]:
        """The operations in order, as a light view that makes each `Operation` when it is looked at."""
        return OperationsView(self._content.table, range(self.num_operations))

    @property
    def schedule(self) -> str | None:
        """Name of the schedule, None for a pipeline made otherwise."""
        content = self._content
        return content.schedule.name if isinstance(content, ScheduleContent) else None

    @property
    def num_stages(self) -> int | None:
        """Stages of the schedule, None for a pipeline made otherwise."""
        content = self._content
        return content.sizes.num_stages if isinstance(content, ScheduleContent) else None

    @property
    def num_microbatches(self) -> int | None:
        """Microbatches of the schedule, None for a pipeline made otherwise."""
        content = self._content
        return content.sizes.num_microbatches if isinstance(content, ScheduleContent) else None

    @property
    def num_chunks(self) -> int | None:
        """Stages on each rank of the schedule, None for a pipeline made otherwise."""
        content = self._content
        return content.sizes.num_chunks if isinstance(content, ScheduleContent) else None

    @cached_property
    def _stages_of_ranks(self) -> tuple[tuple[int, ...], ...]:
        pairs = np.column_stack((self.rank, self.stage))
        # Neighbours are mostly of one stage: few pairs are left to sort.
        changes = np.concatenate(([True], (pairs[1:] != pairs[:-1]).any(axis=1)))
        stages: list[list[int]] = [[] for _ in range(self.num_ranks)]
        for rank, stage in np.unique(pairs[changes], axis=0).tolist():
            stages[rank].append(stage)
        return tuple(map(tuple, stages))

    def stages_of_rank(self, rank: int) -> tuple[int, ...]:
        """Return the stages that a rank holds, ascending; one stage for schedules without virtual chunks."""
        if not 0 <= operator.index(rank) < self.num_ranks:
            raise DagError(f"rank is {rank}; this pipeline has the ranks 0 to {self.num_ranks - 1}")
        return self._stages_of_ranks[rank]

    # -- time ----------------------------------------------------------------------------------------------

    @cached_property
    def _topological_order(self) -> NDArray[np.int32]:
        return precedence.topological_order(self.num_operations, self.edges)

    @cached_property
    def _swept_edges(self) -> Edges:
        return self._content.edges.take(precedence.sweep_order(self.edges, self._topological_order))

    def topological_order(self) -> NDArray[np.int32]:
        """Return the operations so that each comes after all its predecessors; int32, (num_operations,)."""
        return _read_only(self._topological_order)

    def earliest_starts(self, durations_s: ArrayLike) -> NDArray[np.float64]:
        """Return when each operation can start at the earliest, the iteration starting at 0.

        Parameters
        ----------
        durations_s:
            Shape (num_operations,), finite, at least 0.

        Returns
        -------
        NDArray
            float64, shape (num_operations,), in seconds: the longest path to each operation, with latencies.

        Raises
        ------
        DagError
            If the durations have another shape or are not finite numbers of at least 0.
        """
        return precedence.earliest_starts(self._checked_durations(durations_s), *self._swept_edges)

    def makespan_s(self, durations_s: ArrayLike) -> float:
        """Return the end of the last operation when each starts as early as it can, in seconds."""
        durations = self._checked_durations(durations_s)
        return float(np.max(precedence.earliest_starts(durations, *self._swept_edges) + durations))

    def _checked_durations(self, durations_s: ArrayLike) -> NDArray[np.float64]:
        try:
            given = np.asarray(durations_s)
            durations = given.astype(np.float64, casting="same_kind")
        except (TypeError, ValueError):
            raise DagError("durations_s are not real numbers; give one number of seconds per operation") from None
        if durations.shape != (self.num_operations,):
            raise DagError(
                f"durations_s has shape {durations.shape}; it must be ({self.num_operations},), "
                "one duration for each operation"
            )
        wrong = np.flatnonzero(~(np.isfinite(durations) & (durations >= 0)))
        if wrong.size:
            raise DagError(
                f"durations_s[{wrong[0]}] is {durations[wrong[0]]}; "
                "a duration is a finite number of seconds, at least 0"
            )
        return durations

    # -- value ---------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PipelineDag):
            return NotImplemented
        return self._content is other._content or _equal(self._content, other._content)

    def __hash__(self) -> int:
        return hash((self.num_operations, self.num_ranks, self.kinds))

    def __reduce__(self) -> tuple[Callable[[Content], PipelineDag], tuple[Content]]:
        return type(self), (self._content,)

    def __repr__(self) -> str:
        if self.schedule is not None:
            chunks = "" if self.num_chunks == 1 else f", num_chunks={self.num_chunks}"
            sizes = f"num_stages={self.num_stages}, num_microbatches={self.num_microbatches}{chunks}"
            return f"<PipelineDag {self.schedule} {sizes}: {self.num_operations} operations>"
        return (
            f"<PipelineDag {self.num_operations} operations ({', '.join(self.kinds)}), "
            f"{self.num_ranks} ranks, {len(self.edges)} edges>"
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a PipelineDag is immutable; {name!r} cannot be set: make a new one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a PipelineDag is immutable; {name!r} cannot be deleted")


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


def _equal(one: Content, other: Content) -> bool:
    if (one.num_operations, one.num_ranks, one.kinds) != (other.num_operations, other.num_ranks, other.kinds):
        return False
    if isinstance(one, ScheduleContent) and one.is_same_as(other):
        return True
    columns = (
        (one.table.kind_code, other.table.kind_code),
        (one.table.stage, other.table.stage),
        (one.table.microbatch, other.table.microbatch),
        (one.table.rank, other.table.rank),
        (one.fixed.time_s, other.fixed.time_s),
        (one.fixed.energy_j, other.fixed.energy_j),
    )
    if not all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in columns):
        return False
    mine, theirs = (c.edges.take(np.lexsort(c.edges.pairs.T)) for c in (one, other))
    return np.array_equal(mine.pairs, theirs.pairs) and np.array_equal(mine.latency_s, theirs.latency_s)


class OperationsView(Sequence[Operation]):
    """A sequence of operations over the arrays of a pipeline; slices are views too.

    Equal to any sequence of equal operations.
    """

    __slots__ = ("_rows", "_table")

    def __init__(self, table: OperationTable, rows: range) -> None:
        self._table = table
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Operation: ...
    @overload
    def __getitem__(self, index: slice) -> OperationsView: ...
    def __getitem__(self, index: int | slice) -> Operation | OperationsView:
        if isinstance(index, slice):
            return OperationsView(self._table, self._rows[index])
        row, table = self._rows[index], self._table
        return Operation(
            stage=int(table.stage[row]),
            microbatch=int(table.microbatch[row]),
            kind=table.kinds[table.kind_code[row]],
            rank=int(table.rank[row]),
        )

    def __iter__(self) -> Iterator[Operation]:
        table, rows = self._table, np.asarray(self._rows, dtype=np.intp)
        columns = (table.stage, table.microbatch, table.kind_code, table.rank)
        for stage, microbatch, code, rank in zip(*(c[rows].tolist() for c in columns), strict=True):
            yield Operation(stage, microbatch, table.kinds[code], rank)

    def _places(self, value: object) -> NDArray[np.intp]:
        """Return the places in this view that hold an operation equal to `value`."""
        if not isinstance(value, tuple) or len(value) != 4 or value[2] not in self._table.kinds:
            return np.empty(0, dtype=np.intp)
        stage, microbatch, kind, rank = value
        table, rows = self._table, np.asarray(self._rows, dtype=np.intp)
        found = table.kind_code[rows] == table.kinds.index(kind)
        for column, wanted in ((table.stage, stage), (table.microbatch, microbatch), (table.rank, rank)):
            found &= column[rows] == wanted
        return np.flatnonzero(found)

    def __contains__(self, value: object) -> bool:
        return self._places(value).size > 0

    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """Return the first place of an operation, from `start` until before `stop`."""
        first, end, _ = slice(start, stop).indices(len(self))
        places = self._places(value)
        inside = places[(places >= first) & (places < end)]
        if not inside.size:
            raise ValueError(f"{value!r} is not among these operations")
        return int(inside[0])

    def count(self, value: object) -> int:
        """Return how many operations equal `value`."""
        return int(self._places(value).size)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) or not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        return f"<{len(self)} operations: {shown}{', ...' if len(self) > 3 else ''}>"
