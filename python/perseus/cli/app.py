"""The command line as a whole: its subcommands, and how every ending becomes an exit code and a message."""

from __future__ import annotations

import contextlib
import sys
import traceback
from typing import Annotated, Any

import typer

import perseus
from perseus.cli import output
from perseus.cli.clocks import clocks
from perseus.cli.compare import compare
from perseus.cli.doctor import doctor
from perseus.cli.exit_codes import ExitCode, exit_code_help, exit_code_of
from perseus.cli.options import JsonOption
from perseus.cli.profile import profile
from perseus.cli.recurring import app as recurring
from perseus.cli.show import show
from perseus.cli.simulate import simulate
from perseus.cli.solve import solve
from perseus.errors import InfeasibleTimeError, PerseusError

# typer hands out these two only through the class below them, whether it uses click or its own copy.
_UsageError = typer.BadParameter.__mro__[1]
_ClickException = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="perseus",
    help="The exact time-energy frontier of a training pipeline, and the GPU clocks that reach it.",
    epilog=exit_code_help(),
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
for command in (solve, show, compare, profile, doctor, simulate):
    app.command(epilog=exit_code_help())(command)
app.add_typer(clocks, name="clocks")
app.add_typer(recurring, name="recurring")


@app.callback(invoke_without_command=True)
def perseus_command(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    as_json: JsonOption = False,
) -> None:
    """The exact time-energy frontier of a training pipeline, and the GPU clocks that reach it."""
    if version:
        out = output.Output(as_json=as_json)
        out.show_text(f"perseus {perseus.__version__}")
        out.show_json({"version": perseus.__version__})
        raise typer.Exit
    if as_json:  # before the subcommand it means the same as behind it
        context.default_map = _as_json_everywhere(app)
    if context.invoked_subcommand is None:
        if as_json:
            context.fail("Missing command.")
        with contextlib.redirect_stdout(sys.stderr):  # where rich prints help itself
            output.write(sys.stderr, f"{context.get_help()}\n")
        raise typer.Exit(ExitCode.USAGE)


def _as_json_everywhere(group: typer.Typer) -> dict[str, Any]:
    """Return defaults that set ``--json`` for every command of a group and of the groups in it."""
    names = [
        command.name or str(command.callback and command.callback.__name__) for command in group.registered_commands
    ]
    defaults: dict[str, Any] = {name: {"as_json": True} for name in names}
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            defaults[str(inner.name)] = _as_json_everywhere(inner.typer_instance)
    return defaults


def run(arguments: list[str]) -> int:
    """Run the command line and return the exit code; nothing is raised, whatever happens."""
    as_json = "--json" in arguments
    try:
        code = _invoke(arguments)
    except Exception as error:
        code = _tell(error, as_json=as_json)
    except KeyboardInterrupt as error:
        code = _tell(error, as_json=as_json)
    output.flush()
    return int(code)


def _invoke(arguments: list[str]) -> int:
    try:
        result = app(arguments, prog_name="perseus", standalone_mode=False)
    except typer.Abort:  # what earlier versions of typer make of Ctrl-C
        raise KeyboardInterrupt from None
    except SystemExit as ending:  # what typer makes of a closed pipe while it prints help
        return ExitCode.OK if isinstance(ending.__context__, BrokenPipeError) else ExitCode.UNEXPECTED
    if result == ExitCode.INTERRUPTED:  # what later versions make of it
        raise KeyboardInterrupt
    return result if isinstance(result, int) else ExitCode.OK


def _tell(error: BaseException, *, as_json: bool) -> int:
    """Tell the user about an error; return the exit code."""
    is_usage = isinstance(error, _ClickException)
    if not (is_usage or _is_expected(error)):
        output.write(sys.stderr, "".join(traceback.format_exception(error)))
        output.write(sys.stderr, "perseus: this is a defect; please report it with the lines above\n")
    elif not as_json:
        output.write(sys.stderr, _usage_text(error) if is_usage else f"perseus: {_message(error)}\n")
    if as_json:
        output.write(sys.stdout, output.as_json_text({"error": _as_document(error)}) + "\n")
    return ExitCode.USAGE if is_usage else exit_code_of(error)


def _is_expected(error: BaseException) -> bool:
    return isinstance(error, (PerseusError, OSError, KeyboardInterrupt, MemoryError))


def _as_document(error: BaseException) -> dict[str, object]:
    is_usage = isinstance(error, _ClickException)
    document: dict[str, object] = {
        "type": "UsageError" if is_usage else type(error).__name__,
        "message": _message(error),
    }
    if isinstance(error, InfeasibleTimeError):
        document["min_time_s"] = error.min_time_s
    return document


def _message(error: BaseException) -> str:
    if isinstance(error, _ClickException):
        return str(error.format_message())  # type: ignore[attr-defined]
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _usage_text(error: BaseException) -> str:
    context = getattr(error, "ctx", None)
    usage = "" if context is None else f"{context.get_usage()}\nTry '{context.command_path} --help'.\n"
    return f"{usage}perseus: {_message(error)}\n"
