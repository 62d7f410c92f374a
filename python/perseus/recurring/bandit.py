"""Gaussian Thompson sampling over batch sizes.

Each batch size is an arm; the reward of a trial is its negative cost.  The prior is flat and the noise
of each arm is estimated from its own costs: with n costs of mean m and population variance v, the belief
about the expected cost is normal with mean m and precision n / v.  One sample is drawn from each belief;
the arm with the lowest sampled cost is run.  (Zeus, algorithm 1.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MIN_OBSERVATIONS = 2


class Arm(NamedTuple):
    """What the costs seen at one batch size amount to.

    Attributes
    ----------
    observations:
        How many costs count.
    mean_j:
        Their mean, in joules; infinite while there is none.
    squares_j2:
        Sum of their squared distances from the mean.
    last_costs_j:
        The costs themselves, oldest first, when only the last ones count; else empty.
    """

    observations: int = 0
    mean_j: float = math.inf
    squares_j2: float = 0.0
    last_costs_j: tuple[float, ...] = ()

    @property
    def deviation_j(self) -> float:
        """Standard deviation of the belief about the mean, in joules: sqrt(variance / count)."""
        return math.sqrt(self.squares_j2) / self.observations


def observe(arm: Arm, cost_j: float, window: int = 0) -> Arm:
    """Return the arm after one more cost; only the last ``window`` count, or all when it is 0."""
    if not window:
        return _one_more(arm, cost_j)
    costs = (*arm.last_costs_j, cost_j)[-window:]
    mean = sum(costs) / len(costs)
    return Arm(len(costs), mean, sum((cost - mean) ** 2 for cost in costs), costs)


def _one_more(arm: Arm, cost_j: float) -> Arm:
    """Update mean and squares by one cost (Welford), so that a long log needs no second look."""
    if not arm.observations:
        return Arm(1, cost_j)
    count, distance = arm.observations + 1, cost_j - arm.mean_j
    mean = arm.mean_j + distance / count
    return Arm(count, mean, arm.squares_j2 + distance * (cost_j - mean))


def standard_normals(seed: int, trial_number: int, count: int) -> NDArray[np.float64]:
    """Return the ``count`` standard normal numbers that belong to one trial of one job.

    They depend on nothing but the job's seed and the trial's number, so that a decision can be repeated
    from the trial log alone, on any machine and in any order.
    """
    key = np.array([seed, trial_number], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).standard_normal(count)


def choose(arms: Sequence[Arm], seed: int, trial_number: int) -> int:
    """Return the index of the arm to run.

    An arm with fewer than two observations goes first, the least observed before the others.  An arm
    whose costs are all equal has no spread to sample from and stands for its mean.
    """
    fewest = min(range(len(arms)), key=lambda i: arms[i].observations)
    if arms[fewest].observations < MIN_OBSERVATIONS:
        return fewest
    draws = standard_normals(seed, trial_number, len(arms)).tolist()
    samples = [arm.mean_j + arm.deviation_j * draw for arm, draw in zip(arms, draws, strict=True)]
    return samples.index(min(samples))
