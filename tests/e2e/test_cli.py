"""The command as users run it: every ending, every file, and the numbers against the API."""

import csv
import json
import math
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

import perseus
from perseus.cli import main
from perseus.cli.exit_codes import DESCRIPTIONS
from perseus.profiles import EXAMPLE_BLOCKING_POWER_W

COMMAND = [sys.executable, "-m", "perseus.cli"]
SIZES = ["--microbatches", "12"]


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False, **options)


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    """Run in this process with --json; stdout must be one JSON document, stderr empty."""
    assert main([*arguments, "--json"]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    document = json.loads(captured.out)
    assert isinstance(document, dict)
    return document


@pytest.fixture(scope="module")
def frontier() -> perseus.Frontier:
    profiles = perseus.read_profiles(perseus.example_profile_path(), blocking_power_w=EXAMPLE_BLOCKING_POWER_W)
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=len(profiles.stages), num_microbatches=12)
    return perseus.solve_frontier(dag, profiles)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results") / "made" / "by it"
    assert main(["solve", "example", *SIZES, "--slowdown", "1.05", "-o", str(folder), "--quiet"]) == 0
    return folder


# -- solve ----------------------------------------------------------------------------------------------------


def test_json_says_what_the_api_says(capsys: pytest.CaptureFixture[str], frontier: perseus.Frontier) -> None:
    found = json_of(capsys, "solve", "example", *SIZES)
    plan = frontier.plan_at(frontier.min_time_s)
    assert found["min_time_s"] == frontier.min_time_s
    assert found["max_time_s"] == frontier.max_time_s
    assert found["min_energy_time_s"] == frontier.min_energy_time_s
    assert found["min_energy_j"] == frontier.energies_j.min()
    assert found["num_breakpoints"] == len(frontier.times_s)
    assert found["num_operations"] == frontier.dag.num_operations
    assert found["plan"]["time_s"] == plan.time_s
    assert found["plan"]["energy_j"] == plan.energy_j
    assert found["plan"]["gap"] == plan.gap
    assert found["plan"]["baseline_energy_j"] == plan.baseline_energy_j
    assert found["plan"]["saving"] == plan.saving == pytest.approx(1 - plan.energy_j / plan.baseline_energy_j)
    assert found["plan"]["wait_until_s"] is None
    assert found["files"] == {}


def test_files_hold_the_frontier_and_the_plan(results: Path, frontier: perseus.Frontier) -> None:
    with (results / "frontier.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["iteration_time_s"]) for row in rows] == frontier.times_s.tolist()
    assert [float(row["energy_j"]) for row in rows] == frontier.energies_j.tolist()
    plan = perseus.FrequencyPlan.load(results / "plan.json")
    expected = frontier.plan_at(1.05 * frontier.min_time_s)
    assert plan.time_s == expected.time_s <= 1.05 * frontier.min_time_s
    assert plan.energy_j == expected.energy_j
    assert plan.frequencies_mhz.tolist() == expected.frequencies_mhz.tolist()
    max_clocks = perseus.FrequencyPlan.load(results / "max_clock_plan.json")
    assert max_clocks.frequencies_mhz.min() > plan.frequencies_mhz.min()
    assert sorted(path.name for path in results.iterdir() if path.suffix in (".csv", ".json")) == [
        "frontier.csv",
        "max_clock_plan.json",
        "plan.json",
    ]


def test_existing_files_are_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text("old")
    found = json_of(capsys, "solve", "example", "--microbatches", "4", "-o", str(tmp_path))
    assert found["files"]["plan"] == str(tmp_path / "plan.json")
    assert perseus.FrequencyPlan.load(tmp_path / "plan.json").time_s == found["plan"]["time_s"]


@pytest.mark.parametrize("factor", [1.0, 1.1, 50.0])
def test_time_is_a_deadline(factor: float, capsys: pytest.CaptureFixture[str], frontier: perseus.Frontier) -> None:
    deadline_s = factor * frontier.min_time_s
    found = json_of(capsys, "solve", "example", *SIZES, "--time", repr(deadline_s))
    assert found["plan"]["time_s"] <= deadline_s
    assert found["plan"]["energy_j"] == frontier.plan_at(deadline_s).energy_j


@pytest.mark.parametrize("factor", [1.08, 40.0])
def test_a_straggler_is_waited_for(
    factor: float, capsys: pytest.CaptureFixture[str], frontier: perseus.Frontier
) -> None:
    straggler_s = factor * frontier.min_time_s
    plan = json_of(capsys, "solve", "example", *SIZES, "--straggler", repr(straggler_s))["plan"]
    assert plan["wait_until_s"] == straggler_s
    assert plan["time_s"] <= min(straggler_s, frontier.max_time_s)
    bound_j = frontier.energy_at(plan["time_s"], wait_until_s=straggler_s)
    assert bound_j * (1 - 1e-9) <= plan["energy_j"] <= bound_j * 1.02
    assert plan["baseline_energy_j"] > plan["energy_j"]


def test_max_flow_methods_agree(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (
        json_of(capsys, "solve", "example", *SIZES, "--max-flow", name) for name in ("push_relabel", "augment")
    )
    assert first["statistics"]["max_flow"] == "push_relabel"
    assert second["statistics"]["max_flow"] == "augment"
    assert first["min_energy_j"] == pytest.approx(second["min_energy_j"], rel=1e-9)


def test_blocking_power_may_differ_between_stages(capsys: pytest.CaptureFixture[str]) -> None:
    uniform = json_of(capsys, "solve", "example", *SIZES, "--blocking-power", "70")
    stages = uniform["num_stages"]
    same = ",".join(f"{stage}=70" for stage in range(stages))
    more = ",".join(f"{stage}={70 + 10 * stage}" for stage in range(stages))
    assert json_of(capsys, "solve", "example", *SIZES, "--blocking-power", same)["plan"] == uniform["plan"]
    other = json_of(capsys, "solve", "example", *SIZES, "--blocking-power", more)
    assert other["max_clocks"]["energy_j"] > uniform["max_clocks"]["energy_j"]


def test_the_table_tells_everything(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = json_of(capsys, "solve", "example", *SIZES, "--slowdown", "1.05")
    assert main(["solve", "example", *SIZES, "--slowdown", "1.05", "-o", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for label in ("shortest iteration time", "T*", "longest useful time", "plan: time", "plan: energy", "plan: saving"):
        assert label in text
    assert f"{found['min_time_s']:.4g}"[:4] in text
    assert f"{found['num_breakpoints']}" in text
    assert f"{100 * found['plan']['saving']:.1f}" in text
    assert f"wrote {tmp_path / 'plan.json'}" in text.replace("\n", " ")


def test_quiet_is_quiet_and_no_folder_means_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["solve", "example", "--microbatches", "4", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_a_profile_of_the_users_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = tmp_path / "mine.csv"
    profile.write_bytes(perseus.example_profile_path().read_bytes())
    power = ["--blocking-power", str(EXAMPLE_BLOCKING_POWER_W)]
    mine = json_of(capsys, "solve", str(profile), *SIZES, *power)
    assert mine["plan"] == json_of(capsys, "solve", "example", *SIZES)["plan"]


# -- show -----------------------------------------------------------------------------------------------------


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def group_sizes(path: Path) -> dict[str, int]:
    """Number of shapes in each named group of an SVG."""
    root = ElementTree.parse(path).getroot()
    assert root.tag.endswith("}svg")
    shapes = ("path", "use")
    return {
        group.get("id", ""): sum(child.tag.rpartition("}")[2] in shapes for child in group.iter())
        for group in root.iter()
        if group.tag.endswith("}g")
    }


def test_pictures_are_png_by_default(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = json_of(capsys, "show", str(results))["files"]
    assert files == [str(results / "frontier.png"), str(results / "timeline.png")]
    for file in files:
        width, height = png_size(Path(file))
        assert 1200 <= width <= 4000
        assert 600 <= height <= 4000


def test_svg_has_a_box_for_each_operation_and_marks_the_critical_path(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(results), "--format", "svg"]) == 0
    assert capsys.readouterr().out.split("wrote ")[1:] == [
        f"{results / 'frontier.svg'}\n",
        f"{results / 'timeline.svg'}\n",
    ]
    groups = group_sizes(results / "timeline.svg")
    for name, file in (("before", "max_clock_plan.json"), ("after", "plan.json")):
        plan = perseus.FrequencyPlan.load(results / file)
        assert groups[f"{name}-operations"] == plan.dag.num_operations
        # A path from the first operation to the last passes every stage's forward and backward once at least.
        assert 2 * plan.dag.num_ranks <= groups[f"{name}-critical-path"] <= plan.dag.num_operations
        assert groups[f"{name}-blocking"] > 0
    marks = group_sizes(results / "frontier.svg")
    assert {"frontier", "plan", "max-clocks", "t-star"} <= marks.keys()


def test_one_sheet_where_it_is_wanted(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "new" / "sheet.svg"
    assert json_of(capsys, "show", str(results), "-o", str(picture))["files"] == [str(picture)]
    assert {"frontier", "before-operations", "after-operations"} <= group_sizes(picture).keys()
    assert list(picture.parent.iterdir()) == [picture]
    without_suffix = tmp_path / "sheet"
    assert main(["show", str(results), "-o", str(without_suffix), "--format", "png", "--quiet"]) == 0
    assert png_size(without_suffix)[0] > 1200


def test_the_same_results_give_the_same_picture(results: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "1.svg", tmp_path / "2.svg"
    for picture in (first, second):
        assert main(["show", str(results), "-o", str(picture), "--quiet"]) == 0
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("microbatches", ["1", "96"])
def test_short_and_long_iterations_are_drawn(microbatches: str, tmp_path: Path) -> None:
    assert main(["solve", "example", "--microbatches", microbatches, "-o", str(tmp_path), "--quiet"]) == 0
    assert main(["show", str(tmp_path), "--format", "svg", "--quiet"]) == 0
    groups = group_sizes(tmp_path / "timeline.svg")
    assert ("after-begin-operations" in groups) == (microbatches == "96")
    plan = perseus.FrequencyPlan.load(tmp_path / "plan.json")
    assert groups["after-operations"] == plan.dag.num_operations


def test_a_straggler_is_drawn(tmp_path: Path, frontier: perseus.Frontier) -> None:
    arguments = ["solve", "example", *SIZES, "--straggler", str(1.2 * frontier.max_time_s), "-o", str(tmp_path)]
    assert main([*arguments, "--quiet"]) == 0
    assert main(["show", str(tmp_path), "--format", "svg", "--quiet"]) == 0
    # Everyone blocks at the end: at least one wait for each rank.
    plan = perseus.FrequencyPlan.load(tmp_path / "plan.json")
    assert group_sizes(tmp_path / "timeline.svg")["after-blocking"] >= plan.dag.num_ranks


# -- endings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["solve"],
        ["solve", "example", "--no-such-option"],
        ["solve", "example", "--time", "5", "--slowdown", "1.1"],
        ["solve", "example", "--slowdown", "1.1", "--straggler", "9"],
        ["solve", "example", "--slowdown", "0.99"],
        ["solve", "example", "--time", "nan"],
        ["solve", "example", "--stages", "many"],
        ["solve", "example", "--stages", "0"],
        ["solve", "example", "--schedule", "2f2b"],
        ["solve", "example", "--blocking-power", "warm"],
        ["solve", "example", "--blocking-power", "-3"],
        ["solve", "example", "--blocking-power", "0=70,0=71"],
        ["solve", "example", "--blocking-power", "x=70"],
        ["solve", "example", "--max-flow", "simplex"],
        ["solve", "mine.csv", "--microbatches", "4"],
        ["solve", "example", "-o", __file__],
        ["show"],
        ["show", "anywhere", "-o", "picture.gif"],
        ["show", "anywhere", "--format", "png", "-o", "picture.svg"],
        ["draw"],
    ],
)
def test_usage_errors_are_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "perseus: " in captured.err
    assert "Traceback" not in captured.err
    error = json_of(capsys, *arguments, code=2)["error"]
    assert error["type"] in ("UsageError", "ScheduleError")
    assert error["message"]


def test_bad_profiles_are_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("stage,instruction,frequency,time,energy\n0,forward,1000,fast,3\n")
    sizes = ["--microbatches", "4", "--blocking-power", "70"]
    for profile in (bad, tmp_path / "none.csv", tmp_path):
        error = json_of(capsys, "solve", str(profile), *sizes, code=3)["error"]
        assert error["type"] == "ProfileError"
        assert profile.name in error["message"]
    assert main(["solve", str(bad), *sizes]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("perseus: ")
    assert "Traceback" not in captured.err


def test_more_stages_than_the_profile_has_are_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert json_of(capsys, "solve", "example", "--stages", "99", code=3)["error"]["type"] == "ProfileError"


def test_bad_results_are_3(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = json_of(capsys, "show", str(tmp_path), code=3)["error"]
    assert missing["type"] == "PlanError"
    assert "frontier.csv" in missing["message"]
    for name in ("plan.json", "max_clock_plan.json", "frontier.csv"):
        (tmp_path / name).write_bytes((results / name).read_bytes())
    for name, content, told in (
        ("frontier.csv", "", "frontier.csv: line 1"),
        ("frontier.csv", "time,joule\n1,2\n", "frontier.csv: line 1"),
        ("frontier.csv", "iteration_time_s,energy_j\n1,2\n2,x\n", "frontier.csv: line 3"),
        ("frontier.csv", "iteration_time_s,energy_j\n1,2\n1,2\n", "frontier.csv"),
        ("plan.json", "{", "plan.json"),
        ("plan.json", "[1]", "plan.json"),
    ):
        (tmp_path / name).write_text(content)
        error = json_of(capsys, "show", str(tmp_path), code=3)["error"]
        assert told in error["message"]
        (tmp_path / name).write_bytes((results / name).read_bytes())


def test_a_time_too_short_is_4_and_says_the_shortest(
    capsys: pytest.CaptureFixture[str], frontier: perseus.Frontier
) -> None:
    for option in ("--time", "--straggler"):
        error = json_of(capsys, "solve", "example", *SIZES, option, "0.001", code=4)["error"]
        assert error["type"] == "InfeasibleTimeError"
        assert error["min_time_s"] == frontier.min_time_s
        assert f"{frontier.min_time_s:.6g}" in error["message"]


def test_a_solver_that_fails_is_5(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise perseus.SolveError("the magnitudes do not fit")

    monkeypatch.setattr("perseus.solve.solve_frontier", fail)
    assert json_of(capsys, "solve", "example", code=5)["error"] == {
        "type": "SolveError",
        "message": "the magnitudes do not fit",
    }


def test_a_missing_extra_is_1_and_says_what_to_install(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    error = json_of(capsys, "show", str(results), code=1)["error"]
    assert error["type"] == "MissingExtraError"
    assert "pip install 'perseus-energy[plot]'" in error["message"]


def test_a_folder_that_cannot_be_made_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["solve", "example", "--microbatches", "2", "-o", str(tmp_path / "file" / "sub")]) == 1
    captured = capsys.readouterr()
    assert str(tmp_path / "file") in captured.err
    assert "Traceback" not in captured.err


def test_a_defect_is_1_with_a_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("perseus.solve.solve_frontier", fail)
    assert main(["solve", "example", "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"error": {"type": "ZeroDivisionError", "message": "oops"}}
    assert "Traceback" in captured.err
    assert "report it" in captured.err


def write_deep_profile(path: Path, stages: int) -> None:
    """Write a profile whose stages all differ: nothing repeats, so that solving it takes a while."""
    with perseus.example_profile_path().open(newline="") as file:
        lines = [line for line in file if not line.startswith("#")]
    rows = [row for row in csv.DictReader(lines) if row["stage"] == "0"]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        for stage in range(stages):
            factor = 1 + 0.2 * abs(math.sin(stage))
            for row in rows:
                writer.writerow({**row, "stage": stage, "time": float(row["time"]) * factor})


def test_ctrl_c_ends_a_long_solve_with_130_after_a_bar_appeared(tmp_path: Path) -> None:
    profile = tmp_path / "deep.csv"
    write_deep_profile(profile, 48)
    terminal, stderr = pty.openpty()
    solving = subprocess.Popen(
        [*COMMAND, "solve", str(profile), "--microbatches", "400", "--blocking-power", "70"],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(stderr)
    try:
        seen = read_until(terminal, b"solving", timeout_s=30)
        solving.send_signal(signal.SIGINT)
        seen += read_until(terminal, b"interrupted", timeout_s=10)
        assert solving.wait(timeout=10) == 130
    finally:
        solving.kill()
        output, _ = solving.communicate()
        os.close(terminal)
    assert output == b""
    assert b"breakpoints" in seen
    assert b"Traceback" not in seen


def read_until(descriptor: int, wanted: bytes, *, timeout_s: float) -> bytes:
    seen, end_s = b"", time.monotonic() + timeout_s
    while wanted not in seen and time.monotonic() < end_s:
        if select.select([descriptor], [], [], 0.2)[0]:
            try:
                seen += os.read(descriptor, 4096)
            except OSError:  # Linux: the other side is closed
                break
    assert wanted in seen, seen
    return seen


def test_interruption_is_told_as_json_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("perseus.solve.solve_frontier", interrupt)
    assert json_of(capsys, "solve", "example", code=130)["error"]["type"] == "KeyboardInterrupt"


@pytest.mark.parametrize("arguments", [["solve", "example", "--microbatches", "4", "--json"], ["--help"]])
def test_a_reader_that_leaves_is_no_error(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    finished = subprocess.run([*COMMAND, *arguments], stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writer)
    assert finished.returncode == 0
    assert finished.stderr == b""


# -- help -----------------------------------------------------------------------------------------------------


def test_help_is_fast_because_it_imports_nothing_heavy() -> None:
    probe = (
        "import sys, perseus.cli; code = perseus.cli.main(['--help']);"
        "heavy = {'numpy', 'matplotlib', 'perseus._native'} & sys.modules.keys();"
        "sys.exit(repr(heavy) if heavy else code)"
    )
    started_s = time.monotonic()
    finished = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=False)
    assert finished.returncode == 0, finished.stderr
    assert time.monotonic() - started_s < 3  # 0.2 s; far off only if something heavy came in by another way
    text = " ".join(finished.stdout.split())
    assert "solve" in text
    assert "show" in text
    assert "130 interrupted" in text


def test_version_and_python_minus_m_perseus() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "perseus", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert finished.stdout == f"perseus {perseus.__version__}\n"
    assert json.loads(run("--version", "--json").stdout) == {"version": perseus.__version__}


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Usage: perseus" in capsys.readouterr().err
    assert json_of(capsys, code=2)["error"]["message"]


def test_json_may_stand_before_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "solve", "example", "--microbatches", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["num_microbatches"] == 2


def test_the_documentation_has_every_option_and_exit_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    for command in ("solve", "show"):
        for option in re.findall(r"--[a-z-]+", run(command, "--help").stdout):
            assert option in text or option == "--help", option
    for code, meaning in DESCRIPTIONS.items():
        assert f"| {code.value} | {meaning} |" in text
