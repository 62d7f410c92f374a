import numpy as np
import pytest
from numpy.typing import NDArray

from perseus.report.critical_path import critical_operations


def schedule(
    durations_s: NDArray[np.float64], edges: NDArray[np.int32], latency_s: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Earliest starts and slack by the textbook's forward and backward passes; operations are in topological order."""
    starts = np.zeros(durations_s.size)
    for operation in range(durations_s.size):
        for (before, after), latency in zip(edges.tolist(), latency_s.tolist(), strict=True):
            if after == operation:
                starts[operation] = max(starts[operation], starts[before] + durations_s[before] + latency)
    latest_ends = np.full(durations_s.size, (starts + durations_s).max())
    for operation in reversed(range(durations_s.size)):
        for (before, after), latency in zip(edges.tolist(), latency_s.tolist(), strict=True):
            if before == operation:
                latest_start = latest_ends[after] - durations_s[after] - latency
                latest_ends[operation] = min(latest_ends[operation], latest_start)
    return starts, latest_ends - durations_s - starts


def test_the_longer_branch_of_a_diamond_is_critical() -> None:
    edges = np.array([[0, 1], [0, 2], [1, 3], [2, 3]], dtype=np.int32)
    durations, latency = np.array([1.0, 2.0, 1.5, 1.0]), np.zeros(4)
    starts, _ = schedule(durations, edges, latency)
    assert critical_operations(starts, durations, edges, latency).tolist() == [True, True, False, True]


def test_latency_makes_the_shorter_branch_critical() -> None:
    edges = np.array([[0, 1], [0, 2], [1, 3], [2, 3]], dtype=np.int32)
    durations, latency = np.array([1.0, 2.0, 1.5, 1.0]), np.array([0.0, 0.0, 0.0, 0.7])
    starts, _ = schedule(durations, edges, latency)
    assert critical_operations(starts, durations, edges, latency).tolist() == [True, False, True, True]


def test_every_sink_that_ends_last_is_critical_and_zero_lengths_are_no_trouble() -> None:
    edges = np.array([[0, 1], [0, 2], [2, 3]], dtype=np.int32)
    durations, latency = np.array([1.0, 2.0, 2.0, 0.0]), np.zeros(3)
    starts, _ = schedule(durations, edges, latency)
    assert critical_operations(starts, durations, edges, latency).all()


def test_nothing_has_no_critical_path() -> None:
    nothing = np.zeros(0)
    assert critical_operations(nothing, nothing, np.zeros((0, 2), dtype=np.int32), nothing).size == 0


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("seed", range(8))
def test_critical_means_zero_slack_on_random_graphs(seed: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    size = 40
    pairs = np.sort(random.integers(0, size, (120, 2)), axis=1)
    edges = pairs[pairs[:, 0] < pairs[:, 1]].astype(np.int32)
    # Few distinct durations, so that several critical paths occur.
    durations = scale * random.integers(0, 4, size) / 10.0
    latency = scale * random.integers(0, 2, len(edges)) / 10.0
    starts, slack = schedule(durations, edges, latency)
    expected = slack <= 1e-9 * (starts + durations).max()
    assert critical_operations(starts, durations, edges, latency).tolist() == expected.tolist()
