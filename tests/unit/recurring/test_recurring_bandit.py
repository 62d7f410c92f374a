import numpy as np
import pytest

from perseus.recurring.bandit import Arm, choose, observe, standard_normals


def arm_of(*costs: float, window: int = 0) -> Arm:
    arm = Arm()
    for cost in costs:
        arm = observe(arm, cost, window)
    return arm


def test_belief_is_mean_and_variance_over_count() -> None:
    costs = [3.0, 5.0, 10.0]
    arm = arm_of(*costs)
    assert arm.mean_j == pytest.approx(np.mean(costs))
    assert arm.deviation_j == pytest.approx(np.sqrt(np.var(costs) / 3))


def test_window_forgets() -> None:
    windowed, plain = arm_of(100.0, 1.0, 2.0, 4.0, window=3), arm_of(1.0, 2.0, 4.0)
    assert windowed.observations == plain.observations == 3
    assert windowed.mean_j == pytest.approx(plain.mean_j)
    assert windowed.deviation_j == pytest.approx(plain.deviation_j)


def test_equal_costs_leave_no_spread() -> None:
    assert arm_of(*[0.1] * 1000).deviation_j == 0.0
    assert arm_of(*[0.1] * 10, window=4).deviation_j == pytest.approx(0.0, abs=1e-15)


def test_arms_with_fewer_than_two_observations_go_first() -> None:
    arms = [arm_of(1.0, 1.0), arm_of(9.0), Arm(), arm_of(2.0, 2.0)]
    assert choose(arms, seed=0, trial_number=0) == 2
    assert choose(arms[:2], seed=0, trial_number=0) == 1


def test_equal_costs_stand_for_their_mean() -> None:
    arms = [arm_of(2.0, 2.0), arm_of(1.0, 1.0), arm_of(3.0, 3.0)]
    assert {choose(arms, seed=s, trial_number=t) for s in range(10) for t in range(10)} == {1}


def test_samples_follow_the_belief() -> None:
    """An arm is chosen as often as its belief puts it below the other's."""
    from statistics import NormalDist

    arms = [arm_of(10.0, 12.0), arm_of(10.5, 14.5)]
    difference = NormalDist(arms[1].mean_j - arms[0].mean_j, np.hypot(arms[0].deviation_j, arms[1].deviation_j))
    share = np.mean([choose(arms, seed=7, trial_number=t) == 1 for t in range(2000)])
    assert share == pytest.approx(difference.cdf(0.0), abs=0.04)


def test_numbers_belong_to_seed_and_trial() -> None:
    same = standard_normals(3, 8, 4)
    assert np.array_equal(same, standard_normals(3, 8, 4))
    assert np.array_equal(same[:2], standard_normals(3, 8, 2))
    assert not np.array_equal(same, standard_normals(3, 9, 4))
    assert not np.array_equal(same, standard_normals(4, 8, 4))


def test_numbers_are_frozen() -> None:
    """A log must give the same decisions in every release."""
    assert standard_normals(1, 2, 3) == pytest.approx(FROZEN, abs=1e-15)


FROZEN = [-0.24173119641072127, -0.7862551337563964, -0.6301779781892647]
