"""The frontier's and the solver's behaviour at the edges of their interface."""

from __future__ import annotations

import csv
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import perseus
from perseus.solve import SolveProgress


@pytest.fixture(scope="module")
def profiles() -> perseus.Profiles:
    return perseus.read_profiles(perseus.example_profile_path(), blocking_power_w=75.0)


@pytest.fixture(scope="module")
def frontier(profiles: perseus.Profiles) -> perseus.Frontier:
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=4, num_microbatches=8)
    return perseus.solve_frontier(dag, profiles)


def long_pipeline() -> perseus.PipelineDag:
    """Return a pipeline that takes seconds to solve whole."""
    return perseus.PipelineDag.from_schedule("1f1b", num_stages=4, num_microbatches=4000)


def test_arrays(frontier: perseus.Frontier) -> None:
    assert frontier.times_s.dtype == frontier.energies_j.dtype == np.float64
    assert frontier.times_s.shape == frontier.energies_j.shape == (len(frontier),)
    assert (np.diff(frontier.times_s) > 0).all()
    assert frontier.min_time_s == frontier.times_s[0]
    assert frontier.max_time_s == frontier.times_s[-1]
    with pytest.raises(ValueError, match="read-only"):
        frontier.times_s[0] = 0.0
    with pytest.raises(ValueError, match="read-only"):
        frontier.energies_j[0] = 0.0
    for array in (frontier.times_s, frontier.energies_j):
        assert array.flags.c_contiguous
        assert np.isfinite(array).all()
    assert frontier.blocking_power_w == 4 * 75.0


def test_least_energy(frontier: perseus.Frontier) -> None:
    best_s = frontier.min_energy_time_s
    grid_s = np.linspace(frontier.min_time_s, 1.2 * frontier.max_time_s, 500)
    assert frontier.energy_at(best_s) == frontier.energies_j.min()
    assert min(frontier.energy_at(t) for t in grid_s) >= frontier.energy_at(best_s)


def test_energy_between_and_beyond_breakpoints(frontier: perseus.Frontier) -> None:
    for i in (0, 100, len(frontier) - 2):
        middle_s = (frontier.times_s[i] + frontier.times_s[i + 1]) / 2
        assert frontier.energy_at(frontier.times_s[i]) == pytest.approx(frontier.energies_j[i], rel=1e-14)
        middle_j = (frontier.energies_j[i] + frontier.energies_j[i + 1]) / 2
        assert frontier.energy_at(middle_s) == pytest.approx(middle_j, rel=1e-12)
    later_s = frontier.max_time_s + 2.0
    assert frontier.energy_at(later_s) == pytest.approx(frontier.energies_j[-1] + 2.0 * 4 * 75.0, rel=1e-14)
    assert np.array_equal(frontier.durations_at(later_s), frontier.durations_at(frontier.max_time_s))
    assert frontier.plan_at(later_s).time_s <= frontier.max_time_s


def test_waiting_for_a_straggler(frontier: perseus.Frontier) -> None:
    time_s, until_s = frontier.min_time_s, frontier.min_time_s + 3.0
    alone_j = frontier.energy_at(time_s)
    assert frontier.energy_at(time_s, wait_until_s=until_s) == pytest.approx(alone_j + 3.0 * 300.0, rel=1e-14)
    assert frontier.energy_at(time_s, wait_until_s=time_s) == alone_j
    with pytest.raises(perseus.PlanError, match="straggler ends no earlier"):
        frontier.energy_at(until_s, wait_until_s=time_s)
    plan = frontier.plan_at(until_s, wait_until_s=until_s)
    assert plan.wait_until_s == until_s
    assert plan.energy_j < frontier.plan_at(time_s, wait_until_s=until_s).energy_j


@pytest.mark.parametrize("ask", ["energy_at", "durations_at", "plan_at"])
def test_infeasible_time(frontier: perseus.Frontier, ask: str) -> None:
    for time_s in (0.999 * frontier.min_time_s, 0.0, -1.0):
        with pytest.raises(perseus.InfeasibleTimeError, match="below the shortest possible") as caught:
            getattr(frontier, ask)(time_s)
        assert caught.value.min_time_s == frontier.min_time_s
        assert f"{frontier.min_time_s:.9g}" in str(caught.value)


@pytest.mark.parametrize("ask", ["energy_at", "durations_at", "plan_at"])
def test_times_that_are_no_numbers(frontier: perseus.Frontier, ask: str) -> None:
    for time_s in (float("nan"), float("inf"), -float("inf"), "soon", "1.0", None, [1.0, 2.0]):
        with pytest.raises(perseus.PlanError, match="is not a finite number of seconds"):
            getattr(frontier, ask)(time_s)


def test_rounding_of_the_shortest_time_is_forgiven(frontier: perseus.Frontier) -> None:
    assert frontier.energy_at(frontier.min_time_s * (1 - 1e-15)) == frontier.energy_at(frontier.min_time_s)


def test_csv(frontier: perseus.Frontier, tmp_path: Path) -> None:
    frontier.to_csv(tmp_path / "frontier.csv")
    with (tmp_path / "frontier.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["iteration_time_s"]) for row in rows] == frontier.times_s.tolist()
    assert [float(row["energy_j"]) for row in rows] == frontier.energies_j.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["frontier.csv"]
    with pytest.raises(OSError, match="No such file"):
        frontier.to_csv(tmp_path / "missing" / "frontier.csv")


def test_repr_and_statistics(frontier: perseus.Frontier) -> None:
    assert repr(frontier).startswith(f"Frontier({len(frontier)} breakpoints, ")
    assert frontier.statistics["certified"]
    assert frontier.statistics["phases"] == len(frontier) - 1
    with pytest.raises(TypeError):
        frontier.statistics["phases"] = 0  # type: ignore[index]


def test_solving_twice_gives_the_same_bits(profiles: perseus.Profiles, frontier: perseus.Frontier) -> None:
    again = perseus.solve_frontier(frontier.dag, profiles)
    assert np.array_equal(again.times_s, frontier.times_s)
    assert np.array_equal(again.energies_j, frontier.energies_j)
    middle_s = 0.5 * (frontier.min_time_s + frontier.max_time_s)
    assert np.array_equal(again.durations_at(middle_s), frontier.durations_at(middle_s))


def test_without_certificates(profiles: perseus.Profiles, frontier: perseus.Frontier) -> None:
    quick = perseus.solve_frontier(frontier.dag, profiles, certify=False)
    assert not quick.statistics["certified"]
    assert np.array_equal(quick.energies_j, frontier.energies_j)


def test_unknown_max_flow(profiles: perseus.Profiles, frontier: perseus.Frontier) -> None:
    with pytest.raises(perseus.SolveError, match="'edmonds' is unknown; choose one of 'push_relabel', 'augment'"):
        perseus.solve_frontier(frontier.dag, profiles, max_flow="edmonds")  # type: ignore[arg-type]


def test_profile_that_lacks_a_stage(profiles: perseus.Profiles) -> None:
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=5, num_microbatches=5)
    with pytest.raises(perseus.ProfileError, match="Stage 4"):
        perseus.solve_frontier(dag, profiles)


def test_profile_that_lacks_a_kind(profiles: perseus.Profiles) -> None:
    dag = perseus.PipelineDag.from_orders([["F0", "I0", "W0"]])
    with pytest.raises(perseus.ProfileError, match="input_grad"):
        perseus.solve_frontier(dag, profiles)


def test_stages_of_one_rank_need_one_blocking_power() -> None:
    columns = {"stage": [0, 1], "kind": ["F", "F"], "frequency": [1, 1], "time": [1, 1], "energy": [9, 9]}
    profiles = perseus.read_profiles(columns, blocking_power_w={0: 70.0, 1: 80.0})
    dag = perseus.PipelineDag.from_orders([["0F0", "1F0"]])
    with pytest.raises(perseus.ProfileError, match="blocking power"):
        perseus.solve_frontier(dag, profiles)


def test_progress(profiles: perseus.Profiles) -> None:
    seen: list[SolveProgress] = []
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=4, num_microbatches=600)
    perseus.solve_frontier(dag, profiles, progress=seen.append, splice=False)
    assert seen
    assert all(0.0 <= p.fraction <= 1.0 and p.shortest_s <= p.time_s <= p.longest_s for p in seen)
    assert [p.phases for p in seen] == sorted(p.phases for p in seen)


def test_an_exception_from_progress_stops_the_solve(profiles: perseus.Profiles) -> None:
    def refuse(progress: SolveProgress) -> None:
        raise RuntimeError(f"enough after {progress.phases}")

    with pytest.raises(RuntimeError, match="enough after"):
        perseus.solve_frontier(long_pipeline(), profiles, progress=refuse, splice=False)


def test_no_progress_of_a_solve_that_takes_no_time(profiles: perseus.Profiles) -> None:
    """A callback that is never due is never called, and changes nothing."""
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=1, num_microbatches=1)
    assert len(perseus.solve_frontier(dag, profiles, progress=lambda progress: None)) > 1


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_a_signal_handler_stops_the_solve(profiles: perseus.Profiles) -> None:
    """Any exception of a signal handler ends the solve, not only that of Ctrl-C, and soon."""

    def refuse(signum: int, frame: object) -> None:
        raise TimeoutError("enough")

    before = signal.signal(signal.SIGALRM, refuse)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        started_s = time.monotonic()
        with pytest.raises(TimeoutError, match="enough"):
            perseus.solve_frontier(long_pipeline(), profiles, splice=False)
        assert time.monotonic() - started_s < 3.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_a_solve_after_a_stopped_one_is_unharmed(profiles: perseus.Profiles, frontier: perseus.Frontier) -> None:
    def refuse(progress: SolveProgress) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        perseus.solve_frontier(long_pipeline(), profiles, progress=refuse, splice=False)
    again = perseus.solve_frontier(frontier.dag, profiles)
    assert np.array_equal(again.energies_j, frontier.energies_j)


def test_ctrl_c_stops_the_solve(profiles: perseus.Profiles) -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        perseus.solve_frontier(long_pipeline(), profiles, splice=False)
    timer.join()


def test_other_threads_run_during_a_solve(profiles: perseus.Profiles) -> None:
    """Python code in the progress callback sees another thread's counter move while the native code runs."""
    stop, ticks, seen = threading.Event(), [0], [0]

    def tick() -> None:
        while not stop.wait(0.001):
            ticks[0] += 1

    def watch(progress: SolveProgress) -> None:
        seen.append(ticks[0])
        if len(seen) > 4:
            raise StopIteration

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        with pytest.raises(StopIteration):
            perseus.solve_frontier(long_pipeline(), profiles, progress=watch, splice=False)
    finally:
        stop.set()
        thread.join()
    assert seen[-1] > seen[1]


def test_solve_at(profiles: perseus.Profiles, frontier: perseus.Frontier) -> None:
    optimum = perseus.solve_at(frontier.dag, profiles, frontier.min_energy_time_s)
    assert optimum.energy_j == pytest.approx(frontier.energies_j.min(), rel=1e-13)
    assert optimum.durations_s.shape == (frontier.dag.num_operations,)
    with pytest.raises(perseus.InfeasibleTimeError):
        perseus.solve_at(frontier.dag, profiles, 0.5 * frontier.min_time_s)
    with pytest.raises(perseus.PlanError, match="not a finite number"):
        perseus.solve_at(frontier.dag, profiles, float("nan"))
