"""The public surface and the one-way order of imports are frozen here."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import perseus

PACKAGE = Path(perseus.__file__).parent

# Left to right: a module imports only what stands left of it (docs and DESIGN's data flow).
METHOD = (
    "errors",
    "replacement",
    "measurement_file",
    "measurement_table",
    "measured_points",
    "curves",
    "profiles",
    "orders",
    "dag",
    "steady_state",
    "plan",
    "frontier",
    "solve",
    "baselines",
    "report",
    "simulation",
    "comparison",
    "cli",
)


def test_exported_names() -> None:
    assert perseus.__all__ == [
        "__version__",
        "Curve",
        "DagError",
        "FrequencyPlan",
        "Frontier",
        "InfeasibleTimeError",
        "MissingExtraError",
        "Operation",
        "OperationProfile",
        "Optimum",
        "PerseusError",
        "PipelineDag",
        "PlanError",
        "PlanSeries",
        "ProfileError",
        "Profiles",
        "ScheduleError",
        "Simulation",
        "SolveError",
        "example_profile_path",
        "max_clock_plan",
        "read_profiles",
        "simulate",
        "solve_at",
        "solve_frontier",
    ]
    for name in perseus.__all__:
        assert getattr(perseus, name) is not None
        assert name in dir(perseus)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'solve_backwards'"):
        _ = perseus.solve_backwards  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (perseus.read_profiles, ["source", "blocking_power_w"]),
        (perseus.PipelineDag.from_schedule, ["name", "num_stages", "num_microbatches", "num_chunks"]),
        (perseus.PipelineDag.from_orders, ["orders", "edges"]),
        (perseus.PipelineDag.from_networkx, ["graph"]),
        (perseus.solve_frontier, ["dag", "profiles"]),
        (perseus.Frontier.energy_at, ["self", "time_s", "wait_until_s"]),
        (perseus.Frontier.durations_at, ["self", "time_s"]),
        (perseus.Frontier.plan_at, ["self", "time_s"]),
        (perseus.FrequencyPlan.save, ["self", "path"]),
        (perseus.FrequencyPlan.load, ["path"]),
        (perseus.FrequencyPlan.to_zeus, ["self", "path"]),
        (perseus.FrequencyPlan.by_stage, ["self"]),
    ],
)
def test_leading_parameters(function: object, parameters: list[str]) -> None:
    names = list(inspect.signature(function).parameters)  # type: ignore[arg-type]
    assert names[: len(parameters)] == parameters


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (
            perseus.Frontier,
            [
                "min_time_s",
                "max_time_s",
                "min_energy_time_s",
                "energy_at",
                "durations_at",
                "plan_at",
                "plans",
                "knee",
                "to_csv",
            ],
        ),
        (perseus.FrequencyPlan, ["gap", "frequencies_mhz", "by_stage", "save", "load", "to_zeus"]),
        (perseus.PipelineDag, ["operations", "from_schedule", "from_orders", "from_networkx"]),
    ],
)
def test_members(owner: type, names: list[str]) -> None:
    for name in names:
        assert hasattr(owner, name), name


def imported_modules(file: Path) -> set[str]:
    """Top parts of perseus that a file imports at run time (not under TYPE_CHECKING)."""
    found: set[str] = set()
    pending: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("perseus."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.ImportFrom) and node.module == "perseus":
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update(alias.name.split(".")[1] for alias in node.names if alias.name.startswith("perseus."))
        pending.extend(ast.iter_child_nodes(node))
    return found


def files_of(part: str) -> list[Path]:
    single = PACKAGE / f"{part}.py"
    return [single] if single.exists() else sorted((PACKAGE / part).rglob("*.py"))


@pytest.mark.parametrize("part", METHOD)
def test_imports_go_one_way(part: str) -> None:
    files = files_of(part)
    assert files, part
    later = set(METHOD[METHOD.index(part) + 1 :])
    for file in files:
        assert not imported_modules(file) & later, file


def test_only_the_named_modules_import_what_is_heavy() -> None:
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        part = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part not in {"solve", "frontier", "plan"}:
            assert "_native" not in imported_modules(file), file
        if part != "device":
            assert "import pynvml" not in text, file
        if part != "integrations":
            assert "import torch" not in text, file


def test_importing_perseus_is_light() -> None:
    code = "import sys, perseus; print(sorted(m for m in ('numpy', 'matplotlib', 'rich', 'torch') if m in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
