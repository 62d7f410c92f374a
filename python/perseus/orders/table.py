"""The operations of a pipeline as parallel arrays, and the look-up of an operation by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus.orders.kinds import KINDS

# The microbatch of an operation that belongs to none, such as an optimizer step.
NO_MICROBATCH: Final = -1
# Bounds of the operations' names: the look-up packs (kind, stage, microbatch) into one int64.
MAX_STAGE: Final = 2**20 - 1
MAX_MICROBATCH: Final = 2**31 - 1

_DENSE_CELLS_PER_OPERATION: Final = 8


class RankOrder(NamedTuple):
    """The operations of one rank in program order.

    Attributes
    ----------
    kind_code, stage, microbatch:
        int32 arrays of one length; `kind_code` indexes `perseus.orders.KINDS`.
    """

    kind_code: NDArray[np.int32]
    stage: NDArray[np.int32]
    microbatch: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, eq=False)
class OperationTable:
    """The operations of all ranks.

    Attributes
    ----------
    kinds:
        Names of the kinds present.
    kind_code, stage, microbatch, rank:
        int32 arrays of shape (num_operations,); `kind_code` indexes `kinds`, `microbatch` is
        `NO_MICROBATCH` for an operation that belongs to none.
    """

    kinds: tuple[str, ...]
    kind_code: NDArray[np.int32]
    stage: NDArray[np.int32]
    microbatch: NDArray[np.int32]
    rank: NDArray[np.int32]

    @classmethod
    def from_rank_orders(cls, orders: Sequence[RankOrder], kinds: tuple[str, ...]) -> OperationTable:
        """Concatenate the orders rank by rank; `kinds` are those that may occur in them."""
        code_here = np.full(len(KINDS), -1, dtype=np.int32)
        code_here[[KINDS.index(kind) for kind in kinds]] = np.arange(len(kinds))
        lengths = [order.stage.size for order in orders]
        return cls(
            kinds=kinds,
            kind_code=code_here[np.concatenate([order.kind_code for order in orders])],
            stage=np.concatenate([order.stage for order in orders]),
            microbatch=np.concatenate([order.microbatch for order in orders]),
            rank=np.repeat(np.arange(len(orders), dtype=np.int32), lengths),
        )

    def __len__(self) -> int:
        return int(self.stage.size)


class OperationLookup:
    """Finds operations by (kind, stage, microbatch) in O(1) or O(log N) each, many at a time.

    Only the kinds of `KINDS` are found, and only operations with a microbatch. A dense grid of rows
    serves the usual pipeline; sorted keys serve tables with sparse numbers, whose grid would be far
    larger than the table.
    """

    def __init__(self, table: OperationTable) -> None:
        known_code = np.array([KINDS.index(k) if k in KINDS else -1 for k in table.kinds], dtype=np.int32)
        code = known_code[table.kind_code]
        rows = np.flatnonzero((table.microbatch >= 0) & (code >= 0)).astype(np.int32)
        # One stage more on either side, so that the neighbour of the first and last one is empty.
        self._num_stages = int(table.stage.max(initial=0)) + 3
        self._num_microbatches = int(table.microbatch.max(initial=0)) + 1
        keys = self._keys(code[rows], table.stage[rows], table.microbatch[rows])
        num_cells = len(KINDS) * self._num_stages * self._num_microbatches
        self._grid: NDArray[np.int32] | None = None
        if num_cells <= _DENSE_CELLS_PER_OPERATION * len(table) + 1024:
            self._grid = np.full(num_cells, -1, dtype=np.int32)
            self._grid[keys] = rows
            return
        by_key = np.argsort(keys, kind="stable")
        self._sorted_keys, self._sorted_rows = keys[by_key], rows[by_key]

    def _keys(
        self, kind_code: NDArray[np.int32] | int, stage: NDArray[np.int32], microbatch: NDArray[np.int32]
    ) -> NDArray[np.int64]:
        row = np.asarray(kind_code, dtype=np.int64) * self._num_stages + (stage + 1)
        return row * self._num_microbatches + microbatch

    def rows(self, kind_code: int, stage: NDArray[np.int32], microbatch: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the row of each named operation, -1 where the table has none.

        Parameters
        ----------
        kind_code:
            Index into `KINDS`.
        stage, microbatch:
            Equal shapes. Stages may lie one outside the stages of the table, microbatches may not.
        """
        keys = self._keys(kind_code, stage, microbatch)
        if self._grid is not None:
            return self._grid[keys]
        if not self._sorted_keys.size:
            return np.full(keys.shape, -1, dtype=np.int32)
        place = np.minimum(np.searchsorted(self._sorted_keys, keys), self._sorted_keys.size - 1)
        return np.where(self._sorted_keys[place] == keys, self._sorted_rows[place], np.int32(-1))
