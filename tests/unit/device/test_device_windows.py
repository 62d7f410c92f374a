from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseus.device.counter import CounterChange
from perseus.profiler.sweep import has_risen
from perseus.profiler.windows import Span, Window, fit_powers, make_windows, mean, student_95


def change(time_s: float, energy_j: float) -> CounterChange:
    return CounterChange(time_s, time_s, energy_j)


def test_operations_are_cut_at_the_changes() -> None:
    changes = [change(1.0, 0.0), change(2.0, 100.0), change(3.0, 250.0)]
    spans = [Span("f", 0.5, 1.25), Span("b", 1.5, 2.5), Span("f", 2.75, 9.0)]
    first, second = make_windows(changes, spans)
    assert first.busy_s == {"f": 0.25, "b": 0.5}
    assert second.busy_s == {"b": 0.5, "f": 0.25}
    assert (first.energy_j, second.energy_j) == (100.0, 150.0)


def test_a_counter_that_starts_again_makes_no_window() -> None:
    changes = [change(1.0, 90.0), change(2.0, 5.0), change(3.0, 15.0)]
    assert [window.energy_j for window in make_windows(changes, [])] == [10.0]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(80, 400), min_size=3, max_size=3),
    st.floats(20, 100),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_regression_recovers_the_powers(powers: list[float], blocking: float, seed: int, known: bool) -> None:
    draw = np.random.default_rng(seed)
    windows = []
    for _ in range(60):
        busy = draw.dirichlet(np.ones(4)) * 0.1
        energy = float(busy[:3] @ powers + busy[3] * blocking)
        windows.append(Window(duration_s=0.1, energy_j=energy, busy_s=dict(zip("abc", busy[:3], strict=True))))
    fitted, fitted_blocking = fit_powers(windows, list("abc"), blocking if known else None)
    assert [fitted[kind].value for kind in "abc"] == pytest.approx(powers, rel=1e-6)
    assert fitted_blocking.value == pytest.approx(blocking, rel=1e-6)


def test_differences_at_the_operations_would_be_biased_and_windows_are_not() -> None:
    """Operations of 60 ms at 300 W and waits of 60 ms at 100 W, a counter that moves every 100 ms."""
    period = 0.12
    spans = [Span("f", i * period, i * period + 0.06) for i in range(500)]

    def energy_j(time_s: float) -> float:
        whole, rest = divmod(time_s, period)
        return whole * (0.06 * 400) + 100 * rest + 200 * min(rest, 0.06)

    changes = [change(0.013 + 0.1 * i, energy_j(0.013 + 0.1 * i)) for i in range(590)]
    fitted, blocking = fit_powers(make_windows(changes, spans), ["f"])
    assert fitted["f"].value == pytest.approx(300, rel=1e-6)
    assert blocking.value == pytest.approx(100, rel=1e-6)


def test_what_windows_do_not_determine_is_infinite() -> None:
    same = [Window(duration_s=0.1, energy_j=20, busy_s={"a": 0.03, "b": 0.03}) for _ in range(9)]
    fitted, _ = fit_powers(same, ["a", "b"], 50.0)
    assert math.isinf(fitted["a"].half_width)
    fitted, _ = fit_powers(same[:1], ["a"], 50.0)
    assert math.isinf(fitted["a"].half_width)
    always_busy = [Window(duration_s=0.1, energy_j=30 + i / 100, busy_s={"a": 0.1}) for i in range(9)]
    fitted, blocking = fit_powers(always_busy, ["a"])
    assert fitted["a"].value == pytest.approx(300, rel=0.01)
    assert math.isnan(blocking.value)


def test_intervals() -> None:
    assert math.isinf(mean([1.0]).half_width)
    assert math.isnan(mean([]).value)
    estimate = mean([9.0, 10.0, 11.0])
    assert estimate.value == 10
    assert estimate.half_width == pytest.approx(4.303 / math.sqrt(3))
    assert student_95(1) > student_95(5) > student_95(30) > student_95(31) == 1.96
    assert math.isinf(student_95(0))


def test_five_rises_in_a_row() -> None:
    assert not has_risen([5, 6, 7, 8, 9], 5)
    assert has_risen([9, 5, 6, 7, 8, 9, 10], 5)
    assert not has_risen([5, 6, 7, 7, 8, 9], 5)
