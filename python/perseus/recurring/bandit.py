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
    """The costs seen at one batch size.

    Attributes
    ----------
    costs_j:
        Costs in joules, oldest first; at most ``window`` of them when there is a window.
    mean_j:
        Their mean.
    deviation_j:
        Standard deviation of the belief about the mean, in joules: sqrt(variance / n).
    """

    costs_j: tuple[float, ...] = ()
    mean_j: float = math.inf
    deviation_j: float = 0.0


def observe(arm: Arm, cost_j: float, window: int = 0) -> Arm:
    """Return the arm after one more cost; only the last ``window`` count, or all when it is 0."""
    costs = (*arm.costs_j, cost_j)
    if window:
        costs = costs[-window:]
    count = len(costs)
    mean = sum(costs) / count
    variance = sum((cost - mean) ** 2 for cost in costs) / count
    return Arm(costs, mean, math.sqrt(variance / count))


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
    fewest = min(range(len(arms)), key=lambda i: len(arms[i].costs_j))
    if len(arms[fewest].costs_j) < MIN_OBSERVATIONS:
        return fewest
    draws = standard_normals(seed, trial_number, len(arms)).tolist()
    samples = [arm.mean_j + arm.deviation_j * draw for arm, draw in zip(arms, draws, strict=True)]
    return samples.index(min(samples))
