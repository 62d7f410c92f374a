"""``perseus simulate``: run a program on simulated GPUs."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from perseus.device import simulated


def simulate(
    command: Annotated[list[str], typer.Argument(help="The program and its arguments, after '--'.")],
    gpu: Annotated[
        str, typer.Option(help=f"Model ({', '.join(simulated.MODELS)}), or one for each GPU, divided by commas.")
    ] = "a100",
    count: Annotated[int, typer.Option(min=1, max=16, help="Number of GPUs.")] = 1,
    time_scale: Annotated[
        float, typer.Option(min=0.0, help="1: real time; 10: ten times faster; 0: virtual time.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the noise in times and powers.")] = 1,
    state: Annotated[
        Path | None, typer.Option(help="Keep the machine's state in this file. Default: a temporary one.")
    ] = None,
) -> None:
    """Run a program on simulated GPUs: its NVML, and that of its children, is a simulation.

    For example: perseus simulate --gpu a100 --count 4 -- torchrun --nproc-per-node 4 train.py
    """
    unknown = sorted(set(gpu.split(",")) - set(simulated.MODELS))
    if unknown:
        raise typer.BadParameter(f"there is no model {', '.join(unknown)}; choose from {', '.join(simulated.MODELS)}")
    with _state_file(state) as path:
        simulated.create_state(path, gpu, count=count, time_scale=time_scale, seed=seed)
        status = _run(command, simulated.child_environment(path, os.environ))
    raise typer.Exit(status)


@contextmanager
def _state_file(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        yield chosen.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="perseus-simulated-") as folder:
        yield Path(folder) / "machine"


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run a program as a shell would, passing on signals; return its status."""
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise typer.BadParameter(f"{command[0]} can't be started ({error})") from error
    with _passing_on(process):
        status = process.wait()
    return status if status >= 0 else 128 - status


@contextmanager
def _passing_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass SIGTERM and SIGHUP on.

    SIGINT reaches the program from the terminal by itself; here it must not end the wait.
    """

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
        signal.SIGHUP: signal.signal(signal.SIGHUP, pass_on),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
