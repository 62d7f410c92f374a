"""``perseus profile``: measure operations over clocks or power limits, and write a profile."""

from __future__ import annotations

import enum
import importlib
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer

from perseus.cli.options import JsonOption
from perseus.cli.output import Output
from perseus.device.errors import MeasurementError
from perseus.device.opening import open_gpus

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from perseus.profiler import SweepProgress
    from perseus.profiler.sweep import Operation


class KnobName(str, enum.Enum):
    """What a sweep turns."""

    FREQUENCY = "frequency"
    POWER_LIMIT = "power-limit"


def profile(
    operations: Annotated[
        str,
        typer.Argument(
            help="MODULE:NAME of a mapping from (stage, kind) to callables, or of a function that returns one; "
            "or the word example, for kernels on simulated GPUs."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Profile file to write.")],
    gpu: Annotated[int, typer.Option(help="Number of the GPU among the visible ones, as in cuda:N.")] = 0,
    knob: Annotated[KnobName, typer.Option(help="What to turn.")] = KnobName.FREQUENCY,
    every: Annotated[int, typer.Option(min=1, help="Take each N-th supported clock only.")] = 1,
    step: Annotated[float, typer.Option(min=1.0, help="Distance of two power limits in W.")] = 25.0,
    half_width: Annotated[float, typer.Option(help="Bar for the confidence interval, relative.")] = 0.01,
    max_seconds: Annotated[float, typer.Option(min=0.1, help="Time on one point at most.")] = 20.0,
    blocking_power: Annotated[
        float | None, typer.Option(help="Power of the waiting GPU in W. Default: measured first.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure each operation's time and energy from the fastest setting to the slowest.

    An interrupted run goes on where it ended: its points are in OUTPUT.journal, with what was flagged.
    """
    from perseus.profiler import ClockKnob, PowerLimitKnob, Precision, sweep

    visible = open_gpus()
    if gpu >= len(visible):
        raise MeasurementError(f"GPU {gpu} was asked for; {len(visible)} are visible; see perseus doctor")
    callables = load_operations(operations, gpu)
    out = Output(as_json=as_json)
    with ProfileBar(shown=out.may_show_progress) as bar:
        measured = sweep(
            visible[gpu],
            callables,
            knob=ClockKnob(every=every) if knob is KnobName.FREQUENCY else PowerLimitKnob(step),
            precision=Precision(half_width=half_width, most_s=max_seconds, least_s=min(0.5, max_seconds)),
            blocking_power_w=blocking_power,
            journal=output.with_name(output.name + ".journal"),
            progress=bar,
        )
    measured.to_csv(output)
    not_held = [point for point in measured.points if not point.held]
    out.show_text(f"{len(measured.points) - len(not_held)} points on {measured.gpu_name} written to {output}")
    out.show_text(f"blocking power: {measured.blocking_power_w:.2f} W")
    for point in not_held:
        out.show_text(f"not held: {point.value:g} ({point.kind}), ran at {point.achieved_mhz:.0f} MHz: {point.reasons}")
    out.show_json(
        {
            "output": str(output),
            "gpu": measured.gpu_uuid,
            "blocking_power_w": measured.blocking_power_w,
            "points": [asdict(point) for point in measured.points],
        }
    )


def load_operations(text: str, gpu: int) -> Mapping[tuple[int, str], Operation]:
    """Return the operations that a command line names."""
    if text == "example":
        return _example_operations(gpu)
    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise typer.BadParameter(f"{text!r} isn't MODULE:NAME, such as mymodel.profiling:operations")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as python -m does
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise typer.BadParameter(f"{text!r} can't be loaded ({error})") from error
    operations = found() if callable(found) else found
    if not isinstance(operations, Mapping):
        raise typer.BadParameter(f"{text!r} gave a {type(operations).__name__}, not a mapping of callables")
    return operations


def _example_operations(gpu: int) -> Mapping[tuple[int, str], Operation]:
    from perseus.device import simulated

    machine_gpu = simulated.SimulatedGpu(open_gpus()[gpu].index)
    machine_gpu.open_context()

    def run(kernel: simulated.Kernel) -> float:
        start_s, end_s = machine_gpu.run(kernel)
        return end_s - start_s

    forward = simulated.Kernel(work_s=0.03, memory_share=0.1, activity=0.6)
    backward = simulated.Kernel(work_s=0.06, memory_share=0.15, activity=0.62)
    return {(0, "forward"): lambda: run(forward), (0, "backward"): lambda: run(backward)}


class ProfileBar:
    """A progress bar on stderr with the time left.

    Parameters
    ----------
    shown:
        Whether to show it.
    """

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> ProfileBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: SweepProgress) -> None:
        """Show how far the sweep is."""
        if not self._shown:
            return
        if self._bar is None or self._task is None:
            self._bar, self._task = self._start()
        what = f"stage {progress.stage} {progress.kind} at {progress.value:g}"
        left = "" if math.isnan(progress.left_s) else f"at most {_minutes(progress.left_s)} left"
        self._bar.update(self._task, completed=progress.done, total=progress.total, what=what, left=left)

    @staticmethod
    def _start() -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[what]}  {task.fields[left]}"),
            console=Console(stderr=True),
            transient=True,
        )
        bar.start()
        return bar, bar.add_task("profile", total=1.0, what="", left="")


def _minutes(time_s: float) -> str:
    minutes, seconds = divmod(round(time_s), 60)
    return f"{minutes}:{seconds:02d} min"
