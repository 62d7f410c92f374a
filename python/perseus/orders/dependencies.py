"""Which operations must wait for which: data dependencies and program order, as edge arrays.

With F forward, B full backward, I input gradient, W weight gradient, R recompute of stage s and microbatch m:

====================  =========================================
F(s, m)               after F(s-1, m)
R(s, m)               after F(s, m)
B(s, m) or I(s, m)    after R(s, m), or F(s, m) where there is no R
B(s, m) or I(s, m)    after B(s+1, m) or I(s+1, m)
W(s, m)               after I(s, m)
====================  =========================================

A dependency whose predecessor is not among the operations does not exist: the first stage's F waits for none.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus.orders.kinds import BACKWARD, FORWARD, INPUT_GRAD, KINDS, RECOMPUTE, WEIGHT_GRAD
from perseus.orders.table import OperationLookup, OperationTable


class _Rule(NamedTuple):
    """Kind `successor` waits for the first kind of `predecessors` there is, `stage_step` stages on."""

    successor: int
    predecessors: tuple[int, ...]
    stage_step: int


_RULES: Final = (
    _Rule(FORWARD, (FORWARD,), -1),
    _Rule(RECOMPUTE, (FORWARD,), 0),
    _Rule(BACKWARD, (RECOMPUTE, FORWARD), 0),
    _Rule(INPUT_GRAD, (RECOMPUTE, FORWARD), 0),
    _Rule(BACKWARD, (BACKWARD, INPUT_GRAD), 1),
    _Rule(INPUT_GRAD, (INPUT_GRAD, BACKWARD), 1),
    _Rule(WEIGHT_GRAD, (INPUT_GRAD,), 0),
)


def data_edges(table: OperationTable) -> NDArray[np.int32]:
    """Return the data dependencies of the operations by the rules of this module.

    Returns
    -------
    NDArray
        int32, shape (num_edges, 2): rows of the predecessor and of the successor in `table`.
    """
    lookup = OperationLookup(table)
    return np.concatenate([_edges_of_rule(rule, table, lookup) for rule in _RULES])


def _edges_of_rule(rule: _Rule, table: OperationTable, lookup: OperationLookup) -> NDArray[np.int32]:
    kind = KINDS[rule.successor]
    if kind not in table.kinds:
        return np.empty((0, 2), dtype=np.int32)
    is_successor = (table.kind_code == table.kinds.index(kind)) & (table.microbatch >= 0)
    successors = np.flatnonzero(is_successor).astype(np.int32)
    stage, microbatch = table.stage[successors] + np.int32(rule.stage_step), table.microbatch[successors]
    predecessors = np.full(successors.size, -1, dtype=np.int32)
    for code in rule.predecessors:
        missing = predecessors < 0
        predecessors[missing] = lookup.rows(code, stage[missing], microbatch[missing])
    found = predecessors >= 0
    return np.column_stack((predecessors[found], successors[found]))


def program_edges(rank: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the edges of the program order: each operation after the one before it on its rank.

    Parameters
    ----------
    rank:
        Shape (num_operations,), the operations' ranks, rank by rank in program order.
    """
    before = np.flatnonzero(rank[1:] == rank[:-1]).astype(np.int32)
    return np.column_stack((before, before + np.int32(1)))


def implied_by_program_order(edges: NDArray[np.int32], rank: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Mark the edges between two operations of one rank that the program order holds already."""
    predecessor, successor = edges[:, 0], edges[:, 1]
    same_rank: NDArray[np.bool_] = rank[predecessor] == rank[successor]
    return same_rank & (predecessor < successor)
