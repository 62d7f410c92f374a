"""``perseus recurring``: replay recurring jobs from traces, and show what a live one has learned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perseus.cli import recurring_views as views
from perseus.cli.options import JsonOption, QuietOption
from perseus.cli.output import Output

if TYPE_CHECKING:
    from perseus.recurring.replay import ReplaySettings, Summary
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
    documents = [views.summary_document(summary) for summary in summaries]
    out.show_json({"eta": eta, "beta": views.finite(beta), "seeds": seeds, "jobs": documents})
    out.show(views.potential_table(summaries))
    out.show(views.replay_table(summaries))
    for name, ratio in views.geometric_means(summaries).items():
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
    found = [views.JobView.of(log, key, settings) for key in log.keys(job)]
    out = Output(as_json=as_json, quiet=quiet)
    out.show_json({"job": job, "hardware": [view.document() for view in found]})
    for view in found:
        out.show(view.table())
        out.show_text(f"next: batch size {view.following.batch_size} ({view.following.phase})")


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
