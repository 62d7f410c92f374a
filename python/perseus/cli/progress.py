"""A bar for solves that take long enough to be noticed."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from perseus.solve import SolveProgress

_NOTICED_AFTER_S: Final = 0.5


class SolveBar:
    """A progress bar on stderr: appears once a solve has run for half a second, and disappears with its end.

    Call it with each `SolveProgress`; use it as a context, so that the terminal is left as it was.
    """

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> SolveBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, state: SolveProgress) -> None:
        """Show how far the solve has come."""
        if time.monotonic() - self._started_s < _NOTICED_AFTER_S:
            return
        if self._bar is None or self._task is None:
            self._bar, self._task = self._start()
        self._bar.update(self._task, completed=state.fraction, phases=state.phases)

    @staticmethod
    def _start() -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        bar = Progress(
            TextColumn("solving"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[phases]} breakpoints"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        bar.start()
        return bar, bar.add_task("solving", total=1.0, phases=0)
