"""How users write operations and orders, and their reading into arrays.

An operation is written as any of

- an `Operation`;
- a tuple ``(kind, stage, microbatch)`` or, for an operation of no single microbatch, ``(kind, stage)`` or
  ``(kind, stage, None)``;
- text: ``"F3"`` is microbatch 3 on the stage of the rank (stage r on rank r), ``"2F3"`` names stage 2 as
  torch's schedules do, and ``"optimizer"`` is an operation of that kind without a microbatch.

Kinds are names (``"forward"``) or the letters F, B, I, W, R.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

import numpy as np

from perseus.errors import DagError
from perseus.orders.kinds import LETTERS, kind_name, ordered_kinds
from perseus.orders.table import MAX_MICROBATCH, MAX_STAGE, NO_MICROBATCH, OperationTable

_WITH_MICROBATCH: Final = re.compile(r"([0-9]*)([FBIWR])([0-9]+)")
_WITHOUT_MICROBATCH: Final = re.compile(r"[a-z][a-z_]*")
_FORMS: Final = (
    "write an operation as (kind, stage, microbatch), as an Operation, or as text such as 'F3', '2F3' or 'optimizer'"
)


class Operation(NamedTuple):
    """One operation of the pipeline, as `PipelineDag.operations` shows it.

    Attributes
    ----------
    stage:
        The pipeline stage.
    microbatch:
        The microbatch, -1 for an operation that belongs to none.
    kind:
        "forward", "backward", ...
    rank:
        The GPU of the pipeline that runs it.
    """

    stage: int
    microbatch: int
    kind: str
    rank: int


class OperationName(NamedTuple):
    """What names an operation: at most one in a pipeline, unless it has no microbatch."""

    kind: str
    stage: int
    microbatch: int

    def __str__(self) -> str:
        microbatch = "" if self.microbatch == NO_MICROBATCH else f", microbatch {self.microbatch}"
        return f"{self.kind}(stage {self.stage}{microbatch})"


def checked_index(what: str, value: object, largest: int) -> int:
    """Return `value` as an int from 0 to `largest`; `what` names it in the `DagError`."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise DagError(
            f"{what} is {value!r}, of type {type(value).__name__}; it must be an integer from 0 to {largest}"
        ) from None
    if not 0 <= number <= largest:
        raise DagError(f"{what} is {number}; it must be an integer from 0 to {largest}")
    return number


def checked_name(kind: object, stage: object, microbatch: object, where: str) -> OperationName:
    """Return a checked name; a microbatch of None or -1 means that there is none.

    Raises
    ------
    DagError
        If the kind is no text, or a number is no integer in its range.
    """
    if not isinstance(kind, str) or not kind or (len(kind) == 1 and kind not in LETTERS):
        raise DagError(f"the kind of {where} is {kind!r}; it must be a name such as 'forward', or F, B, I, W, R")
    no_microbatch = microbatch is None or (isinstance(microbatch, (int, np.integer)) and microbatch == NO_MICROBATCH)
    return OperationName(
        kind_name(kind),
        checked_index(f"the stage of {where}", stage, MAX_STAGE),
        NO_MICROBATCH if no_microbatch else checked_index(f"the microbatch of {where}", microbatch, MAX_MICROBATCH),
    )


def parse_operation(item: object, where: str, default_stage: int | None = None) -> OperationName:
    """Read an operation in any of the forms of this module.

    Parameters
    ----------
    item:
        The operation as the user wrote it.
    where:
        Where it stands, for the error.
    default_stage:
        The stage of text that names none; None where there is no such stage.

    Raises
    ------
    DagError
        If it is in none of the forms, or its numbers are out of range.
    """
    if isinstance(item, Operation):
        return checked_name(item.kind, item.stage, item.microbatch, where)
    if isinstance(item, str):
        return _parse_text(item, where, default_stage)
    if isinstance(item, (tuple, list)) and len(item) in (2, 3):
        return checked_name(item[0], item[1], item[2] if len(item) == 3 else None, where)
    raise DagError(f"{where} is {item!r}; {_FORMS}")


def _parse_text(text: str, where: str, default_stage: int | None) -> OperationName:
    match = _WITH_MICROBATCH.fullmatch(text)
    if match is None and _WITHOUT_MICROBATCH.fullmatch(text) is None:
        raise DagError(f"{where} is {text!r}; {_FORMS}")
    stage_text, kind, microbatch = match.groups() if match else ("", text, None)
    if not stage_text and default_stage is None:
        raise DagError(f"{where} is {text!r}, which names no stage; write '0F3' or (kind, stage, microbatch)")
    stage = _number(stage_text) if stage_text else default_stage
    return checked_name(kind, stage, None if microbatch is None else _number(microbatch), where)


def _number(digits: str) -> int:
    """Return the number; digits beyond any range are cut, within Python's limit and still out of range."""
    return int(digits[:20])


def parse_orders(orders: Iterable[object]) -> list[list[OperationName]]:
    """Read the order of every rank.

    Parameters
    ----------
    orders:
        For each rank a sequence of operations, or one text with operations separated by blanks.

    Raises
    ------
    DagError
        If there is no rank, a rank has no operation, an operation cannot be read, or it stands on another
        rank than its own `Operation.rank` says.
    """
    if isinstance(orders, (str, bytes, Set, Mapping)) or not isinstance(orders, Iterable):
        raise DagError(f"orders is {orders!r}; it must hold one order for each rank, e.g. ['F0 B0', 'F0 B0']")
    parsed = [list(_parse_rank(order, rank)) for rank, order in enumerate(orders)]
    if not parsed:
        raise DagError("orders is empty; a pipeline has at least one rank, with at least one operation")
    for rank, names in enumerate(parsed):
        if not names:
            raise DagError(f"orders[{rank}] is empty; every rank has at least one operation: leave out idle ranks")
    return parsed


def _parse_rank(order: object, rank: int) -> Iterator[OperationName]:
    items = order.split() if isinstance(order, str) else order
    if not isinstance(items, Iterable) or isinstance(items, (Operation, bytes, Set, Mapping)):
        raise DagError(f"orders[{rank}] is {order!r}; it must be the sequence of the operations of rank {rank}")
    for position, item in enumerate(items):
        where = f"orders[{rank}][{position}]"
        if isinstance(item, Operation) and item.rank != rank:
            raise DagError(f"{where} is {item!r}, whose rank is {item.rank}; put it into orders[{item.rank}]")
        yield parse_operation(item, where, default_stage=rank)


def table_of_names(names: Sequence[OperationName], ranks: Sequence[int]) -> OperationTable:
    """Return the operations as arrays, in the order given."""
    kinds = ordered_kinds({name.kind for name in names})
    code = {kind: index for index, kind in enumerate(kinds)}
    return OperationTable(
        kinds=kinds,
        kind_code=np.array([code[name.kind] for name in names], dtype=np.int32),
        stage=np.array([name.stage for name in names], dtype=np.int32),
        microbatch=np.array([name.microbatch for name in names], dtype=np.int32),
        rank=np.array(ranks, dtype=np.int32),
    )


class NameIndex:
    """The rows of operations by name; refuses two operations of one name that belong to a microbatch."""

    def __init__(self, names: Sequence[OperationName], place_of: Callable[[int], str]) -> None:
        self._rows: dict[OperationName, list[int]] = {}
        for row, name in enumerate(names):
            rows = self._rows.setdefault(name, [])
            rows.append(row)
            if len(rows) > 1 and name.microbatch != NO_MICROBATCH:
                raise DagError(
                    f"{name} occurs twice, at {place_of(rows[0])} and at {place_of(row)}; "
                    "each operation occurs once: remove one, or give it its own microbatch or kind"
                )

    def rows(self, name: OperationName) -> list[int]:
        """Return all rows of that name, none where it does not occur."""
        return self._rows.get(name, [])

    def row(self, name: OperationName, where: str) -> int:
        """Return the one row of that name, for the reference at `where`."""
        rows = self.rows(name)
        if len(rows) == 1:
            return rows[0]
        if not rows:
            raise DagError(f"{where} is {name}, which is not among the operations; add it to an order")
        raise DagError(f"{where} is {name}, which occurs {len(rows)} times; name it by its index, one of {rows}")
