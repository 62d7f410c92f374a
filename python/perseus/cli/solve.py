"""``perseus solve``: from a profile to the frontier and a plan."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from perseus.cli.options import JsonOption, QuietOption, check_number, parse_blocking_power
from perseus.cli.output import Output

if TYPE_CHECKING:
    from perseus.dag import PipelineDag
    from perseus.frontier import Frontier
    from perseus.plan import FrequencyPlan
    from perseus.profiles import Profiles

EXAMPLE: Final = "example"
_EXAMPLE_MICROBATCHES: Final = 16


class MaxFlowChoice(str, enum.Enum):
    """How the solver finds minimum cuts."""

    push_relabel = "push_relabel"
    augment = "augment"


_Profile = Annotated[
    str,
    typer.Argument(
        metavar="PROFILE",
        help="CSV with the columns stage, instruction, frequency, time (s), energy (J); or the word 'example'.",
    ),
]
_Schedule = Annotated[str, typer.Option(help="Pipeline schedule: 1f1b, gpipe.")]
_Stages = Annotated[
    int | None, typer.Option(help="Stages of the pipeline; those of the profile if left out.", show_default=False)
]
_Microbatches = Annotated[int | None, typer.Option(help="Microbatches of an iteration.", show_default=False)]
_BlockingPower = Annotated[
    str | None,
    typer.Option(
        metavar="WATTS", help="What a waiting GPU draws: 83.64, or for each stage 0=80,1=75.", show_default=False
    ),
]
_Time = Annotated[float | None, typer.Option(help="Plan for this iteration time, in seconds.", show_default=False)]
_Slowdown = Annotated[
    float | None, typer.Option(help="Plan for this many times the shortest iteration time.", show_default=False)
]
_Straggler = Annotated[
    float | None,
    typer.Option(help="Plan for waiting for another pipeline that takes this many seconds.", show_default=False),
]
_Folder = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="DIR", help="Write the results here; made if it does not exist."),
]
_MaxFlow = Annotated[MaxFlowChoice, typer.Option(help="How minimum cuts are found; the result is the same.")]


def solve(
    profile: _Profile,
    schedule: _Schedule = "1f1b",
    stages: _Stages = None,
    microbatches: _Microbatches = None,
    blocking_power: _BlockingPower = None,
    time: _Time = None,
    slowdown: _Slowdown = None,
    straggler: _Straggler = None,
    output: _Folder = None,
    max_flow: _MaxFlow = MaxFlowChoice.augment,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Solve the time-energy frontier of a pipeline and choose a clock for each operation.

    The plan is for the shortest iteration time, unless --time, --slowdown or --straggler asks for another one.
    """
    _check_target(time, slowdown, straggler)
    if output is not None and output.exists() and not output.is_dir():
        raise typer.BadParameter(f"{str(output)!r} is a file; give a folder", param_hint="'--output'")
    powers_w = None if blocking_power is None else parse_blocking_power(blocking_power)
    out = Output(as_json=as_json, quiet=quiet)

    from perseus.cli.result_folder import ResultFolder
    from perseus.cli.summary import Summary
    from perseus.plan import max_clock_plan

    folder = None if output is None else ResultFolder(output)
    profiles = _read_profiles(profile, powers_w)
    dag = _pipeline(profiles, schedule, stages, microbatches, is_example=profile == EXAMPLE)
    frontier = _solve(dag, profiles, max_flow, out)
    plan = _plan(frontier, time, slowdown, straggler)
    summary = Summary(profile=profile, frontier=frontier, plan=plan, max_clock_plan=max_clock_plan(dag, profiles))
    files = {} if folder is None else folder.write(summary)
    out.show(summary.table())
    out.show_text("\n".join(f"wrote {path}" for path in files.values()) or "wrote no files; -o DIR writes them")
    out.show_json(summary.to_json(files))


def _check_target(time: float | None, slowdown: float | None, straggler: float | None) -> None:
    given = {"--time": time, "--slowdown": slowdown, "--straggler": straggler}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise typer.BadParameter(f"{' and '.join(names)} exclude each other; give one of them", param_hint=names[1])
    check_number(time, "--time", 0.0, "a finite number of seconds, at least 0")
    check_number(slowdown, "--slowdown", 1.0, "a finite factor of at least 1")
    check_number(straggler, "--straggler", 0.0, "a finite number of seconds, at least 0")


def _read_profiles(profile: str, blocking_power_w: float | dict[int, float] | None) -> Profiles:
    from perseus.profiles import EXAMPLE_BLOCKING_POWER_W, example_profile_path, read_profiles

    if profile == EXAMPLE:
        power_w = EXAMPLE_BLOCKING_POWER_W if blocking_power_w is None else blocking_power_w
        return read_profiles(example_profile_path(), blocking_power_w=power_w)
    if blocking_power_w is None:
        raise typer.BadParameter(
            "a profile of your own needs the power of a waiting GPU; give --blocking-power WATTS",
            param_hint="'--blocking-power'",
        )
    return read_profiles(profile, blocking_power_w=blocking_power_w)


def _pipeline(
    profiles: Profiles, schedule: str, stages: int | None, microbatches: int | None, *, is_example: bool
) -> PipelineDag:
    from perseus.dag import PipelineDag

    if microbatches is None:
        if not is_example:
            raise typer.BadParameter(
                "the number of microbatches of an iteration is missing; give --microbatches N",
                param_hint="'--microbatches'",
            )
        microbatches = _EXAMPLE_MICROBATCHES
    num_stages = len(profiles.stages) if stages is None else stages
    return PipelineDag.from_schedule(schedule, num_stages=num_stages, num_microbatches=microbatches)


def _solve(dag: PipelineDag, profiles: Profiles, max_flow: MaxFlowChoice, out: Output) -> Frontier:
    from perseus.cli.progress import SolveBar
    from perseus.solve import solve_frontier

    if not out.may_show_progress:
        return solve_frontier(dag, profiles, max_flow=max_flow.value)
    with SolveBar() as bar:
        return solve_frontier(dag, profiles, max_flow=max_flow.value, progress=bar)


def _plan(frontier: Frontier, time: float | None, slowdown: float | None, straggler: float | None) -> FrequencyPlan:
    if time is not None:
        return frontier.plan_at(time)
    if straggler is not None:
        # All ranks wait for the straggler anyway, so time up to its end is free; beyond max_time_s it saves nothing.
        return frontier.plan_at(min(straggler, frontier.max_time_s), wait_until_s=straggler)
    return frontier.plan_at(frontier.min_time_s * (1.0 if slowdown is None else slowdown))
