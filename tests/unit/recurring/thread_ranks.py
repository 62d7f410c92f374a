"""Several ranks in one process, each a thread, with collective calls like those of torch.distributed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class ThreadGroup:
    def __init__(self, size: int) -> None:
        self.size = size
        self.values: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=10.0)

    def run(self, work: Callable[[ThreadRank], Any]) -> list[Any]:
        """Run ``work`` on every rank and return what each returned."""
        results: list[Any] = [None] * self.size
        errors: list[BaseException] = []

        def one(rank: int) -> None:
            try:
                results[rank] = work(ThreadRank(self, rank))
            except BaseException as error:
                errors.append(error)
                self.barrier.abort()

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results


class ThreadRank:
    def __init__(self, group: ThreadGroup, rank: int) -> None:
        self.group = group
        self.rank = rank
        self.size = group.size

    def gather(self, value: Any) -> list[Any]:
        self.group.values[self.rank] = value
        self.group.barrier.wait()
        values = list(self.group.values)
        self.group.barrier.wait()
        return values

    def from_first(self, make: Callable[[], Any]) -> Any:
        return self.gather(make() if self.rank == 0 else None)[0]
