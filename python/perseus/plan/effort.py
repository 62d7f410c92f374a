"""How long a plan may be searched for, in units of work: equal inputs give equal plans."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from perseus import _native

Effort = Literal["fast", "best"]
EFFORTS = ("fast", "best")


class RoundingEffort(NamedTuple):
    """Budgets of one rounding, see ``cpp/include/perseus/plan_rounding.hpp``."""

    carry: bool
    reclaim_effort: int
    exchange_effort: int
    chain_effort: int


QUICK = RoundingEffort(carry=False, reclaim_effort=1, exchange_effort=0, chain_effort=0)
PLAIN = RoundingEffort(carry=True, reclaim_effort=16, exchange_effort=0, chain_effort=0)
THOROUGH = RoundingEffort(carry=True, reclaim_effort=64, exchange_effort=64, chain_effort=0)
EXHAUSTIVE = RoundingEffort(carry=True, reclaim_effort=64, exchange_effort=256, chain_effort=20_000)


@cache
def rounding_options(effort: RoundingEffort) -> _native.RoundingOptions:
    """Return the budgets in their native form."""
    from perseus import _native  # only here: a plan file is read and shown without the native module

    return _native.RoundingOptions(**effort._asdict())


@cache
def spliced_parts() -> tuple[_native.SplicedPart, ...]:
    """Return the parts of an iteration that a splice can take from another plan."""
    from perseus import _native

    return (_native.SplicedPart.end, _native.SplicedPart.beginning)
