from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus.device.integrated import IntegratedEnergy, PowerIntegrator


def test_a_constant_power_is_not_lost() -> None:
    integrator = PowerIntegrator(0.0, 250.0)
    for time_s in (0.1, 0.2, 0.3):
        integrator.add(time_s, 250.0)
    assert integrator.energy_j(1.0) == pytest.approx(250.0)


def test_each_value_holds_until_the_next_and_the_last_to_the_edge() -> None:
    integrator = PowerIntegrator(0.0, 100.0)
    integrator.add(1.0, 200.0)
    integrator.add(0.5, 999.0)  # older: ignored
    integrator.add(3.0, 50.0)
    assert integrator.energy_j(4.0) == pytest.approx(100 + 400 + 50)
    assert integrator.energy_j(2.0) == pytest.approx(500)


@given(st.lists(st.tuples(st.floats(0.001, 1.0), st.floats(0.0, 700.0)), max_size=30))
def test_energy_lies_between_the_extremes_and_never_falls(steps: list[tuple[float, float]]) -> None:
    integrator = PowerIntegrator(0.0, 100.0)
    time_s, last_j = 0.0, 0.0
    for step_s, power_w in steps:
        time_s += step_s
        energy_j = integrator.energy_j(time_s)
        assert energy_j >= last_j
        last_j = energy_j
        integrator.add(time_s, power_w)
    powers = [100.0, *(power for _, power in steps)]
    assert min(powers) * time_s - 1e-6 <= last_j <= max(powers) * time_s + 1e-6


def test_the_thread_passes_on_what_a_reading_raised() -> None:
    readings = iter([100.0])
    energy = IntegratedEnergy(lambda: next(readings), poll_s=0.001)
    energy.wait()
    with pytest.raises(StopIteration):
        energy.energy_j()
