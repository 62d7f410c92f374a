"""All methods side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import perseus
from perseus.cli.app import run
from perseus.comparison import OURS, compare
from perseus.errors import PlanError


@pytest.fixture(scope="module")
def frontier() -> perseus.Frontier:
    profiles = perseus.read_profiles(perseus.example_profile_path(), blocking_power_w=75.0)
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=4, num_microbatches=6)
    return perseus.solve_frontier(dag, profiles)


def test_ours_saves_most_within_the_same_time(frontier: perseus.Frontier) -> None:
    comparison = compare(frontier, slowdowns=(1.1, 1.3))
    assert comparison.slowdowns == (None, 1.1, 1.3)
    assert comparison.methods[-1] == OURS
    until_s = {s: (s or 1.0) * perseus.max_clock_plan(frontier.dag, frontier.profiles).time_s for s in (None, 1.1, 1.3)}
    for compared in comparison.plans:
        ours = comparison.of(OURS, compared.slowdown)
        assert ours is not None
        assert compared.plan.gap >= 0.0
        if compared.plan.time_s <= until_s[compared.slowdown] * (1.0 + 1e-9):
            assert ours.saving >= compared.saving
    highest = comparison.of("highest clocks", 1.3)
    assert highest is not None
    assert highest.saving == 0.0
    assert highest.plan.wait_until_s == pytest.approx(until_s[1.3])
    assert comparison.of("ZeusPerStage", None) is None  # it cannot keep the shortest time
    with pytest.raises(PlanError, match=r"slowdown 0\.9 is below 1"):
        compare(frontier, slowdowns=(0.9,))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "plot.svg"
    arguments = ["compare", "example", "--microbatches", "4", "--slowdowns", "1.2", "--plot", str(plot)]
    assert run(arguments) == 0
    told = capsys.readouterr().out
    for name in ("highest clocks", "ZeusGlobal", "ZeusPerStage", "EnvPipe", "Perseus", "\u00d71.2"):
        assert name in told
    assert "ZeusPerStage" in plot.read_text() or plot.stat().st_size > 1000
    assert run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["num_microbatches"] == 4
    assert {plan["straggler_slowdown"] for plan in document["plans"]} == {None, 1.2}
    assert all(plan["gap"] >= 0.0 for plan in document["plans"])
    assert run(["compare", "example", "--slowdowns", "0.5"]) == 2
    assert "finite factors of at least 1" in capsys.readouterr().err
    assert run(["compare", "example", "--plot", "picture.pdf"]) == 2
