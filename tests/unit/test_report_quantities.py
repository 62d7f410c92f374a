import pytest

from perseus.report.quantities import energy_unit, format_energy, format_percent, format_time, time_unit


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (15.67943, "15.68 s"),
        (0.002, "2.000 ms"),
        (3.5e-6, "3.500 µs"),
        (2e-9, "2.000 ns"),
        (7.0e-12, "0.007000 ns"),
        (2400.0, "2400 s"),
        (36000.0, "10.00 h"),
        (0.0, "0 s"),
        (0.99999, "1000 ms"),
        (0.99999996, "1.000 s"),
        (9.99996, "10.00 s"),
    ],
)
def test_times_get_a_unit_that_fits(seconds: float, text: str) -> None:
    assert format_time(seconds) == text


@pytest.mark.parametrize(
    ("joules", "text"),
    [
        (46995.3, "47.00 kJ"),
        (512.0, "512.0 J"),
        (3e-6, "3.000 µJ"),
        (1.5e9, "1.500 GJ"),
        (2e6, "2.000 MJ"),
        (-1200.0, "-1.200 kJ"),
    ],
)
def test_energies_get_a_unit_that_fits(joules: float, text: str) -> None:
    assert format_energy(joules) == text


@pytest.mark.parametrize(
    ("fraction", "text"), [(0.13503, "13.5 %"), (0.0009, "0.0900 %"), (0.0, "0 %"), (-0.02, "-2.00 %"), (1.0, "100 %")]
)
def test_fractions_become_percentages(fraction: float, text: str) -> None:
    assert format_percent(fraction) == text


def test_one_unit_serves_a_whole_axis() -> None:
    assert time_unit(0.4).symbol == "ms"
    assert energy_unit(54e3).size == 1e3
