"""What a solve found, as one value: the table that people read and the JSON that programs read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseus.report.quantities import format_energy, format_percent, format_time

if TYPE_CHECKING:
    from rich.table import Table

    from perseus.frontier import Frontier
    from perseus.plan import FrequencyPlan


@dataclass(frozen=True, kw_only=True, eq=False)
class Summary:
    """What `perseus solve` tells.

    Attributes
    ----------
    profile:
        The profile as named on the command line.
    frontier:
        The solved frontier.
    plan:
        The plan chosen on it.
    max_clock_plan:
        Every operation at its highest clock.
    """

    profile: str
    frontier: Frontier
    plan: FrequencyPlan
    max_clock_plan: FrequencyPlan

    def to_json(self, files: Mapping[str, str]) -> dict[str, object]:
        """Return the summary as a JSON document; `files` are the paths written, by content."""
        frontier, plan, dag = self.frontier, self.plan, self.frontier.dag
        return {
            "profile": self.profile,
            "schedule": dag.schedule,
            "num_stages": dag.num_stages,
            "num_microbatches": dag.num_microbatches,
            "num_operations": dag.num_operations,
            "min_time_s": frontier.min_time_s,
            "min_energy_time_s": frontier.min_energy_time_s,
            "min_energy_j": float(frontier.energies_j.min()),
            "max_time_s": frontier.max_time_s,
            "num_breakpoints": len(frontier.times_s),
            "plan": {
                "deadline_s": plan.deadline_s,
                "wait_until_s": plan.wait_until_s,
                "time_s": plan.time_s,
                "energy_j": plan.energy_j,
                "lower_bound_j": plan.lower_bound_j,
                "gap": plan.gap,
                "baseline_energy_j": plan.baseline_energy_j,
                "saving": plan.saving,
            },
            "max_clocks": {"time_s": self.max_clock_plan.time_s, "energy_j": self.max_clock_plan.energy_j},
            "statistics": dict(frontier.statistics),
            "files": dict(files),
        }

    def table(self) -> Table:
        """Return the summary as a table for a terminal."""
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE, show_header=False, title=self._title(), title_justify="left", title_style="bold")
        table.add_column()
        table.add_column(justify="right")
        table.add_column(style="dim")
        for rows in (self._frontier_rows(), self._plan_rows(), self._solve_rows()):
            for row in rows:
                table.add_row(*row)
            table.add_section()
        return table

    def _title(self) -> str:
        dag = self.frontier.dag
        return f"{dag.schedule}, {dag.num_stages} stages, {dag.num_microbatches} microbatches"

    def _frontier_rows(self) -> list[tuple[str, str, str]]:
        frontier = self.frontier
        return [
            ("shortest iteration time", format_time(frontier.min_time_s), ""),
            ("T*, time of least energy", format_time(frontier.min_energy_time_s), self._least_energy()),
            ("longest useful time", format_time(frontier.max_time_s), "any slower saves nothing"),
        ]

    def _least_energy(self) -> str:
        return f"least energy {format_energy(float(self.frontier.energies_j.min()))}"

    def _plan_rows(self) -> list[tuple[str, str, str]]:
        plan = self.plan
        longer = plan.time_s / self.frontier.min_time_s - 1.0
        until = "" if plan.wait_until_s is None else f"until the straggler's {format_time(plan.wait_until_s)}"
        baseline = f"highest clocks {format_energy(plan.baseline_energy_j)}"
        return [
            ("plan: time", format_time(plan.time_s), f"{format_percent(longer, 2)} above the shortest"),
            ("plan: energy", format_energy(plan.energy_j), until),
            ("plan: saving", format_percent(plan.saving), baseline),
            ("plan: gap", format_percent(plan.gap, 2), "above the exact optimum"),
        ]

    def _solve_rows(self) -> list[tuple[str, str, str]]:
        statistics = self.frontier.statistics
        proof = "each proved optimal" if statistics["certified"] else "not certified"
        return [
            ("breakpoints", f"{len(self.frontier.times_s)}", proof),
            ("solve time", format_time(float(statistics["solve_time_s"]), 3), ""),
        ]
