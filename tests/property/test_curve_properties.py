"""Curves against a brute-force lower hull, degenerate points and all magnitudes included."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perseus.curves import effective_curve

SCALES = [1e-9, 1e-3, 1.0, 1e5, 1e9]
coarse = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=8)
fine = st.lists(st.tuples(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9)), min_size=1, max_size=12)


def brute_force(points: list[tuple[float, float]], time: float) -> float:
    """Return the least energy over all mixtures of two points whose time is at most ``time``."""
    best = min((e for t, e in points if t <= time), default=np.inf)
    for (t0, e0), (t1, e1) in itertools.permutations(points, 2):
        if t0 <= time < t1:
            best = min(best, e0 + (e1 - e0) * ((time - t0) / (t1 - t0)))
    return best


@settings(max_examples=300)
@given(coarse, st.sampled_from(SCALES), st.sampled_from(SCALES), st.sampled_from([0.0, 0.5, 2.0]))
def test_lower_hull(points: list[tuple[int, int]], time_unit: float, energy_unit: float, power: float) -> None:
    power_w = power * energy_unit / time_unit
    measured = [(t * time_unit, e * energy_unit) for t, e in points]
    curve = effective_curve(*zip(*measured, strict=True), power_w)
    effective = [(t, e - power_w * t) for t, e in measured]
    for time in np.linspace(curve.times_s[0], 7 * time_unit, 23):
        value = np.interp(time, curve.times_s, curve.effective_energies_j)
        assert abs(value - brute_force(effective, time)) <= 1e-11 * (energy_unit * 9 + power_w * 7 * time_unit)


@settings(max_examples=300)
@given(st.one_of(coarse, fine), st.floats(0.0, 1e3))
def test_shape(points: list[tuple[float, float]], power_w: float) -> None:
    times_s, energies_j = map(np.array, zip(*points, strict=True))
    curve = effective_curve(times_s, energies_j, power_w)
    effective_j = energies_j - power_w * times_s
    assert (np.diff(curve.times_s) > 0).all()
    assert (np.diff(curve.effective_energies_j) < 0).all()
    slopes_w = np.diff(curve.effective_energies_j) / np.diff(curve.times_s)
    assert (np.diff(slopes_w) > 0).all()
    assert np.array_equal(curve.times_s, times_s[curve.point_indices])
    assert np.array_equal(curve.effective_energies_j, effective_j[curve.point_indices])
    assert curve.times_s[0] == times_s.min()
    assert curve.effective_energies_j[-1] == effective_j.min()
    assert set(curve.point_indices) <= set(curve.pareto_indices)
    kept = set(curve.pareto_indices.tolist())
    for i in range(len(times_s)):
        better = (times_s <= times_s[i]) & (effective_j <= effective_j[i])
        beaten = (better & ((times_s < times_s[i]) | (effective_j < effective_j[i]))).any()
        assert not (i in kept and beaten)
        assert beaten or any(times_s[j] == times_s[i] and effective_j[j] == effective_j[i] for j in kept)
