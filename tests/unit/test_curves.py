"""Convex curves of effective energy."""

from __future__ import annotations

import numpy as np
import pytest

from perseus.curves import effective_curve


def vertices(times: list[float], energies: list[float], power: float = 0.0) -> list[tuple[float, float]]:
    curve = effective_curve(times, energies, power)
    return list(zip(curve.times_s.tolist(), curve.effective_energies_j.tolist(), strict=True))


@pytest.mark.parametrize(
    ("times", "energies", "expected"),
    [
        pytest.param([1], [5], [(1, 5)], id="one point"),
        pytest.param([1, 2, 3], [9, 6, 5], [(1, 9), (2, 6), (3, 5)], id="convex"),
        pytest.param([3, 1, 2], [5, 9, 6], [(1, 9), (2, 6), (3, 5)], id="any order"),
        pytest.param([1, 2, 3], [9, 8, 3], [(1, 9), (3, 3)], id="concave"),
        pytest.param([1, 2, 3, 4], [9, 7, 5, 3], [(1, 9), (4, 3)], id="on a line"),
        pytest.param([1, 2, 3], [5, 6, 7], [(1, 5)], id="rising"),
        pytest.param([1, 2, 3], [5, 5, 5], [(1, 5)], id="flat"),
        pytest.param([1, 1, 2], [5, 4, 3], [(1, 4), (2, 3)], id="tie in time"),
        pytest.param([1, 2, 3], [5, 3, 3], [(1, 5), (2, 3)], id="tie in energy"),
        pytest.param([2, 2, 2], [5, 3, 4], [(2, 3)], id="all at one time"),
        pytest.param([1, 2, 3, 4], [9, 6, 7, 5], [(1, 9), (2, 6), (4, 5)], id="rise and fall"),
    ],
)
def test_hull(times: list[float], energies: list[float], expected: list[tuple[float, float]]) -> None:
    assert vertices(times, energies) == expected


def test_points_count_by_effective_energy() -> None:
    """The slow point costs more energy than the fast one, but less than the fast one and the wait after it."""
    assert vertices([1.0, 2.0], [10.0, 11.0], power=3.0) == [(1.0, 7.0), (2.0, 5.0)]
    assert vertices([1.0, 2.0], [10.0, 11.0], power=0.5) == [(1.0, 9.5)]


def test_indices() -> None:
    curve = effective_curve([3.0, 1.0, 2.0, 1.0, 2.5], [3.0, 9.0, 8.0, 10.0, 6.0], 0.0)
    assert curve.point_indices.tolist() == [1, 0]
    assert curve.pareto_indices.tolist() == [1, 2, 4, 0]
    with pytest.raises(ValueError, match="read-only"):
        curve.times_s[0] = 0.0
    assert isinstance(curve.times_s, np.ndarray)
