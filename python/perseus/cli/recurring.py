"""``perseus recurring``: replay recurring jobs from traces, and show what a live one has learned."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perseus.cli.options import JsonOption, QuietOption
from perseus.cli.output import Output

if TYPE_CHECKING:
    from rich.table import Table

    from perseus.recurring.replay import ReplaySettings, Summary
    from perseus.recurring.store import JobKey, JobSettings, TrialStore
    from perseus.recurring.trace import Trace

app = typer.Typer(
    name="recurring",
    help="Jobs that run again and again and find their batch size and power limit.",
    no_args_is_help=True,
)


@app.command()
def replay(
    trace_dir: Annotated[Path, typer.Argument(metavar="TRACE_DIR", help="Directory of the Zeus (NSDI'23) traces.")],
    gpu: Annotated[list[str] | None, typer.Option(help="GPU to replay, repeatable; all by default.")] = None,
    job: Annotated[list[str] | None, typer.Option(help="Job to replay, repeatable; all by default.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Independent replays of each job.")] = 50,
    eta: Annotated[float, typer.Option(min=0.0, max=1.0, help="Weight of energy against time.")] = 0.5,
    beta: Annotated[float, typer.Option(help="Cost cap as a multiple of the least known cost; inf for none.")] = 2.0,
    window: Annotated[int, typer.Option(min=0, help="How many trials count; 0 counts all.")] = 0,
    recurrences: Annotated[
        int | None, typer.Option(min=5, help="How often a job recurs; 2 * batch sizes * power limits by default.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture to this file.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Replay recurring jobs from measured traces, with the policy that live jobs use."""
    from perseus.recurring.replay import ReplaySettings

    settings = ReplaySettings(eta=eta, beta=beta, window=window, recurrences=recurrences)
    out = Output(as_json=as_json, quiet=quiet)
    traces = _traces(trace_dir, gpu, job)
    summaries = [_summary(trace, settings, seeds) for trace in _with_progress(traces, shown=out.may_show_progress)]
    if plot is not None:
        from perseus.recurring.replay_plot import plot_summaries

        plot_summaries(summaries, plot)
    out.show_json({"eta": eta, "beta": _number(beta), "seeds": seeds, "jobs": [_as_dict(s) for s in summaries]})
    out.show(_potential_table(summaries))
    out.show(_replay_table(summaries))
    for name, ratio in _geomeans(summaries).items():
        out.show_text(f"{name}: geometric mean of Zeus energy / default energy {ratio:.3f}")


@app.command()
def show(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")],
    store: Annotated[
        Path | None, typer.Option(help="Trial log; by default $PERSEUS_RECURRING_STORE or the user's own.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show the trials of a live job, what they have taught, and what comes next."""
    from perseus.recurring.store import TrialStore, default_path

    log = TrialStore(default_path() if store is None else store)
    settings = log.settings(job)
    documents = [_job_document(log, key, settings) for key in log.keys(job)]
    out = Output(as_json=as_json, quiet=quiet)
    out.show_json({"job": job, "hardware": documents})
    for document in documents:
        _show_job(out, job, document)


def _traces(trace_dir: Path, gpus: list[str] | None, jobs: list[str] | None) -> list[Trace]:
    from perseus.recurring.trace import TRACED_JOBS, gpus_of, read_trace

    known_gpus, known_jobs = gpus_of(trace_dir), {traced.name.lower(): traced for traced in TRACED_JOBS}
    wanted_gpus = [_known(name, known_gpus, "--gpu") for name in gpus or known_gpus]
    wanted_jobs = [_known(name, known_jobs, "--job") for name in jobs or known_jobs]
    return [read_trace(trace_dir, gpu, known_jobs[name]) for gpu in wanted_gpus for name in wanted_jobs]


def _known(name: str, known: Iterable[str], option: str) -> str:
    if name.lower() not in known:
        raise typer.BadParameter(f"{name!r} is not in the traces; choose among {', '.join(known)}", param_hint=option)
    return name.lower()


def _summary(trace: Trace, settings: ReplaySettings, seeds: int) -> Summary:
    from perseus.recurring.replay import replay as replay_job
    from perseus.recurring.replay import summarize

    return summarize(trace, settings, [replay_job(trace, settings, seed) for seed in range(seeds)])


def _with_progress(traces: list[Trace], *, shown: bool) -> Iterator[Trace]:
    """Yield the traces; a bar on stderr shows how far they have come, if someone can see it."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not shown) as bar:
        task = bar.add_task("replaying", total=len(traces))
        for trace in traces:
            bar.update(task, description=f"{trace.job.name} on {trace.gpu}")
            yield trace
            bar.advance(task)


def _potential_table(summaries: list[Summary]) -> Table:
    from rich.table import Table

    from perseus.recurring.replay import potential

    table = Table(title="Least energy to target / default energy")
    for column in ("GPU", "job", "batch size only", "power limit only", "both", "best (b, W)"):
        table.add_column(column, justify="left" if column in ("GPU", "job") else "right")
    for summary in summaries:
        found = potential(summary.trace)
        ratios = [f"{value:.4f}" for value in found[:3]]
        best = f"{found.best.batch_size}, {found.best.limit_w:.0f}"
        table.add_row(summary.trace.gpu, summary.trace.job.name, *ratios, best)
    return table


def _replay_table(summaries: list[Summary]) -> Table:
    from rich.table import Table

    table = Table(title="Zeus, means over the seeds; last: the configurations of the last five recurrences")
    for column in ("GPU", "job", "optimum (b, W)", "its cost", "last cost", "energy saved", "whole cost", "aborts"):
        table.add_column(column, justify="left" if column in ("GPU", "job") else "right")
    for s in summaries:
        table.add_row(
            *(s.trace.gpu, s.trace.job.name, f"{s.best.batch_size}, {s.best.limit_w:.0f}"),
            *(f"{s.best.cost_j / s.default.cost_j:.4f}", f"{s.last_cost_ratio.mean():.4f}"),
            *(f"{100.0 * s.energy_saving:.1f} %", f"{s.whole_cost_ratio.mean():.4f}", str(int(s.aborted.sum()))),
        )
    return table


def _geomeans(summaries: list[Summary]) -> dict[str, float]:
    gpus = dict.fromkeys(s.trace.gpu for s in summaries)
    logs = {gpu: [math.log(s.last_energy_ratio.mean()) for s in summaries if s.trace.gpu == gpu] for gpu in gpus}
    return {gpu: math.exp(sum(values) / len(values)) for gpu, values in logs.items()}


def _as_dict(summary: Summary) -> dict[str, object]:
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
        "last_cost_ratio": _number(summary.last_cost_ratio.mean()),
        "last_energy_ratio": _number(summary.last_energy_ratio.mean()),
        "last_time_ratio": _number(summary.last_time_ratio.mean()),
        "whole_cost_ratio": _number(summary.whole_cost_ratio.mean()),
        "resets": int(summary.resets.sum()),
        "aborted": int(summary.aborted.sum()),
    }


def _job_document(log: TrialStore, key: JobKey, settings: JobSettings) -> dict[str, object]:
    from perseus.recurring.store import next_decision

    trials = log.trials(key)
    following = next_decision(trials, settings)
    sizes = sorted({trial.batch_size for trial in trials})
    limits = {size: [m.point._asdict() for m in log.measurements(key, size)] for size in sizes}
    return {
        "hardware": key.hardware,
        "trials": [
            {
                "number": trial.number,
                "batch_size": trial.batch_size,
                "phase": trial.phase,
                "ending": trial.result.ending if trial.result else "running",
                "epochs": trial.result.epochs if trial.result else None,
                "energy_j": trial.result.energy_j if trial.result else None,
                "time_s": trial.result.time_s if trial.result else None,
                "power_limit_w": trial.result.power_limit_w if trial.result else None,
                "cost_j": _number(trial.cost_j(settings.eta)),
                "cap_j": _number(trial.cap_j),
            }
            for trial in trials
        ],
        "power_limits": limits,
        "next": {"batch_size": following.batch_size, "phase": following.phase, "cap_j": _number(following.cap_j)},
    }


def _show_job(out: Output, job: str, document: dict[str, object]) -> None:
    from rich.table import Table

    columns = ("number", "batch_size", "phase", "ending", "epochs", "energy_j", "time_s", "power_limit_w", "cost_j")
    table = Table(title=f"{job} on {document['hardware']}")
    for column in columns:
        table.add_column(column, justify="left" if column in ("phase", "ending") else "right")
    trials = document["trials"]
    assert isinstance(trials, list)
    for trial in trials:
        table.add_row(*(_cell(trial[column]) for column in columns))
    out.show(table)
    following = document["next"]
    assert isinstance(following, dict)
    out.show_text(f"next: batch size {following['batch_size']} ({following['phase']})")


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _number(value: float) -> float | None:
    """Return a number for JSON, which has neither infinity nor NaN."""
    return float(value) if math.isfinite(value) else None
