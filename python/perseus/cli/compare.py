"""``perseus compare``: what the baselines and our plans save on a profile, alone and with stragglers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perseus.cli import solve as solve_command
from perseus.cli.options import JsonOption, QuietOption, parse_blocking_power
from perseus.cli.output import Output

if TYPE_CHECKING:
    from rich.table import Table

    from perseus.comparison import Comparison

_Slowdowns = Annotated[
    str, typer.Option(metavar="LIST", help="Stragglers' times over that of the highest clocks, divided by commas.")
]
_Plot = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw times and energies here: .png or .svg.", show_default=False)
]


def compare(
    profile: solve_command._Profile,
    schedule: solve_command._Schedule = "1f1b",
    stages: solve_command._Stages = None,
    microbatches: solve_command._Microbatches = None,
    blocking_power: solve_command._BlockingPower = None,
    slowdowns: _Slowdowns = "1.05,1.1,1.2,1.3,1.4,1.5",
    plot: _Plot = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare the energy of highest clocks, Zeus, EnvPipe, Perseus as published, and ours, with stragglers too."""
    factors = _parse_slowdowns(slowdowns)
    if plot is not None and plot.suffix.lower() not in (".png", ".svg"):
        raise typer.BadParameter(f"{str(plot)!r} ends in neither .png nor .svg; rename it", param_hint="'--plot'")
    powers_w = None if blocking_power is None else parse_blocking_power(blocking_power)
    out = Output(as_json=as_json, quiet=quiet)

    from perseus.comparison import compare as compare_methods
    from perseus.solve import solve_frontier

    profiles = solve_command._read_profiles(profile, powers_w)
    is_example = profile == solve_command.EXAMPLE
    dag = solve_command._pipeline(profiles, schedule, stages, microbatches, is_example=is_example)
    comparison = compare_methods(solve_frontier(dag, profiles), slowdowns=factors)
    out.show(_table(comparison))
    if plot is not None:
        _draw(comparison, plot)
        out.show_text(f"wrote {plot}")
    out.show_json(_document(comparison, profile, plot))


def _parse_slowdowns(text: str) -> tuple[float, ...]:
    try:
        factors = tuple(float(item) for item in text.split(",") if item.strip())
    except ValueError:
        factors = (0.0,)
    if not all(1.0 <= factor < float("inf") for factor in factors):
        raise typer.BadParameter(
            f"{text!r} is not a list of finite factors of at least 1, such as 1.05,1.2", param_hint="'--slowdowns'"
        )
    return factors


def _table(comparison: Comparison) -> Table:
    """Return a row for each method: time, energy and gap without a straggler, then the saving with each."""
    from rich import box
    from rich.table import Table

    from perseus.report.quantities import format_energy, format_percent, format_time

    dag = comparison.frontier.dag
    title = f"{dag.schedule}, {dag.num_stages} stages, {dag.num_microbatches} microbatches"
    table = Table(box=box.SIMPLE, title=title, title_justify="left", title_style="bold")
    table.add_column("method")
    for name in ("time", "energy", "above bound", "saving"):
        table.add_column(name, justify="right")
    for slowdown in comparison.slowdowns[1:]:
        table.add_column(f"\u00d7{slowdown:g}", justify="right")
    for method in comparison.methods:
        alone = comparison.of(method, None)
        cells = ["\u2013"] * 4
        if alone is not None:
            plan = alone.plan
            cells = [format_time(plan.time_s), format_energy(plan.energy_j), format_percent(plan.gap, 2)]
            cells.append(format_percent(alone.saving))
        found = [comparison.of(method, slowdown) for slowdown in comparison.slowdowns[1:]]
        table.add_row(method, *cells, *("\u2013" if f is None else format_percent(f.saving) for f in found))
    return table


def _document(comparison: Comparison, profile: str, plot: Path | None) -> dict[str, object]:
    dag = comparison.frontier.dag
    return {
        "profile": profile,
        "schedule": dag.schedule,
        "num_stages": dag.num_stages,
        "num_microbatches": dag.num_microbatches,
        "plans": [
            {
                "method": compared.method,
                "straggler_slowdown": compared.slowdown,
                "time_s": compared.plan.time_s,
                "wait_until_s": compared.plan.wait_until_s,
                "energy_j": compared.plan.energy_j,
                "lower_bound_j": compared.plan.lower_bound_j,
                "gap": compared.plan.gap,
                "saving": compared.saving,
            }
            for compared in comparison.plans
        ],
        "files": {} if plot is None else {"plot": str(plot)},
    }


def _draw(comparison: Comparison, path: Path) -> None:
    from perseus.report.comparison_plot import comparison_figure
    from perseus.report.picture import drawing, save_figure

    frontier, dag = comparison.frontier, comparison.frontier.dag
    power_w = frontier.blocking_power_w
    points: dict[str, list[tuple[float, float]]] = {method: [] for method in comparison.methods}
    for compared in comparison.plans:
        plan = compared.plan
        waits_s = 0.0 if plan.wait_until_s is None else plan.wait_until_s - plan.time_s
        points[compared.method].append((plan.time_s, plan.energy_j - power_w * waits_s))
    with drawing():
        title = f"{dag.schedule}, {dag.num_stages} stages, {dag.num_microbatches} microbatches"
        figure = comparison_figure(title, frontier.times_s, frontier.energies_j, points)
        save_figure(figure, path, "svg" if path.suffix.lower() == ".svg" else "png")
