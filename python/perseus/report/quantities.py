"""Times, energies and powers as people read them: a unit that fits the size, few digits."""

from __future__ import annotations

import math
from typing import Final, NamedTuple


class Unit(NamedTuple):
    """A unit to show a quantity in.

    Attributes
    ----------
    size:
        The unit in SI base units (seconds, joules, watts); a value is divided by it to be shown.
    symbol:
        What is printed behind the number.
    """

    size: float
    symbol: str


# From the largest to the smallest; the first one that the quantity reaches is taken.
_TIME_UNITS: Final = (Unit(3600.0, "h"), Unit(1.0, "s"), Unit(1e-3, "ms"), Unit(1e-6, "µs"), Unit(1e-9, "ns"))
_METRIC_SIZES: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
# Seconds stay seconds up to here: "2400 s" is easier to compare than "0.667 h".
_LONGEST_IN_SECONDS: Final = 2 * 3600.0


def time_unit(largest_s: float) -> Unit:
    """Return the unit in which times up to `largest_s` read best."""
    if 1.0 <= abs(largest_s) <= _LONGEST_IN_SECONDS:
        return Unit(1.0, "s")
    return _unit_reached(largest_s, _TIME_UNITS)


def energy_unit(largest_j: float) -> Unit:
    """Return the unit in which energies up to `largest_j` read best."""
    return _unit_reached(largest_j, tuple(Unit(size, f"{prefix}J") for size, prefix in _METRIC_SIZES))


def power_unit(largest_w: float) -> Unit:
    """Return the unit in which powers up to `largest_w` read best; watts up to 10 kW."""
    if 1.0 <= abs(largest_w) <= 1e4:
        return Unit(1.0, "W")
    return _unit_reached(largest_w, tuple(Unit(size, f"{prefix}W") for size, prefix in _METRIC_SIZES))


def _unit_reached(largest: float, units: tuple[Unit, ...]) -> Unit:
    magnitude = abs(largest)
    # Half a last digit below a unit rounds up into it: 999.9996 ms is shown as 1 s.
    return next((unit for unit in units if magnitude >= unit.size * 0.9999995), _base_unit_or_last(magnitude, units))


def _base_unit_or_last(magnitude: float, units: tuple[Unit, ...]) -> Unit:
    base = next(unit for unit in units if unit.size == 1.0)
    return base if magnitude == 0.0 else units[-1]


def format_time(seconds: float, digits: int = 4) -> str:
    """Return a time with its unit.

    Examples
    --------
    >>> format_time(15.67943), format_time(0.002)
    ('15.68 s', '2.000 ms')
    """
    return _format(seconds, time_unit(seconds), digits)


def format_energy(joules: float, digits: int = 4) -> str:
    """Return an energy with its unit.

    Examples
    --------
    >>> format_energy(46995.3), format_energy(512.0)
    ('47.00 kJ', '512.0 J')
    """
    return _format(joules, energy_unit(joules), digits)


def format_percent(fraction: float, digits: int = 3) -> str:
    """Return a fraction as a percentage.

    Examples
    --------
    >>> format_percent(0.13503), format_percent(0.0009)
    ('13.5 %', '0.0900 %')
    """
    # Less than this is rounding, not a difference that anybody planned.
    return f"{_significant(fraction * 100.0 if abs(fraction) >= 1e-7 else 0.0, digits)} %"


def _format(value: float, unit: Unit, digits: int) -> str:
    return f"{_significant(value / unit.size, digits)} {unit.symbol}"


def _significant(value: float, digits: int) -> str:
    """Return `value` with that many significant digits, trailing zeros kept, never in scientific notation."""
    if value == 0.0 or not math.isfinite(value):
        return f"{value:.0f}"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{min(max(decimals, 0), 12)}f}"
