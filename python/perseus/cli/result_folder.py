"""The folder that ``perseus solve -o DIR`` writes and ``perseus show DIR`` reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from perseus.errors import PlanError

if TYPE_CHECKING:
    from perseus.cli.summary import Summary
    from perseus.plan import FrequencyPlan

FRONTIER: Final = "frontier.csv"
PLAN: Final = "plan.json"
MAX_CLOCK_PLAN: Final = "max_clock_plan.json"
_COLUMNS: Final = "iteration_time_s,energy_j"


@dataclass(frozen=True)
class ResultFolder:
    """The results of one solve, each a file that is written whole or not at all.

    Attributes
    ----------
    path:
        The folder.
    """

    path: Path

    @classmethod
    def to_read(cls, path: Path) -> ResultFolder:
        """Return a folder with results in it.

        Raises
        ------
        PlanError
            If a file is missing.
        """
        missing = [name for name in (FRONTIER, PLAN, MAX_CLOCK_PLAN) if not (path / name).is_file()]
        if missing:
            raise PlanError(
                f"{path} has no {', '.join(missing)}; it must be a folder that `perseus solve ... -o {path}` wrote"
            )
        return cls(path)

    def write(self, summary: Summary) -> dict[str, str]:
        """Write the results over those that are there; return the paths by content."""
        self.path.mkdir(parents=True, exist_ok=True)
        files = {
            "frontier": self.path / FRONTIER,
            "plan": self.path / PLAN,
            "max_clock_plan": self.path / MAX_CLOCK_PLAN,
        }
        summary.frontier.to_csv(files["frontier"])
        summary.plan.save(files["plan"])
        summary.max_clock_plan.save(files["max_clock_plan"])
        return {content: str(path) for content, path in files.items()}

    def plan(self) -> FrequencyPlan:
        """Return the chosen plan."""
        return self._plan(PLAN)

    def max_clock_plan(self) -> FrequencyPlan:
        """Return the plan with every operation at its highest clock."""
        return self._plan(MAX_CLOCK_PLAN)

    def frontier(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the breakpoints' times (s) and energies (J), by time.

        Raises
        ------
        PlanError
            If the file is no frontier; the message names the line.
        """
        path = self.path / FRONTIER
        lines = path.read_text(encoding="utf-8").splitlines()
        if not lines or lines[0].strip() != _COLUMNS:
            found = lines[0] if lines else "an empty file"
            raise PlanError(f"{path}: line 1 is {found!r}; a frontier begins with {_COLUMNS!r}; solve again")
        rows = np.array(list(_rows(path, lines[1:])), dtype=np.float64).reshape(-1, 2)
        if rows.shape[0] == 0 or np.any(np.diff(rows[:, 0]) <= 0.0):
            raise PlanError(f"{path}: a frontier has at least one line, and its times increase; solve again")
        return rows[:, 0], rows[:, 1]

    def _plan(self, name: str) -> FrequencyPlan:
        from perseus.plan import FrequencyPlan

        return FrequencyPlan.load(self.path / name)


def _rows(path: Path, lines: list[str]) -> Iterator[tuple[float, float]]:
    for number, line in enumerate(lines, start=2):
        time_s, _, energy_j = line.partition(",")
        try:
            row = float(time_s), float(energy_j)
        except ValueError:
            row = (float("nan"), float("nan"))
        if not all(np.isfinite(row)):
            raise PlanError(f"{path}: line {number} is {line!r}; it must be two numbers; solve again")
        yield row
