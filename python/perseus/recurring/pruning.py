"""Exploration of the batch sizes with pruning, before the bandit takes over.

From the start go down, one batch size after the other, until the first failure; then up from the start
until the first failure.  A failure is a run that did not reach its target within the cost cap and the
epoch limit.  The batch sizes that reached it are kept.  Two such rounds are made; the second starts at
the cheapest that the first one kept.  (Zeus, section 4.4; it relies on the cost being roughly convex in
the batch size, so that what lies beyond a failure needs no look.)

The state is an immutable value; `advance` folds one result into it.
"""

from __future__ import annotations

from typing import NamedTuple

ROUNDS = 2


class Pruning(NamedTuple):
    """Where exploration stands.

    Attributes
    ----------
    candidates:
        Batch sizes of this round, ascending; once finished, those that survived (may be none).
    start:
        The batch size at which this round began.
    pending:
        The batch size to try next; None once finished.
    going_down:
        Whether the round still goes down.
    round_number:
        Counts from 0; equals ``ROUNDS`` once finished.
    kept:
        (cost in J, batch size) of those that reached the target in this round.
    """

    candidates: tuple[int, ...]
    start: int
    pending: int | None
    going_down: bool = True
    round_number: int = 0
    kept: tuple[tuple[float, int], ...] = ()


def begin(candidates: tuple[int, ...], start: int) -> Pruning:
    """Return the state before the first trial; ``candidates`` ascending and containing ``start``."""
    return Pruning(candidates=candidates, start=start, pending=start)


def advance(state: Pruning, *, reached: bool, cost_j: float) -> Pruning:
    """Fold in the result of the pending batch size and return the next state."""
    if state.pending is None:
        return state
    if reached:
        state = state._replace(kept=(*state.kept, (cost_j, state.pending)))
    following = _following(state, reached)
    if following is not None:
        return following
    return _end_round(state)


def _following(state: Pruning, reached: bool) -> Pruning | None:
    """Return the state with the next batch size of this round, or None if the round is over."""
    candidates = state.candidates
    assert state.pending is not None
    index = candidates.index(state.pending)
    if state.going_down:
        if reached and index > 0:
            return state._replace(pending=candidates[index - 1])
        index = candidates.index(state.start)
    elif not reached:
        return None
    if index + 1 == len(candidates):
        return None
    return state._replace(pending=candidates[index + 1], going_down=False)


def _end_round(state: Pruning) -> Pruning:
    survivors = tuple(sorted(batch_size for _, batch_size in state.kept))
    round_number = state.round_number + 1
    if not survivors or round_number == ROUNDS:
        return Pruning(survivors, state.start, None, round_number=ROUNDS)
    cheapest = min(state.kept)[1]
    return Pruning(survivors, cheapest, cheapest, round_number=round_number)
