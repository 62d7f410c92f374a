"""Plans by hand-made examples, their files, and every error."""

from __future__ import annotations

import ast
import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import perseus
from perseus.errors import InfeasibleTimeError, PlanError, ProfileError
from perseus.plan import make_plan
from perseus.plan.blocking import rank_powers_w

ARRAYS = ("start_times_s", "durations_s", "energies_j", "blocking_power_w")
NUMBERS = ("time_s", "energy_j", "lower_bound_j", "baseline_energy_j", "deadline_s", "wait_until_s")


def two_clocks(**columns: list[Any]) -> perseus.Profiles:
    """Forward 1 or 2 s, backward 2 or 4 s; the slower clock saves 10 or 18 J of effective energy."""
    data: dict[str, list[Any]] = {
        "stage": [0, 0, 0, 0, 1, 1, 1, 1],
        "instruction": ["forward", "forward", "backward", "backward"] * 2,
        "frequency": [1400, 700] * 4,
        "time": [1.0, 2.0, 2.0, 4.0] * 2,
        "energy": [40.0, 40.0, 80.0, 82.0] * 2,
    }
    return perseus.read_profiles({**data, **columns}, blocking_power_w=10.0)


def small() -> tuple[perseus.PipelineDag, perseus.Profiles, perseus.Frontier]:
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=2, num_microbatches=3)
    profiles = two_clocks()
    return dag, profiles, perseus.solve_frontier(dag, profiles)


@pytest.fixture
def plan() -> perseus.FrequencyPlan:
    return small()[2].plan_at(14.0)


# -- what a plan holds -------------------------------------------------------------------------------------


def test_the_shortest_plan_slows_only_what_has_slack() -> None:
    dag, _, frontier = small()
    plan = frontier.plan_at(frontier.min_time_s)
    assert frontier.min_time_s == plan.time_s == 12.0
    fast = {
        (o.stage, o.kind[0], o.microbatch)
        for o, f in zip(dag.operations, plan.frequencies_mhz, strict=True)
        if f == 1400
    }
    assert {(0, "f", 0), (1, "f", 0), (1, "b", 2), (0, "b", 2)} <= fast
    assert_array_equal(plan.start_times_s, dag.earliest_starts(plan.durations_s))


def test_energies_add_up(plan: perseus.FrequencyPlan) -> None:
    busy_s = sum(plan.durations_s)
    assert plan.energy_j == pytest.approx(sum(plan.energies_j) + 10.0 * (2 * plan.time_s - busy_s))
    assert plan.baseline_energy_j == pytest.approx(6 * 120.0 + 10.0 * (2 * plan.time_s - 18.0))
    assert plan.gap == pytest.approx((plan.energy_j - plan.lower_bound_j) / plan.lower_bound_j)
    assert plan.saving == pytest.approx(1.0 - plan.energy_j / plan.baseline_energy_j)
    assert 0.0 <= plan.gap < 0.1
    assert plan.saving > 0.0


def test_the_bound_is_the_frontier_at_the_plans_own_time() -> None:
    frontier = small()[2]
    plan = frontier.plan_at(12.7)
    assert plan.deadline_s == 12.7
    assert plan.time_s < 12.7
    assert plan.lower_bound_j == pytest.approx(frontier.energy_at(plan.time_s))


def test_beyond_the_longest_time_everything_runs_at_its_most_efficient() -> None:
    plan = small()[2].plan_at(1e6)
    assert plan.time_s == 24.0
    assert set(plan.frequencies_mhz) == {700.0}
    assert plan.gap == pytest.approx(0.0, abs=1e-12)


def test_a_straggler_adds_blocking_until_it_ends() -> None:
    _, _, frontier = small()
    alone, waiting = frontier.plan_at(14.0), frontier.plan_at(14.0, wait_until_s=20.0)
    assert waiting.time_s == alone.time_s
    assert waiting.wait_until_s == 20.0
    more_j = 2 * 10.0 * (20.0 - alone.time_s)
    for name in ("energy_j", "lower_bound_j", "baseline_energy_j"):
        assert getattr(waiting, name) == pytest.approx(getattr(alone, name) + more_j)


def test_highest_clocks() -> None:
    dag, profiles, frontier = small()
    plan = perseus.max_clock_plan(dag, profiles)
    assert set(plan.frequencies_mhz) == {1400.0}
    assert plan.time_s == plan.deadline_s == 12.0
    assert plan.energy_j == plan.baseline_energy_j == pytest.approx(6 * 120.0 + 10.0 * (2 * 12.0 - 18.0))
    assert math.isnan(plan.lower_bound_j)
    assert math.isnan(plan.gap)
    assert "no bound" in repr(plan)
    bounded = perseus.max_clock_plan(dag, profiles, wait_until_s=15.0, lower_bound=frontier.energy_at)
    assert bounded.energy_j == pytest.approx(plan.energy_j + 2 * 10.0 * 3.0)
    assert 0.0 < bounded.gap < plan.energy_j


def test_the_highest_clock_may_be_the_slower_one() -> None:
    dag, _, _ = small()
    plan = perseus.max_clock_plan(dag, two_clocks(frequency=[700, 1400] * 4))
    assert plan.time_s == 24.0
    frontier = perseus.solve_frontier(dag, two_clocks(frequency=[700, 1400] * 4))
    # A baseline that takes longer than the plan counts until its own end.
    assert frontier.plan_at(12.0).baseline_energy_j == pytest.approx(plan.energy_j)


def test_every_knob_is_carried_and_fixed_operations_have_none() -> None:
    profiles = two_clocks(mode=["a", "b"] * 4, power_limit=[400.0, 300.0] * 4)
    dag = perseus.PipelineDag.from_orders(
        ["load F0 B0 sync", "F0 B0 sync"], fixed_times={"load": (0.5, 7.0), "sync": (0.0, 0.0)}
    )
    plan = perseus.solve_frontier(dag, profiles).plan_at(100.0)
    kinds = [operation.kind for operation in dag.operations]
    assert kinds == ["load", "forward", "backward", "sync", "forward", "backward", "sync"]
    assert list(plan.knobs) == ["frequency", "mode", "power_limit"]
    assert plan.knobs["mode"].tolist() == ["", "b", "b", "", "b", "b", ""]
    assert_array_equal(plan.knobs["power_limit"], [np.nan, 300.0, 300.0, np.nan, 300.0, 300.0, np.nan])
    assert plan.durations_s[0] == 0.5
    assert plan.energies_j[0] == 7.0
    first, second = plan.by_stage()[0][:2]
    assert first.knobs == {}
    assert second.knobs == {"frequency": 700.0, "mode": "b", "power_limit": 300.0}


def test_by_stage_is_in_program_order(plan: perseus.FrequencyPlan) -> None:
    stages = plan.by_stage()
    assert list(stages) == [0, 1]
    order = [f"{row.operation.kind[0]}{row.operation.microbatch}" for row in stages[0]]
    assert order == ["f0", "f1", "b0", "f2", "b1", "b2"]
    ends = [row.start_time_s + row.duration_s for row in stages[1]]
    assert all(end <= row.start_time_s for end, row in zip(ends, stages[1][1:], strict=False))
    assert sum(row.energy_j for rows in stages.values() for row in rows) == pytest.approx(plan.energies_j.sum())


def test_a_graph_is_put_into_program_order() -> None:
    networkx = pytest.importorskip("networkx")
    graph = networkx.DiGraph()
    graph.add_node("late", stage=0, kind="backward", microbatch=0)
    graph.add_node("early", stage=0, kind="forward", microbatch=0)
    graph.add_edge("early", "late", latency_s=0.25)
    dag = perseus.PipelineDag.from_networkx(graph)
    plan = perseus.solve_frontier(dag, two_clocks()).plan_at(3.25)
    assert [row.operation.kind for row in plan.by_stage()[0]] == ["forward", "backward"]
    assert plan.start_times_s.tolist() == [1.25, 0.0]
    assert plan.time_s == 3.25


def test_plans_are_immutable_values(plan: perseus.FrequencyPlan) -> None:
    for name in ARRAYS:
        with pytest.raises(ValueError, match="read-only"):
            getattr(plan, name)[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        plan.frequencies_mhz[0] = 1.0
    with pytest.raises(AttributeError):
        plan.time_s = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        plan.knobs["frequency"] = plan.durations_s  # type: ignore[index]
    check_equal(pickle.loads(pickle.dumps(plan)), plan)


def test_making_a_plan_twice_gives_the_same(plan: perseus.FrequencyPlan) -> None:
    check_equal(small()[2].plan_at(14.0), plan)


# -- make_plan ---------------------------------------------------------------------------------------------


def test_durations_that_miss_the_deadline_are_not_used() -> None:
    dag, profiles, frontier = small()
    plan = make_plan(dag, profiles, np.full(dag.num_operations, 4.0), 13.0, frontier.energy_at)
    assert plan.time_s <= 13.0
    assert plan.energy_j == pytest.approx(frontier.plan_at(13.0).energy_j, rel=0.05)


def test_a_bound_above_the_plan_shows() -> None:
    dag, profiles, frontier = small()
    plan = make_plan(dag, profiles, frontier.durations_at(12.0), 12.0, lambda _: 1e4)
    assert plan.lower_bound_j == 1e4
    assert plan.gap < 0.0


def test_a_deadline_below_the_shortest_time_gives_that_time() -> None:
    dag, profiles, frontier = small()
    with pytest.raises(InfeasibleTimeError, match=r"deadline is 11\.9 s.*take 12 s") as caught:
        make_plan(dag, profiles, frontier.durations_at(12.0), 11.9, frontier.energy_at)
    assert caught.value.min_time_s == 12.0
    with pytest.raises(InfeasibleTimeError) as caught:
        frontier.plan_at(11.9)
    assert caught.value.min_time_s == 12.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"planned_durations_s": np.ones(3)}, r"shape \(3,\); it must be \(12,\)"),
        ({"planned_durations_s": np.full(12, np.nan)}, r"planned_durations_s\[0\] is nan"),
        ({"planned_durations_s": np.full(12, -1.0)}, r"planned_durations_s\[0\] is -1"),
        ({"deadline_s": math.inf}, "deadline_s is inf; it must be a finite number"),
        ({"deadline_s": -1.0}, r"deadline_s is -1\.0"),
        ({"wait_until_s": math.nan}, "wait_until_s is nan"),
        ({"wait_until_s": 11.0}, "wait_until_s is 11, but the plan takes 12 s"),
    ],
)
def test_arguments_that_are_refused(change: dict[str, Any], message: str) -> None:
    dag, profiles, frontier = small()
    arguments = {"planned_durations_s": np.ones(12), "deadline_s": 12.0, "wait_until_s": None, **change}
    with pytest.raises(PlanError, match=message):
        make_plan(dag, profiles, lower_bound=frontier.energy_at, **arguments)


def test_what_the_profile_lacks_is_named() -> None:
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=3, num_microbatches=2)
    with pytest.raises(ProfileError, match="stage 2"):
        perseus.max_clock_plan(dag, two_clocks())
    wide = perseus.PipelineDag.from_orders([[("forward", 0, 0), ("optimizer", 0)]], fixed_times={"forward": (1, 1)})
    with pytest.raises(ProfileError, match="optimizer"):
        perseus.max_clock_plan(wide, two_clocks())


def test_stages_of_one_rank_share_their_blocking_power() -> None:
    data = {"stage": [0, 1], "instruction": ["forward"] * 2, "frequency": [1, 1], "time": [1, 1], "energy": [30, 30]}
    dag = perseus.PipelineDag.from_orders([[("forward", 0, 0), ("forward", 1, 0)]])
    profiles = perseus.read_profiles(data, blocking_power_w={0: 5.0, 1: 6.0})
    with pytest.raises(ProfileError, match="rank 0 holds stages of different blocking power: 5 W for stage 0, 6 W"):
        rank_powers_w(dag, profiles)
    assert rank_powers_w(dag, perseus.read_profiles(data, blocking_power_w=5.0)).tolist() == [5.0]


def test_a_profile_without_clocks() -> None:
    data = {"stage": [0, 0], "instruction": ["forward"] * 2, "mode": ["a", "b"], "time": [2, 1], "energy": [9.0, 20.0]}
    dag = perseus.PipelineDag.from_orders(["F0"])
    profiles = perseus.read_profiles(data, blocking_power_w=1.0)
    plan = perseus.max_clock_plan(dag, profiles)
    assert plan.knobs["mode"].tolist() == ["b"]
    with pytest.raises(PlanError, match="no knob 'frequency', only mode"):
        _ = plan.frequencies_mhz
    with pytest.raises(PlanError, match="no knob 'frequency'"):
        plan.to_zeus("freqs_pipeline.py")


# -- files -------------------------------------------------------------------------------------------------


def check_equal(one: perseus.FrequencyPlan, other: perseus.FrequencyPlan) -> None:
    assert one.dag == other.dag
    for name in NUMBERS:
        assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ARRAYS:
        assert_array_equal(getattr(one, name), getattr(other, name))
        assert getattr(one, name).dtype == getattr(other, name).dtype
    assert list(one.knobs) == list(other.knobs)
    for name, values in one.knobs.items():
        assert values.dtype == other.knobs[name].dtype
        assert_array_equal(values, other.knobs[name])


def test_a_plan_reads_back_to_the_last_bit(plan: perseus.FrequencyPlan, tmp_path: Path) -> None:
    plan.save(tmp_path / "plan.json")
    check_equal(perseus.FrequencyPlan.load(tmp_path / "plan.json"), plan)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_text_knobs_stragglers_and_missing_bounds_read_back(tmp_path: Path) -> None:
    profiles = two_clocks(mode=["a", 'ä"\n'] * 4)
    dag = perseus.PipelineDag.from_orders(["load F0 B0", "F0 B0"], fixed_times={"load": (1 / 3, 0.1)})
    for plan in (
        perseus.max_clock_plan(dag, profiles),
        perseus.solve_frontier(dag, profiles).plan_at(9.0, wait_until_s=1e9 / 7),
    ):
        plan.save(tmp_path / "plan.json")
        check_equal(perseus.FrequencyPlan.load(tmp_path / "plan.json"), plan)


def test_a_failed_save_leaves_the_old_file(plan: perseus.FrequencyPlan, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        plan.save(tmp_path / "missing" / "plan.json")
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        plan.save(tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    with pytest.raises(FileNotFoundError):
        perseus.FrequencyPlan.load(tmp_path / "plan.json")


def test_every_cut_is_noticed(plan: perseus.FrequencyPlan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan.save(path)
    whole = path.read_bytes()
    for length in (*range(0, len(whole) - 3, 97), len(whole) - 3):
        path.write_bytes(whole[:length])
        with pytest.raises(PlanError, match=r"plan\.json: not a whole JSON file"):
            perseus.FrequencyPlan.load(path)


Data = dict[str, Any]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="x"), "no frequency plan: its format is not 'perseus-frequency-plan'"),
        (lambda d: d.update(version=2), "the version is 2, this release reads 1; use the release that wrote it"),
        (lambda d: d.update(version=True), "the version is True"),
        (lambda d: d.pop("knobs"), "the plan lacks knobs"),
        (lambda d: d.update(extra=1), "the plan has the unknown extra"),
        (lambda d: d.update(time_s="1"), "time_s is '1'; it must be a finite number"),
        (lambda d: d.update(time_s=True), "time_s is True"),
        (lambda d: d.update(time_s=10**400), "time_s is 1000"),
        (lambda d: d.update(lower_bound_j=[]), r"lower_bound_j is \[\]"),
        (lambda d: d.update(wait_until_s="late"), "wait_until_s is 'late'"),
        (lambda d: d.update(energy_j=d["energy_j"] + 1), "energy_j is .*, but its operations and blocking sum to"),
        (lambda d: d["durations_s"].pop(), "durations_s holds 11 values where a list of 12 belongs"),
        (lambda d: d.update(energies_j=3), "energies_j holds a int where a list of 12 belongs"),
        (lambda d: d["start_times_s"].__setitem__(3, None), r"start_times_s\[3\] is None"),
        (lambda d: d["start_times_s"].__setitem__(3, -1), r"start_times_s\[3\] is -1\.0; it must be at least 0"),
        (lambda d: d["blocking_power_w"].append(1), "blocking_power_w holds 3 values where a list of 2 belongs"),
        (lambda d: d.update(knobs=[]), "knobs is of type list"),
        (lambda d: d["knobs"].update(frequency=[1]), r"knobs\['frequency'\] holds 1 values"),
        (lambda d: d["knobs"]["frequency"].__setitem__(0, "x"), r"knobs\['frequency'\] mixes text with"),
        (lambda d: d["knobs"]["frequency"].__setitem__(0, [1]), r"knobs\['frequency'\]\[0\] is \[1\]"),
        (lambda d: d.update(dag=None), "dag is of type NoneType"),
        (lambda d: d["dag"].update(schedule="none"), "its pipeline is not valid: .*none"),
        (lambda d: d["dag"].update(version=9), "its pipeline is not valid: the version is 9"),
        (lambda d: d.update(time_s=math.nan), "NaN is no JSON number"),
    ],
)
def test_changed_files_are_refused(
    plan: perseus.FrequencyPlan, tmp_path: Path, change: Callable[[Data], object], message: str
) -> None:
    path = tmp_path / "plan.json"
    plan.save(path)
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(PlanError, match=message):
        perseus.FrequencyPlan.load(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b"__import__('os')"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(PlanError, match=r"plan\.json: (not a whole JSON file|no frequency plan)"):
        perseus.FrequencyPlan.load(path)


def test_the_solution_file_for_zeus(plan: perseus.FrequencyPlan, tmp_path: Path) -> None:
    path = tmp_path / "freqs_pipeline_00000.py"
    plan.to_zeus(path)
    text = path.read_text(encoding="utf-8")
    ranks = ast.literal_eval(text)
    clocks = iter(plan.frequencies_mhz)
    expected = [[(o.kind, int(next(clocks))) for o in plan.dag.operations if o.rank == rank] for rank in range(2)]
    assert ranks == expected
    assert all(type(clock) is int for rank in ranks for _, clock in rank)
    assert isinstance(ast.parse(text, mode="eval").body, ast.List)


def test_zeus_gets_no_fixed_operations_and_only_whole_clocks(tmp_path: Path) -> None:
    dag = perseus.PipelineDag.from_orders(["load F0 B0", "F0 B0"], fixed_times={"load": (0.5, 1.0)})
    path = tmp_path / "freqs.py"
    perseus.max_clock_plan(dag, two_clocks()).to_zeus(path)
    assert ast.literal_eval(path.read_text()) == [[("forward", 1400), ("backward", 1400)]] * 2
    plan = perseus.max_clock_plan(dag, two_clocks(frequency=[1400.5, 700] * 4))
    with pytest.raises(PlanError, match=r"operation 1 runs at 1400\.5 MHz; Zeus sets whole numbers"):
        plan.to_zeus(path)
    with pytest.raises(PlanError, match=r"names that end in \.py"):
        plan.to_zeus(tmp_path / "freqs.json")


def test_a_plan_file_is_read_without_the_native_module(plan: perseus.FrequencyPlan, tmp_path: Path) -> None:
    import subprocess
    import sys

    plan.save(tmp_path / "plan.json")
    code = (
        "import sys; sys.modules['perseus._native'] = None\n"
        "import perseus; print(perseus.FrequencyPlan.load(sys.argv[1]).time_s)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "plan.json")], capture_output=True, text=True, check=True
    )
    assert float(run.stdout) == plan.time_s


# -- how long the search may take --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def larger() -> perseus.Frontier:
    profiles = perseus.read_profiles(perseus.example_profile_path(), blocking_power_w=75.0)
    return perseus.solve_frontier(perseus.PipelineDag.from_schedule("1f1b", num_stages=4, num_microbatches=8), profiles)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_more_effort_costs_no_energy(larger: perseus.Frontier, share: float) -> None:
    deadline_s = larger.min_time_s + share * (larger.max_time_s - larger.min_time_s)
    fast, hurried, best = (
        larger.plan_at(deadline_s, effort="fast"),
        larger.plan_at(deadline_s, time_limit_s=0.0),
        larger.plan_at(deadline_s),
    )
    power_w = float(best.blocking_power_w.sum())
    energies_j = [plan.energy_j + power_w * (deadline_s - plan.time_s) for plan in (fast, hurried, best)]
    assert max(plan.time_s for plan in (fast, hurried, best)) <= deadline_s
    assert energies_j[2] <= min(energies_j) * (1.0 + 1e-12)
    assert 0.0 <= best.gap < 0.004


def test_equal_inputs_give_equal_plans(larger: perseus.Frontier) -> None:
    again = perseus.solve_frontier(larger.dag, larger.profiles)
    for deadline_s in (1.2 * larger.min_time_s, 1.1 * larger.min_time_s):  # in another order than below
        again.plan_at(deadline_s)
    for deadline_s in (1.1 * larger.min_time_s, 1.2 * larger.min_time_s):
        one, other = larger.plan_at(deadline_s), again.plan_at(deadline_s)
        assert_array_equal(one.frequencies_mhz, other.frequencies_mhz)


def test_unknown_effort(larger: perseus.Frontier) -> None:
    with pytest.raises(PlanError, match="effort='slow' is unknown"):
        larger.plan_at(larger.max_time_s, effort="slow")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="time_limit_s"):
        larger.plan_at(larger.max_time_s, time_limit_s=math.nan)
