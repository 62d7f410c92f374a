"""What the ``perseus`` command returns to the shell."""

from __future__ import annotations

import enum
from typing import Final


class ExitCode(enum.IntEnum):
    """How a run of ``perseus`` ended."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    BAD_INPUT = 3
    INFEASIBLE_TIME = 4
    SOLVER_FAILED = 5
    INTERRUPTED = 130  # 128 + SIGINT, as shells report it


DESCRIPTIONS: Final = {
    ExitCode.OK: "done",
    ExitCode.UNEXPECTED: "anything else, such as a full disk, a missing extra or a defect",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.BAD_INPUT: "a profile, plan, trace, trial log or result folder cannot be used",
    ExitCode.INFEASIBLE_TIME: "the iteration time asked for is below the shortest possible",
    ExitCode.SOLVER_FAILED: "the solver could not finish",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C)",
}

# By the name of the exception's class or of its nearest base, so that no part is imported just to be named here.
_CODES: Final[dict[str, ExitCode]] = {
    "ScheduleError": ExitCode.USAGE,  # a schedule's name and sizes come from the command line
    "JobError": ExitCode.USAGE,
    "ProfileError": ExitCode.BAD_INPUT,
    "DagError": ExitCode.BAD_INPUT,
    "PlanError": ExitCode.BAD_INPUT,
    "TraceError": ExitCode.BAD_INPUT,
    "StoreError": ExitCode.BAD_INPUT,
    "InfeasibleTimeError": ExitCode.INFEASIBLE_TIME,
    "SolveError": ExitCode.SOLVER_FAILED,
    "KeyboardInterrupt": ExitCode.INTERRUPTED,
}


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code for an error that ended a command."""
    names = (kind.__name__ for kind in type(error).__mro__)
    return next((_CODES[name] for name in names if name in _CODES), ExitCode.UNEXPECTED)


def exit_code_help() -> str:
    """Return the exit codes as one line for ``--help``."""
    return "Exit codes: " + "; ".join(f"{code.value} {text}" for code, text in DESCRIPTIONS.items()) + "."
