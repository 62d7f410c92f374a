"""Convex curves of effective energy."""

from __future__ import annotations

import dataclasses

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
        pytest.param([2, 2, 2], [3, 3, 3], [(2, 3)], id="one point three times"),
        pytest.param([1, 2, 1, 2], [5, 3, 5, 3], [(1, 5), (2, 3)], id="each point twice"),
        pytest.param([1, 2, 3, 4, 5], [10, 9, 7, 4, 0], [(1, 10), (5, 0)], id="each step steeper"),
        pytest.param([1, 2, 3, 4, 5], [9, 8, 7, 6.5, 6], [(1, 9), (3, 7), (5, 6)], id="two lines"),
        pytest.param([1, 2, 3, 9], [9, 8.5, 8, 2.5], [(1, 9), (9, 2.5)], id="long last step"),
        pytest.param([1e-9, 1e9], [1e9, 1e-9], [(1e-9, 1e9), (1e9, 1e-9)], id="far apart"),
        pytest.param([1e-9, 1, 1e9], [1e9, 1, 1e-9], [(1e-9, 1e9), (1, 1), (1e9, 1e-9)], id="18 magnitudes"),
        pytest.param([1, np.nextafter(1, 2)], [5, 4], [(1, 5), (np.nextafter(1, 2), 4)], id="neighbouring times"),
        pytest.param([1, 2], [np.nextafter(5, 6), 5], [(1, np.nextafter(5, 6)), (2, 5)], id="neighbouring energies"),
        pytest.param([5e-324, 1], [1e308, 1], [(5e-324, 1e308), (1, 1)], id="least and largest numbers"),
    ],
)
def test_hull(times: list[float], energies: list[float], expected: list[tuple[float, float]]) -> None:
    assert vertices(times, energies) == expected


def test_points_count_by_effective_energy() -> None:
    """The slow point costs more energy than the fast one, but less than the fast one and the wait after it."""
    assert vertices([1.0, 2.0], [10.0, 11.0], power=3.0) == [(1.0, 7.0), (2.0, 5.0)]
    assert vertices([1.0, 2.0], [10.0, 11.0], power=0.5) == [(1.0, 9.5)]


def test_effective_energy_may_be_negative() -> None:
    """A GPU that works for less than the blocking power, as one that waits for the network does."""
    assert vertices([1.0, 2.0, 3.0], [60.0, 120.0, 250.0], power=70.0) == [(1.0, -10.0), (2.0, -20.0)]


def test_waiting_at_the_power_of_work_is_worth_nothing() -> None:
    """Energy that grows by just the blocking power makes points of equal effective energy: the fastest stays."""
    assert vertices([1.0, 2.0, 4.0], [80.0, 160.0, 320.0], power=80.0) == [(1.0, 0.0)]


def test_indices() -> None:
    curve = effective_curve([3.0, 1.0, 2.0, 1.0, 2.5], [3.0, 9.0, 8.0, 10.0, 6.0], 0.0)
    assert curve.point_indices.tolist() == [1, 0]
    assert curve.pareto_indices.tolist() == [1, 2, 4, 0]


def test_the_first_of_equal_points_stands_for_them() -> None:
    assert effective_curve([2, 1, 1, 2], [3, 5, 5, 3], 0.0).point_indices.tolist() == [1, 0]


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64, object])
def test_any_numbers_become_float64(dtype: type) -> None:
    times, energies = np.array([1, 2, 3], dtype), np.array([9, 6, 5], dtype)
    curve = effective_curve(times, energies, 1)
    assert curve.times_s.dtype == curve.effective_energies_j.dtype == np.float64
    assert curve.point_indices.dtype == curve.pareto_indices.dtype == np.intp
    assert curve.effective_energies_j.tolist() == [8.0, 4.0, 2.0]


def test_the_curve_is_read_only_and_the_measurements_stay_writable() -> None:
    times, energies = np.array([1.0, 2.0]), np.array([9.0, 6.0])
    curve = effective_curve(times, energies, 1.0)
    for array in (curve.times_s, curve.effective_energies_j, curve.point_indices, curve.pareto_indices):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    times[0], energies[0] = 0.5, 20.0
    assert curve.times_s.tolist() == [1.0, 2.0]
    assert curve.effective_energies_j.tolist() == [8.0, 4.0]


def test_fields_cannot_be_set() -> None:
    curve = effective_curve([1.0], [2.0], 0.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        curve.times_s = np.zeros(1)  # type: ignore[misc]
