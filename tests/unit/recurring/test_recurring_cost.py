import pytest

from perseus.recurring.cost import Preference
from perseus.recurring.errors import JobError
from perseus.recurring.power_profile import PowerPoint, cheapest_point, least_energy_point


def test_cost_weighs_energy_against_time_at_maximum_power() -> None:
    preference = Preference(eta=0.25, max_power_w=200.0)
    assert preference.cost_j(energy_j=1000.0, time_s=10.0) == 0.25 * 1000.0 + 0.75 * 200.0 * 10.0
    assert preference.cost_rate_w(100.0) * 10.0 == preference.cost_j(1000.0, 10.0)


@pytest.mark.parametrize("eta", [-0.1, 1.1, float("nan")])
def test_eta_outside_its_range(eta: float) -> None:
    with pytest.raises(JobError, match=r"from 0 to 1"):
        Preference(eta=eta, max_power_w=200.0)


@pytest.mark.parametrize("power", [0.0, -1.0, float("inf"), float("nan")])
def test_max_power_must_be_a_power(power: float) -> None:
    with pytest.raises(JobError, match="in W"):
        Preference(eta=0.5, max_power_w=power)


POINTS = [PowerPoint(250.0, 240.0, 1.0), PowerPoint(200.0, 190.0, 0.95), PowerPoint(100.0, 100.0, 0.4)]


@pytest.mark.parametrize(("eta", "limit_w"), [(0.0, 250.0), (1.0, 200.0)])
def test_cheapest_point(eta: float, limit_w: float) -> None:
    assert cheapest_point(POINTS, Preference(eta=eta, max_power_w=250.0)).limit_w == limit_w


def test_of_equal_points_the_highest_limit_is_taken() -> None:
    equal = [PowerPoint(limit, 100.0, 1.0) for limit in (100.0, 150.0, 125.0)]
    assert cheapest_point(equal, Preference(eta=0.5, max_power_w=250.0)).limit_w == 150.0
    assert least_energy_point(equal, 0.0).limit_w == 150.0


@pytest.mark.parametrize(("slowdown", "limit_w"), [(0.0, 250.0), (0.05, 250.0), (0.06, 200.0), (10.0, 200.0)])
def test_least_energy_within_a_slowdown(slowdown: float, limit_w: float) -> None:
    assert least_energy_point(POINTS, slowdown).limit_w == limit_w


def test_a_bound_that_is_met_exactly_is_met() -> None:
    points = [PowerPoint(250.0, 200.0, 1.1), PowerPoint(200.0, 100.0, 1.0)]
    assert least_energy_point(points, 0.1).limit_w == 200.0


def test_no_points() -> None:
    with pytest.raises(JobError, match="no power limit was measured"):
        cheapest_point([], Preference(eta=0.5, max_power_w=1.0))
    with pytest.raises(JobError, match="no power limit was measured"):
        least_energy_point([], 0.0)
