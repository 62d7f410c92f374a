"""The processes of one job: one of its own, or the ranks of torch.distributed.

Every decision of a run is a function of what `Ranks.gather` returned, which is the same everywhere, so
all ranks decide alike.  Only rank 0 talks to the trial log.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from perseus.recurring.gpus import _is_distributed

T = TypeVar("T")


class Ranks(Protocol):
    """Communication among the processes of a job."""

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""

    @property
    def size(self) -> int:
        """Number of processes."""

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, by rank, on every rank."""

    def from_first(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns on rank 0, which alone calls it, on every rank."""


class SingleRank:
    """A job of one process."""

    rank = 0
    size = 1

    def gather(self, value: T) -> list[T]:
        """Return the one value."""
        return [value]

    def from_first(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns."""
        return make()


class TorchRanks:
    """The default process group of torch.distributed."""

    def __init__(self, distributed: Any) -> None:
        self._distributed = distributed
        self.rank: int = distributed.get_rank()
        self.size: int = distributed.get_world_size()

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks; a collective call."""
        values: list[Any] = [None] * self.size
        self._distributed.all_gather_object(values, value)
        return values

    def from_first(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns on rank 0; a collective call."""
        values: list[Any] = [make() if self.rank == 0 else None]
        self._distributed.broadcast_object_list(values, src=0)
        result: T = values[0]
        return result


def current_ranks() -> Ranks:
    """Return the ranks of torch.distributed if it has been initialised, else this process alone."""
    torch = sys.modules.get("torch")
    if torch is not None and _is_distributed(torch):
        return TorchRanks(torch.distributed)
    return SingleRank()


def sum_distinct(parts: Iterable[Mapping[str, float]]) -> float:
    """Return the sum over GPUs, by UUID, so that one that several ranks share counts once."""
    merged: dict[str, float] = {}
    for part in parts:
        merged.update(part)
    return sum(merged.values())
