"""Windows between two changes of the energy counter, and the power of each kind of operation in them.

In a window of length ``T`` the GPU spends time ``tau_k`` on operations of kind ``k`` and waits for the rest, so the
counter rises by

    sum_k  P_k * tau_k  +  P_block * (T - sum_k tau_k).

Least squares over the windows gives each power ``P_k``, and the blocking power ``P_block`` too where it isn't known.
Taking the counter's difference over single operations instead is biased: -9 % for operations of 60 ms and a counter
that moves every 100 ms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus.device.counter import CounterChange

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom; 1.96 beyond.
_STUDENT_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def student_95(degrees_of_freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t."""
    if degrees_of_freedom < 1:
        return math.inf
    return _STUDENT_95[degrees_of_freedom - 1] if degrees_of_freedom <= len(_STUDENT_95) else 1.96


class Span(NamedTuple):
    """When an operation of some kind ran."""

    kind: str
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Window:
    """The time between two changes of the counter."""

    duration_s: float
    energy_j: float
    busy_s: Mapping[str, float]
    """Time spent on each kind."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value and the half-width of its 95 % confidence interval."""

    value: float
    half_width: float

    @property
    def relative(self) -> float:
        """The half-width as a share of the value."""
        return self.half_width / abs(self.value) if self.value else math.inf


def make_windows(changes: Sequence[CounterChange], spans: Iterable[Span]) -> list[Window]:
    """Divide the time at the changes.

    Parameters
    ----------
    changes:
        Changes of the counter, in order of time. A fall (a driver reload) makes no window.
    spans:
        Operations, in order of their end.
    """
    ordered = list(spans)
    first = 0
    windows = []
    for before, after in pairwise(changes):
        while first < len(ordered) and ordered[first].end_s <= before.time_s:
            first += 1
        if after.energy_j >= before.energy_j:
            windows.append(_window(before, after, ordered, first))
    return windows


def _window(before: CounterChange, after: CounterChange, spans: Sequence[Span], first: int) -> Window:
    busy_s: dict[str, float] = {}
    for span in spans[first:]:
        if span.start_s >= after.time_s:
            break
        inside_s = min(span.end_s, after.time_s) - max(span.start_s, before.time_s)
        if inside_s > 0:
            busy_s[span.kind] = busy_s.get(span.kind, 0.0) + inside_s
    return Window(duration_s=after.time_s - before.time_s, energy_j=after.energy_j - before.energy_j, busy_s=busy_s)


def mean(values: Sequence[float]) -> Estimate:
    """Return the mean with its confidence interval."""
    count = len(values)
    if count < 2:
        return Estimate(value=float(np.mean(values)) if count else math.nan, half_width=math.inf)
    half_width = student_95(count - 1) * float(np.std(values, ddof=1)) / math.sqrt(count)
    return Estimate(value=float(np.mean(values)), half_width=half_width)


def fit_powers(
    windows: Sequence[Window], kinds: Sequence[str], blocking_power_w: float | None = None
) -> tuple[dict[str, Estimate], Estimate]:
    """Return the power of each kind and the blocking power, in W.

    Parameters
    ----------
    windows:
        Windows at one clock.
    kinds:
        The kinds that occur.
    blocking_power_w:
        The blocking power if it is known; else it is fitted too.

    Returns
    -------
    tuple
        Powers by kind, and the blocking power. Half-widths are infinite where the windows don't determine a power.
    """
    durations_s = np.array([window.duration_s for window in windows])
    energies_j = np.array([window.energy_j for window in windows])
    busy_s = np.array([[window.busy_s.get(kind, 0.0) for kind in kinds] for window in windows]).reshape(-1, len(kinds))
    waiting_s = np.maximum(durations_s - busy_s.sum(axis=1), 0.0)
    if blocking_power_w is not None:
        fitted = _least_squares(busy_s, energies_j - blocking_power_w * waiting_s)
        return dict(zip(kinds, fitted, strict=True)), Estimate(value=blocking_power_w, half_width=0.0)
    if waiting_s.sum() < 0.005 * durations_s.sum():  # never waits: its power can't be seen, and hardly matters
        fitted = _least_squares(busy_s, energies_j)
        return dict(zip(kinds, fitted, strict=True)), Estimate(value=math.nan, half_width=math.inf)
    fitted = _least_squares(np.column_stack([busy_s, waiting_s]), energies_j)
    return dict(zip(kinds, fitted[:-1], strict=True)), fitted[-1]


def _least_squares(times_s: NDArray[np.float64], energies_j: NDArray[np.float64]) -> list[Estimate]:
    """Solve ``times_s @ powers = energies_j`` and give the confidence interval of each power."""
    rows, columns = times_s.shape
    undetermined = Estimate(value=math.nan, half_width=math.inf)
    if rows <= columns or np.linalg.matrix_rank(times_s) < columns:
        return [undetermined] * columns
    powers_w, *_ = np.linalg.lstsq(times_s, energies_j, rcond=None)
    residuals_j = energies_j - times_s @ powers_w
    variance = float(residuals_j @ residuals_j) / (rows - columns)
    spread_w = np.sqrt(variance * np.diag(np.linalg.inv(times_s.T @ times_s)))
    quantile = student_95(rows - columns)
    return [Estimate(value=float(p), half_width=float(quantile * s)) for p, s in zip(powers_w, spread_w, strict=True)]
