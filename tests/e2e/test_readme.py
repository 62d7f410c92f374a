"""Everything that the README shows is run here as it stands, except the installation itself."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

import perseus
from perseus.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def perseus_commands() -> list[list[str]]:
    """Arguments of every call of perseus in a shell block, also of those from a virtual environment."""
    steps = [step for block in blocks("bash") for line in block.splitlines() for step in line.split("&&")]
    words = [shlex.split(step, comments=True) for step in steps]
    return [step[1:] for step in words if step and Path(step[0]).name == "perseus"]


def run_python(block: str) -> dict[str, object]:
    namespace: dict[str, object] = {"__name__": "__main__"}
    exec(compile(block, "README.md", "exec"), namespace)
    return namespace


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERSEUS_RECURRING_STORE", str(tmp_path / "trials.sqlite"))
    solving, recurring = blocks("python")
    run_python(solving)
    assert (tmp_path / "plan.json").is_file()
    assert (tmp_path / "freqs_pipeline.py").is_file()
    assert isinstance(run_python(recurring)["job"], perseus.recurring.Job)


def test_shell_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)  # for commands in commands
    commands = perseus_commands()
    assert len(commands) >= 5
    for command in commands:
        assert main(command) == 0, command
    assert "wrote picture.svg" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "frontier.csv",
        "frontier.png",
        "max_clock_plan.json",
        "plan.json",
        "timeline.png",
    }


def test_two_commands_do_all_the_set_up() -> None:
    installing = [block.strip() for block in blocks("bash") if "pip install" in block]
    assert len(installing) == 2
    for command, ending in zip(installing, (".venv/bin/perseus show out", ".venv/bin/pytest"), strict=True):
        assert "\n" not in command
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install '.[")
        assert command.endswith(ending)


def test_every_linked_file_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).is_file(), target
