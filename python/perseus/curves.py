"""Convex curves of effective energy over duration: what the solver works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """The lower convex hull of an operation's measured points, in effective energy.

    The effective energy of a point is e - P * t: what the operation costs beyond the blocking power that its GPU draws
    anyway. Piecewise linear between the vertices; beyond the last one, waiting is free.

    Attributes
    ----------
    times_s:
        (k,) float64, seconds, strictly increasing.
    effective_energies_j:
        (k,) float64, joules, strictly decreasing and convex. May be negative.
    point_indices:
        (k,) intp: the measured point of each vertex.
    pareto_indices:
        (p,) intp: all points that no other one beats in both time and effective energy, by time increasing; the
        vertices are among them.
    """

    times_s: NDArray[np.float64]
    effective_energies_j: NDArray[np.float64]
    point_indices: NDArray[np.intp]
    pareto_indices: NDArray[np.intp]

    def __post_init__(self) -> None:
        for array in (self.times_s, self.effective_energies_j, self.point_indices, self.pareto_indices):
            array.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # arrays come out of a pickle writable


def effective_curve(times_s: ArrayLike, energies_j: ArrayLike, blocking_power_w: float) -> Curve:
    """Return the convex curve of effective energy through measured points.

    Parameters
    ----------
    times_s, energies_j:
        (n,) with n >= 1: duration in seconds and energy on one GPU in joules of each point, in any order.
    blocking_power_w:
        Power of the GPU while it waits, watts.

    Notes
    -----
    Filtering on effective rather than raw energy matters: a slow point that costs more energy than a fast one can still
    be the better one once the energy of waiting is taken off (SOSP'24, section 4.1, equation 3).
    """
    time = np.asarray(times_s, dtype=np.float64)
    effective = np.asarray(energies_j, dtype=np.float64) - blocking_power_w * time
    pareto = _pareto_points(time, effective)
    hull = pareto[_lower_hull(time[pareto].tolist(), effective[pareto].tolist())]
    return Curve(
        times_s=time[hull],
        effective_energies_j=effective[hull],
        point_indices=hull,
        pareto_indices=pareto,
    )


def _pareto_points(time: NDArray[np.float64], energy: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the points that are strictly cheaper than every faster or equally fast one, by time."""
    by_time = np.lexsort((energy, time))
    cheapest_before = np.minimum.accumulate(np.concatenate([[np.inf], energy[by_time][:-1]]))
    return by_time[energy[by_time] < cheapest_before]


def _lower_hull(time: list[float], energy: list[float]) -> list[int]:
    """Return the vertices of the lower hull of a Pareto front: slopes, as computed, strictly increase towards 0."""
    hull: list[int] = []
    slopes: list[float] = []  # of the segment that ends in each vertex but the first
    for point in range(len(time)):
        while hull:
            slope = (energy[point] - energy[hull[-1]]) / (time[point] - time[hull[-1]])
            if not slopes or slope > slopes[-1]:
                slopes.append(slope)
                break
            hull.pop()
            slopes.pop()
        hull.append(point)
    return hull
