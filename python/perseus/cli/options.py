"""Options that several commands share, and the texts that options take."""

from __future__ import annotations

import math
from typing import Annotated

import typer

JsonOption = Annotated[
    bool, typer.Option("--json", help="Write the result, or the error, as JSON on stdout and nothing else there.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Write nothing but errors and files.")]


def parse_blocking_power(text: str) -> float | dict[int, float]:
    """Read ``83.64`` as one power for all stages, ``0=80,1=75`` as one for each, in watts.

    Raises
    ------
    typer.BadParameter
        If the text is neither, a stage occurs twice, or a power is negative or not finite.
    """
    if "=" not in text:
        return _power(text, text)
    powers_w: dict[int, float] = {}
    for item in text.split(","):
        stage_text, _, power_text = item.partition("=")
        if not stage_text.strip().isdecimal():
            raise _bad_power(text, f"{item!r} does not begin with a stage's number and '='")
        stage = int(stage_text)
        if stage in powers_w:
            raise _bad_power(text, f"stage {stage} occurs twice")
        powers_w[stage] = _power(power_text, text)
    return powers_w


def _power(power_text: str, text: str) -> float:
    try:
        power_w = float(power_text)
    except ValueError:
        raise _bad_power(text, f"{power_text!r} is not a number") from None
    if not (math.isfinite(power_w) and power_w >= 0.0):
        raise _bad_power(text, f"{power_text!r} is negative or not finite")
    return power_w


def _bad_power(text: str, found: str) -> typer.BadParameter:
    return typer.BadParameter(
        f"{text!r}: {found}; give watts (83.64) or watts for each stage (0=80,1=75)",
        param_hint="'--blocking-power'",
    )


def check_number(value: float | None, option: str, at_least: float, rule: str) -> None:
    """Refuse a number that is below its least value or not finite.

    Raises
    ------
    typer.BadParameter
        With the rule, worded by `rule`.
    """
    if value is not None and not (math.isfinite(value) and value >= at_least):
        raise typer.BadParameter(f"{value:g} is not {rule}", param_hint=f"'{option}'")
