"""Curves against brute force: degenerate points and all magnitudes included."""

from __future__ import annotations

import itertools
import pickle
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from perseus.curves import Curve, effective_curve

Point = tuple[float, float]

SCALES = [1e-9, 1e-3, 1.0, 1e5, 1e9]
at_any_speed = settings(max_examples=300, deadline=None)

coarse = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=8)
fine = st.lists(st.tuples(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9)), min_size=1, max_size=12)
any_magnitude = st.floats(-9.0, 9.0).map(lambda exponent: 10.0**exponent)
mixed = st.lists(st.tuples(any_magnitude, any_magnitude), min_size=1, max_size=12)


def arrays(points: list[Point]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    times, energies = zip(*points, strict=True)
    return np.array(times, dtype=np.float64), np.array(energies, dtype=np.float64)


def vertices(curve: Curve) -> list[Point]:
    return list(zip(curve.times_s.tolist(), curve.effective_energies_j.tolist(), strict=True))


def brute_force(points: list[Point], time: float) -> float:
    """Return the least energy over all mixtures of two points whose time is at most ``time``."""
    best = min((e for t, e in points if t <= time), default=np.inf)
    for (t0, e0), (t1, e1) in itertools.permutations(points, 2):
        if t0 <= time < t1:
            best = min(best, e0 + (e1 - e0) * ((time - t0) / (t1 - t0)))
    return best


def exact_depth_below(vertices: list[Point], point: Point) -> Fraction:
    """Return by how much a point lies below the curve through vertices, in exact arithmetic; infinite before it."""
    time, energy = map(Fraction, point)
    exact = [(Fraction(t), Fraction(e)) for t, e in vertices]
    if time >= exact[-1][0]:
        return exact[-1][1] - energy
    (t0, e0), (t1, e1) = next(pair for pair in itertools.pairwise(exact) if pair[0][0] <= time < pair[1][0])
    return e0 + (e1 - e0) * (time - t0) / (t1 - t0) - energy


def check_shape(curve: Curve, times_s: NDArray[np.float64], effective_j: NDArray[np.float64]) -> None:
    assert (np.diff(curve.times_s) > 0).all()
    assert (np.diff(curve.effective_energies_j) < 0).all()
    slopes_w = np.diff(curve.effective_energies_j) / np.diff(curve.times_s)
    assert (np.diff(slopes_w) > 0).all()
    assert np.array_equal(curve.times_s, times_s[curve.point_indices])
    assert np.array_equal(curve.effective_energies_j, effective_j[curve.point_indices])
    assert curve.times_s[0] == times_s.min()
    assert curve.effective_energies_j[-1] == effective_j.min()
    assert set(curve.point_indices) <= set(curve.pareto_indices)


def check_pareto(curve: Curve, times_s: NDArray[np.float64], effective_j: NDArray[np.float64]) -> None:
    kept = curve.pareto_indices.tolist()
    assert (np.diff(times_s[kept]) > 0).all()
    for i in range(len(times_s)):
        better = (times_s <= times_s[i]) & (effective_j <= effective_j[i])
        beaten = (better & ((times_s < times_s[i]) | (effective_j < effective_j[i]))).any()
        assert not (i in kept and beaten)
        assert beaten or any(times_s[j] == times_s[i] and effective_j[j] == effective_j[i] for j in kept)


@at_any_speed
@given(coarse, st.sampled_from(SCALES), st.sampled_from(SCALES), st.sampled_from([0.0, 0.5, 2.0]))
def test_the_curve_is_the_least_energy_of_all_mixtures(
    points: list[Point], time_unit: float, energy_unit: float, power: float
) -> None:
    power_w = power * energy_unit / time_unit
    measured = [(t * time_unit, e * energy_unit) for t, e in points]
    curve = effective_curve(*arrays(measured), power_w)
    effective = [(t, e - power_w * t) for t, e in measured]
    for time in np.linspace(curve.times_s[0], 7 * time_unit, 23):
        value = np.interp(time, curve.times_s, curve.effective_energies_j)
        assert abs(value - brute_force(effective, time)) <= 1e-11 * (energy_unit * 9 + power_w * 7 * time_unit)


@at_any_speed
@given(st.one_of(coarse, fine, mixed), st.floats(0.0, 1e3))
def test_vertices_and_pareto_points(points: list[Point], power_w: float) -> None:
    times_s, energies_j = arrays(points)
    effective_j = energies_j - power_w * times_s
    curve = effective_curve(times_s, energies_j, power_w)
    check_shape(curve, times_s, effective_j)
    check_pareto(curve, times_s, effective_j)


@at_any_speed
@given(st.one_of(coarse, fine, mixed))
def test_no_point_lies_below_the_curve_by_more_than_rounding(points: list[Point]) -> None:
    """In exact arithmetic; the bound is relative to the fall of the curve, not to the largest number around."""
    curve = effective_curve(*arrays(points), 0.0)
    fall_j = curve.effective_energies_j[0] - curve.effective_energies_j[-1]
    for point in points:
        assert exact_depth_below(vertices(curve), point) <= 4 * len(points) * np.finfo(float).eps * fall_j


@at_any_speed
@given(
    st.integers(2, 40), any_magnitude, any_magnitude, st.floats(0.01, 1.0), st.sampled_from([0.0, 1e-16, 1e-12, 1e-6])
)
def test_points_almost_on_a_line(count: int, time_s: float, energy_j: float, share: float, bend: float) -> None:
    step = np.arange(count) / count
    times_s = time_s * (1.0 + step)
    energies_j = energy_j * (1.0 - share * step * (1.0 - bend * step))
    curve = effective_curve(times_s, energies_j, 0.0)
    check_shape(curve, times_s, energies_j)
    points = list(zip(times_s.tolist(), energies_j.tolist(), strict=True))
    for point in points:
        assert exact_depth_below(vertices(curve), point) <= 4 * count * np.finfo(float).eps * energy_j * share


@at_any_speed
@given(st.one_of(coarse, mixed), st.data())
def test_neither_order_nor_useless_points_change_the_curve(points: list[Point], data: st.DataObject) -> None:
    curve = effective_curve(*arrays(points), 0.0)
    useless = [(t * 1.5, e * 1.25) for t, e in points]
    shuffled = data.draw(st.permutations([*points, *useless, *points]))
    assert vertices(effective_curve(*arrays(shuffled), 0.0)) == vertices(curve)


@at_any_speed
@given(st.one_of(coarse, mixed), st.integers(-40, 40), st.integers(-40, 40))
def test_units_do_not_matter(points: list[Point], time_exponent: int, energy_exponent: int) -> None:
    """Powers of two, so that the change of units rounds nothing."""
    times_s, energies_j = arrays(points)
    curve = effective_curve(times_s, energies_j, 0.0)
    scaled = effective_curve(np.ldexp(times_s, time_exponent), np.ldexp(energies_j, energy_exponent), 0.0)
    assert scaled.point_indices.tolist() == curve.point_indices.tolist()
    assert scaled.pareto_indices.tolist() == curve.pareto_indices.tolist()


@at_any_speed
@given(st.one_of(coarse, fine), st.floats(0.0, 1e3))
def test_pickles_are_equal_and_read_only(points: list[Point], power_w: float) -> None:
    curve = effective_curve(*arrays(points), power_w)
    again = pickle.loads(pickle.dumps(curve))
    assert vertices(again) == vertices(curve)
    for name in ("times_s", "effective_energies_j", "point_indices", "pareto_indices"):
        assert np.array_equal(getattr(again, name), getattr(curve, name))
        assert not getattr(again, name).flags.writeable
