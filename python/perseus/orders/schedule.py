"""What a pipeline schedule is: a pure function from sizes to every rank's order, with rules for the sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perseus.errors import ScheduleError
from perseus.orders.dependencies import data_edges
from perseus.orders.kinds import BACKWARD, FORWARD
from perseus.orders.table import MAX_MICROBATCH, MAX_STAGE, OperationTable, RankOrder

# Operations are numbered with int32, everywhere.
MAX_OPERATIONS: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class ScheduleSizes:
    """The sizes that a schedule is made for, each at least 1.

    Attributes
    ----------
    num_stages:
        Stages of the pipeline.
    num_microbatches:
        Microbatches of one iteration.
    num_chunks:
        Stages that one rank holds (virtual pipeline chunks); 1 for schedules with one stage per rank.
    """

    num_stages: int
    num_microbatches: int
    num_chunks: int = 1


def _only_one_chunk(sizes: ScheduleSizes) -> None:
    """Refuse virtual chunks: the rule of schedules that give each rank one stage."""
    if sizes.num_chunks != 1:
        raise ScheduleError(
            f"num_chunks is {sizes.num_chunks}, but this schedule gives each rank exactly one stage; "
            "leave num_chunks out"
        )


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One pipeline schedule. All its members are pure functions of the sizes.

    Attributes
    ----------
    name:
        The name in `SCHEDULES`.
    source:
        The paper or the program that defines the order.
    kinds:
        The kinds of operation that occur.
    rank_orders:
        Returns the order of each rank.
    num_operations, num_ranks:
        Closed forms of what `rank_orders` returns, so that a pipeline's size costs nothing.
    check:
        Raises `ScheduleError` for sizes that the schedule does not fit, with the rule of its source.
    default_chunks:
        `num_chunks` when the caller gives none.
    data_edges:
        The data dependencies of the operations, shape (num_edges, 2).
    """

    name: str
    source: str
    kinds: tuple[str, ...]
    rank_orders: Callable[[ScheduleSizes], Sequence[RankOrder]]
    num_operations: Callable[[ScheduleSizes], int]
    num_ranks: Callable[[ScheduleSizes], int] = lambda sizes: sizes.num_stages
    check: Callable[[ScheduleSizes], None] = _only_one_chunk
    default_chunks: int = 1
    data_edges: Callable[[OperationTable], NDArray[np.int32]] = data_edges

    def sizes(self, num_stages: int, num_microbatches: int, num_chunks: int | None = None) -> ScheduleSizes:
        """Return checked sizes.

        Raises
        ------
        ScheduleError
            If a size is no integer of at least 1, too large, or against the schedule's own rules.
        """
        sizes = ScheduleSizes(
            num_stages=_checked_size("num_stages", num_stages, MAX_STAGE + 1),
            num_microbatches=_checked_size("num_microbatches", num_microbatches, MAX_MICROBATCH),
            num_chunks=_checked_size(
                "num_chunks", self.default_chunks if num_chunks is None else num_chunks, MAX_STAGE + 1
            ),
        )
        self.check(sizes)
        if self.num_operations(sizes) > MAX_OPERATIONS:
            raise ScheduleError(
                f"{self.num_operations(sizes)} operations are too many: at most {MAX_OPERATIONS} can be "
                "numbered; lower num_stages or num_microbatches"
            )
        return sizes

    def table(self, sizes: ScheduleSizes) -> OperationTable:
        """Return the operations of all ranks, rank by rank in program order."""
        return OperationTable.from_rank_orders(self.rank_orders(sizes), self.kinds)


def _checked_size(name: str, value: object, largest: int) -> int:
    rule = f"it must be an integer from 1 to {largest}"
    if isinstance(value, (bool, np.bool_)):
        raise ScheduleError(f"{name} is {value!r}, a bool; {rule}")
    try:
        size = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ScheduleError(f"{name} is {value!r}, of type {type(value).__name__}; {rule}") from None
    if not 1 <= size <= largest:
        raise ScheduleError(f"{name} is {size}; {rule}")
    return size


def ascending_order(is_forward: NDArray[np.bool_], stage: int) -> RankOrder:
    """Return a rank's order whose forwards, and whose backwards, run through the microbatches upward.

    Parameters
    ----------
    is_forward:
        Shape (2 * num_microbatches,), True where the order has a forward; as many as backwards.
    stage:
        The one stage of the rank.
    """
    microbatches = np.arange(is_forward.size // 2, dtype=np.int32)
    microbatch = np.empty(is_forward.size, dtype=np.int32)
    microbatch[is_forward] = microbatches
    microbatch[~is_forward] = microbatches
    return RankOrder(
        kind_code=np.where(is_forward, np.int32(FORWARD), np.int32(BACKWARD)),
        stage=np.full(is_forward.size, stage, dtype=np.int32),
        microbatch=microbatch,
    )
