"""What was measured at each power limit of one batch size, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from perseus.recurring.cost import Preference
from perseus.recurring.errors import JobError


class PowerPoint(NamedTuple):
    """One power limit, measured.

    Attributes
    ----------
    limit_w:
        Power limit of each GPU, in watts.
    average_power_w:
        Average power drawn, in watts, summed over the GPUs of the job.
    rate_per_s:
        Work per second: steps of a live job, epochs of a trace.  Only ratios matter.
    """

    limit_w: float
    average_power_w: float
    rate_per_s: float


def cheapest_point(points: Iterable[PowerPoint], preference: Preference) -> PowerPoint:
    """Return the point of least cost per unit of work; of equals, the highest limit.

    Raises
    ------
    JobError
        If there is no point.
    """
    by_limit = sorted(points, key=lambda point: -point.limit_w)
    if not by_limit:
        raise JobError("no power limit was measured; measure at least one before choosing")
    return min(by_limit, key=lambda point: preference.cost_rate_w(point.average_power_w) / point.rate_per_s)


def least_energy_point(points: Iterable[PowerPoint], max_slowdown: float) -> PowerPoint:
    """Return the point of least energy per unit of work among those slowed by at most ``max_slowdown``.

    Parameters
    ----------
    points:
        The measured limits.
    max_slowdown:
        Accepted loss against the fastest point, as a fraction of its time: 0.05 accepts 5 % more time.

    Raises
    ------
    JobError
        If there is no point.
    """
    by_limit = sorted(points, key=lambda point: -point.limit_w)
    if not by_limit:
        raise JobError("no power limit was measured; measure at least one before choosing")
    fastest_per_s = max(point.rate_per_s for point in by_limit)
    # the relative slack keeps a bound that is met exactly from being lost to rounding
    allowed = [p for p in by_limit if p.rate_per_s * (1.0 + max_slowdown) >= fastest_per_s * (1.0 - 1e-12)]
    return min(allowed, key=lambda point: point.average_power_w / point.rate_per_s)
