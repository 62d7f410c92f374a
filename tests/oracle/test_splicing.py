"""Frontiers spliced from a small pipeline against those of the whole pipeline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perseus
from perseus.steady_state import find_steady_state


def random_profiles(seed: int, num_stages: int) -> perseus.Profiles:
    """Convex curves of a few points whose times have few digits, so that some tie."""
    random = np.random.default_rng(seed)
    columns: dict[str, list[object]] = {name: [] for name in ("stage", "kind", "frequency", "time", "energy")}
    for stage in range(num_stages):
        for kind, base in (("forward", 1.0), ("backward", 2.0)):
            time, energy, slope = base * random.choice([1.0, 1.0, 1.1, 1.25]), 300.0, random.uniform(20, 90)
            for clock in range(int(random.integers(1, 6))):
                columns["stage"].append(stage)
                columns["kind"].append(kind)
                columns["frequency"].append(1500.0 - 15.0 * clock)
                columns["time"].append(time)
                columns["energy"].append(energy)
                step = random.choice([0.05, 0.1, 0.15])
                time, energy, slope = time + step, energy - slope * step, slope * random.uniform(0.4, 0.95)
    return perseus.read_profiles(columns, blocking_power_w=5.0)


def check_spliced(dag: perseus.PipelineDag, profiles: perseus.Profiles) -> bool:
    """Assert that splicing changes nothing; return whether it was used."""
    spliced = perseus.solve_frontier(dag, profiles)
    whole = perseus.solve_frontier(dag, profiles, splice=False)
    assert spliced.statistics["certified"]
    assert whole.statistics["spliced_from_microbatches"] is None
    assert len(spliced) == len(whole)
    np.testing.assert_allclose(spliced.times_s, whole.times_s, rtol=1e-9)
    np.testing.assert_allclose(spliced.energies_j, whole.energies_j, rtol=1e-9)
    for fraction in (0.0, 0.013, 0.37, 0.9, 1.0):
        time_s = whole.min_time_s + fraction * (whole.max_time_s - whole.min_time_s)
        time_s = max(time_s, spliced.min_time_s)
        durations_s = spliced.durations_at(time_s)
        assert durations_s.shape == (dag.num_operations,)
        assert dag.makespan_s(durations_s) <= time_s * (1 + 1e-9)
        assert cost_j(dag, profiles, durations_s, time_s) == pytest.approx(spliced.energy_at(time_s), rel=1e-9)
    return spliced.statistics["spliced_from_microbatches"] is not None


def cost_j(dag: perseus.PipelineDag, profiles: perseus.Profiles, durations_s: np.ndarray, time_s: float) -> float:
    """Return the energy of durations until a time, from the curves alone."""
    energy_j = sum(profiles.blocking_power_w[stage] for stage in set(dag.stage.tolist())) * time_s
    for stage, kind in profiles.keys:
        mine = (dag.stage == stage) & (dag.kind_code == dag.kinds.index(kind))
        curve = profiles.curve(stage, kind)
        energy_j += float(np.interp(durations_s[mine], curve.times_s, curve.effective_energies_j).sum())
    return energy_j


@settings(max_examples=40)
@given(
    st.sampled_from(["1f1b", "gpipe"]), st.integers(1, 5), st.integers(0, 10**6), st.integers(0, 40), st.integers(1, 2)
)
def test_spliced_equals_whole(schedule: str, num_stages: int, seed: int, more: int, size: int) -> None:
    num_microbatches = size * (4 * num_stages + 8) * 3 // 2 + more
    dag = perseus.PipelineDag.from_schedule(schedule, num_stages=num_stages, num_microbatches=num_microbatches)
    check_spliced(dag, random_profiles(seed, num_stages))


def test_splicing_is_used(shared_data: Path) -> None:
    path = shared_data / "sosp24" / "gpt3-175b_a100-sxm_pp8_tp8.csv"
    profiles = perseus.read_profiles(path, blocking_power_w=83.64)
    assert check_spliced(perseus.PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=96), profiles)
    used = [
        check_spliced(
            perseus.PipelineDag.from_schedule(schedule, num_stages=3, num_microbatches=60), random_profiles(seed, 3)
        )
        for schedule in ("1f1b", "gpipe")
        for seed in range(6)
    ]
    assert sum(used) >= 6


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("num_stages", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("num_microbatches", [1, 7, 41, 96, 150])
def test_every_size(schedule: str, num_stages: int, num_microbatches: int) -> None:
    dag = perseus.PipelineDag.from_schedule(schedule, num_stages=num_stages, num_microbatches=num_microbatches)
    used = check_spliced(dag, random_profiles(10 * num_stages + num_microbatches, num_stages))
    assert not (used and find_steady_state(dag) is None)


# A profile whose small GPipe ends at a path of fastest operations that enters and leaves a slot at different places:
# the large pipeline has no such path, and can be faster than repeating the slot says.
TREACHEROUS_POINTS = [
    (0, "backward", 1500, 1393.4829000447148, 1.3999871109720707),
    (0, "forward", 1500, 1297.040644457279, 2.166008411485551),
    (1, "backward", 1500, 1328.893839474283, 3.20225652593088),
    (1, "backward", 1485, 1690.61832287349, 1.6520323802376236),
    (1, "forward", 1500, 1201.3005333169344, 3.3487842286985012),
    (1, "forward", 1485, 1420.068792137824, 3.1509964784037976),
    (1, "forward", 1470, 1766.6796566266173, 2.9176415394436233),
    (1, "forward", 1455, 1875.2996273884141, 2.763683339932352),
    (1, "forward", 1440, 2030.6734975346812, 2.4897793328189195),
    (1, "forward", 1425, 2138.3108727121776, 2.358087790279431),
    (1, "forward", 1410, 2238.5836700784535, 2.082522725855792),
    (1, "forward", 1395, 2488.2305560430736, 1.8870022106479472),
    (1, "forward", 1380, 2869.014278482256, 1.6677270094469259),
]


@pytest.mark.parametrize("num_microbatches", [20, 40, 72])
def test_the_end_of_a_spliced_frontier_is_the_shortest_time(num_microbatches: int) -> None:
    names = ("stage", "kind", "frequency", "time", "energy")
    columns = dict(zip(names, zip(*TREACHEROUS_POINTS, strict=True), strict=True))
    profiles = perseus.read_profiles(columns, blocking_power_w=0.0003)
    dag = perseus.PipelineDag.from_schedule("gpipe", num_stages=2, num_microbatches=num_microbatches)
    fastest_s = np.array([profiles.curve(op.stage, op.kind).times_s[0] for op in dag.operations])
    assert perseus.solve_frontier(dag, profiles).min_time_s == pytest.approx(dag.makespan_s(fastest_s), rel=1e-11)
    check_spliced(dag, profiles)


@pytest.mark.parametrize("num_stages", [4, 8])
def test_a_hundred_thousand_microbatches(num_stages: int) -> None:
    check_affine(random_profiles(4, num_stages), num_stages)


def test_a_hundred_thousand_microbatches_of_a_measured_profile(shared_data: Path) -> None:
    path = shared_data / "sosp24" / "gpt3-175b_a100-sxm_pp8_tp8.csv"
    check_affine(perseus.read_profiles(path, blocking_power_w=83.64), 8)


def check_affine(profiles: perseus.Profiles, num_stages: int) -> None:
    """Assert that the frontier is affine in the number of microbatches, breakpoint by breakpoint."""
    low, middle, high = (
        perseus.solve_frontier(
            perseus.PipelineDag.from_schedule("1f1b", num_stages=num_stages, num_microbatches=m), profiles
        )
        for m in (50_000, 75_000, 100_000)
    )
    assert all(f.statistics["spliced_from_microbatches"] is not None for f in (low, middle, high))
    assert all(f.statistics["certified"] for f in (low, middle, high))
    np.testing.assert_allclose(middle.times_s, (low.times_s + high.times_s) / 2, rtol=1e-9)
    np.testing.assert_allclose(middle.energies_j, (low.energies_j + high.energies_j) / 2, rtol=1e-9)
    # Each operation's time is rounded up to a whole quantum, which is coarse for an iteration of hours.
    slopes_w = sum(steepest_w(profiles.curve(*key)) for key in profiles.keys)
    rounding_j = high.statistics["time_quantum_s"] * 100_000 * slopes_w
    assert rounding_j <= 1e-8 * high.energies_j.min()
    for time_s in (high.min_time_s, 0.5 * (high.min_time_s + high.max_time_s)):
        durations_s = high.durations_at(time_s)
        assert high.dag.makespan_s(durations_s) <= time_s * (1 + 1e-9)
        energy_j = cost_j(high.dag, profiles, durations_s, time_s)
        assert energy_j == pytest.approx(high.energy_at(time_s), rel=1e-11, abs=rounding_j)


def steepest_w(curve: perseus.Curve) -> float:
    """Return how fast a curve falls from its fastest point."""
    if len(curve.times_s) < 2:
        return 0.0
    return float(-np.diff(curve.effective_energies_j)[0] / np.diff(curve.times_s)[0])


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("num_stages", [1, 2, 3, 8])
@pytest.mark.parametrize("num_microbatches", [60, 61, 97])
def test_repeating_any_slot_gives_the_large_pipeline(schedule: str, num_stages: int, num_microbatches: int) -> None:
    large = perseus.PipelineDag.from_schedule(schedule, num_stages=num_stages, num_microbatches=num_microbatches)
    steady = find_steady_state(large)
    assert steady is not None
    small = steady.small
    assert steady.num_regions == {"1f1b": 1, "gpipe": 2}[schedule]
    middles = [np.flatnonzero(steady.region == region)[1:-1] for region in range(steady.num_regions)]
    for slots in zip(*middles, strict=True):
        of_small = steady.small_operation(np.array(slots, dtype=np.int32))
        assert of_small.shape == (large.num_operations,)
        for name in ("stage", "kind_code", "rank"):
            assert np.array_equal(getattr(large, name), getattr(small, name)[of_small])
        # A copied operation waits for what the original waits for: same kinds on same stages.
        expected = predecessors(small)
        found = predecessors(large)
        assert all(found[i] == expected[of_small[i]] for i in range(large.num_operations))


def predecessors(dag: perseus.PipelineDag) -> list[list[tuple[int, int]]]:
    waits_for: list[list[tuple[int, int]]] = [[] for _ in range(dag.num_operations)]
    for before, after in dag.edges.tolist():
        waits_for[after].append((int(dag.stage[before]), int(dag.kind_code[before])))
    return [sorted(names) for names in waits_for]


def test_small_or_unscheduled_pipelines_are_solved_whole() -> None:
    small = perseus.PipelineDag.from_schedule("1f1b", num_stages=4, num_microbatches=30)
    assert find_steady_state(small) is None
    own = perseus.PipelineDag.from_orders([[f"F{m}" for m in range(100)]])
    assert find_steady_state(own) is None
