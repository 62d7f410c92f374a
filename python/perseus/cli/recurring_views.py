"""What ``perseus recurring`` tells, as tables for people and as JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseus.report.quantities import format_energy, format_time

if TYPE_CHECKING:
    from rich.table import Table

    from perseus.recurring.policy import Decision
    from perseus.recurring.power_profile import PowerPoint
    from perseus.recurring.replay import Summary
    from perseus.recurring.store import JobKey, JobSettings, TrialStore
    from perseus.recurring.trial import Trial

_LEFT = ("GPU", "job", "phase", "ending")


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A live job on one kind of hardware.

    Attributes
    ----------
    key, eta:
        The job, its hardware, and how it weighs energy.
    trials, points:
        Its trials, and the power limits that were measured, by batch size.
    following:
        The trial that comes next.
    """

    key: JobKey
    eta: float
    trials: list[Trial]
    points: dict[int, list[PowerPoint]]
    following: Decision

    @classmethod
    def of(cls, log: TrialStore, key: JobKey, settings: JobSettings) -> JobView:
        """Read the job from its log."""
        from perseus.recurring.store import next_decision

        trials = log.trials(key)
        measured = {size: log.measurements(key, size) for size in sorted({trial.batch_size for trial in trials})}
        return cls(
            key=key,
            eta=settings.eta,
            trials=trials,
            points={size: [m.point for m in found] for size, found in measured.items() if found},
            following=next_decision(trials, settings),
        )

    def table(self) -> Table:
        """Return its trials, one per row."""
        columns = ("trial", "batch", "phase", "ending", "epochs", "energy", "time", "W", "cost")
        return _table(f"{self.key.job} on {self.key.hardware}", columns, (self._row(trial) for trial in self.trials))

    def _row(self, trial: Trial) -> tuple[str, ...]:
        start = (str(trial.number), str(trial.batch_size), trial.phase)
        result = trial.result
        if result is None or result.ending == "abandoned":
            return (*start, result.ending if result else "running", "", "", "", "", "")
        return (
            *(*start, result.ending, str(result.epochs)),
            *(_or_unknown(format_energy, result.energy_j), format_time(result.time_s)),
            *("" if result.power_limit_w is None else f"{result.power_limit_w:g}",),
            *(_or_unknown(format_energy, trial.cost_j(self.eta)),),
        )

    def document(self) -> dict[str, object]:
        """Return everything for JSON."""
        return {
            "hardware": self.key.hardware,
            "trials": [self._trial_document(trial) for trial in self.trials],
            "power_limits": {str(size): [point._asdict() for point in found] for size, found in self.points.items()},
            "next": {
                "batch_size": self.following.batch_size,
                "phase": self.following.phase,
                "cap_j": finite(self.following.cap_j),
            },
        }

    def _trial_document(self, trial: Trial) -> dict[str, object]:
        result = trial.result
        return {
            "number": trial.number,
            "batch_size": trial.batch_size,
            "phase": trial.phase,
            "ending": result.ending if result else "running",
            "epochs": result.epochs if result else None,
            "energy_j": finite(result.energy_j) if result else None,
            "time_s": result.time_s if result else None,
            "metric": result.metric if result else None,
            "power_limit_w": result.power_limit_w if result else None,
            "cost_j": finite(trial.cost_j(self.eta)),
            "cap_j": finite(trial.cap_j),
        }


def potential_table(summaries: list[Summary]) -> Table:
    """Return what could be saved at all, whatever the time."""
    from perseus.recurring.replay import potential

    rows = []
    for summary in summaries:
        found = potential(summary.trace)
        best = f"{found.best.batch_size}, {found.best.limit_w:.0f}"
        rows.append((summary.trace.gpu, summary.trace.job.name, *(f"{ratio:.4f}" for ratio in found[:3]), best))
    columns = ("GPU", "job", "batch size", "power limit", "both", "best (b, W)")
    return _table("Least energy to target / default energy, by what may be chosen", columns, rows)


def replay_table(summaries: list[Summary]) -> Table:
    """Return what the policy made of the jobs."""
    columns = ("GPU", "job", "best (b, W)", "best", "Zeus", "energy", "whole", "aborts")
    return _table(
        "Cost / default cost: optimum, Zeus in its last five recurrences, Zeus as a whole; energy saved",
        columns,
        (
            (
                *(s.trace.gpu, s.trace.job.name, f"{s.best.batch_size}, {s.best.limit_w:.0f}"),
                *(f"{s.best.cost_j / s.default.cost_j:.4f}", f"{s.last_cost_ratio.mean():.4f}"),
                *(f"{100.0 * s.energy_saving:.1f} %", f"{s.whole_cost_ratio.mean():.4f}", str(int(s.aborted.sum()))),
            )
            for s in summaries
        ),
    )


def geometric_means(summaries: list[Summary]) -> dict[str, float]:
    """Return, per GPU, the geometric mean of Zeus's energy against the default's."""
    gpus = dict.fromkeys(s.trace.gpu for s in summaries)
    logs = {gpu: [math.log(s.last_energy_ratio.mean()) for s in summaries if s.trace.gpu == gpu] for gpu in gpus}
    return {gpu: math.exp(sum(values) / len(values)) for gpu, values in logs.items()}


def summary_document(summary: Summary) -> dict[str, object]:
    """Return a replayed job for JSON."""
    from perseus.recurring.replay import potential

    found = potential(summary.trace)
    return {
        "gpu": summary.trace.gpu,
        "job": summary.trace.job.name,
        "potential_batch_size_only": found.batch_size_only,
        "potential_power_limit_only": found.power_limit_only,
        "potential_both": found.both,
        "optimum_batch_size": summary.best.batch_size,
        "optimum_power_limit_w": summary.best.limit_w,
        "optimum_cost_ratio": summary.best.cost_j / summary.default.cost_j,
        "last_cost_ratio": finite(summary.last_cost_ratio.mean()),
        "last_energy_ratio": finite(summary.last_energy_ratio.mean()),
        "last_time_ratio": finite(summary.last_time_ratio.mean()),
        "whole_cost_ratio": finite(summary.whole_cost_ratio.mean()),
        "resets": int(summary.resets.sum()),
        "aborted": int(summary.aborted.sum()),
    }


def finite(value: float) -> float | None:
    """Return a number for JSON, which has neither infinity nor NaN."""
    return float(value) if math.isfinite(value) else None


def _or_unknown(form: Callable[[float], str], value: float) -> str:
    return form(value) if math.isfinite(value) else "unknown"


def _table(title: str, columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column in _LEFT else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
