import io
import sys

import pytest
import typer

from perseus import errors
from perseus.cli.exit_codes import DESCRIPTIONS, ExitCode, exit_code_help, exit_code_of
from perseus.cli.options import parse_blocking_power
from perseus.cli.output import Output, as_json_text, write


@pytest.mark.parametrize(
    ("text", "power_w"),
    [("83.64", 83.64), ("0", 0.0), ("0=80,1=75", {0: 80.0, 1: 75.0}), ("3=1e2", {3: 100.0}), (" 2 = 7 ", {2: 7.0})],
)
def test_blocking_power_is_one_number_or_one_for_each_stage(text: str, power_w: float | dict[int, float]) -> None:
    assert parse_blocking_power(text) == power_w


@pytest.mark.parametrize("text", ["", "warm", "nan", "inf", "-1", "0=", "=5", "-1=5", "0=1,0=2", "0=1,", "0=1;1=2"])
def test_any_other_blocking_power_is_refused_with_both_forms(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"83\.64.*0=80,1=75"):
        parse_blocking_power(text)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ProfileError("x"), 3),
        (errors.DagError("x"), 3),
        (errors.PlanError("x"), 3),
        (errors.ScheduleError("x"), 2),
        (errors.InfeasibleTimeError("x", 1.0), 4),
        (errors.SolveError("x"), 5),
        (errors.MissingExtraError("x"), 1),
        (KeyboardInterrupt(), 130),
        (OSError(28, "full"), 1),
        (ZeroDivisionError(), 1),
    ],
)
def test_every_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code


def test_every_exit_code_is_described_in_help() -> None:
    assert DESCRIPTIONS.keys() == set(ExitCode)
    for code, text in DESCRIPTIONS.items():
        assert f"{code.value} {text}" in exit_code_help()


def test_json_output_excludes_text(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(as_json=True)
    out.show_text("text")
    out.show("a table")
    out.show_json({"µ": 1.5})
    assert capsys.readouterr().out == '{\n  "µ": 1.5\n}\n'
    assert not out.may_show_progress


def test_json_has_no_nan() -> None:
    with pytest.raises(ValueError, match="JSON"):
        as_json_text({"gap": float("nan")})


def test_a_terminal_that_lacks_a_letter_gets_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    write(sys.stdout, "5 µs\n")
    assert terminal.buffer.getvalue() == b"5 ?s\n"  # type: ignore[attr-defined]
