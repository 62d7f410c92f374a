"""Make the built-in example profile, python/perseus/data/example_profile.csv.

    python tools/make_example_profile.py [OUTPUT]

The numbers are modelled, not measured: a GPU with the clocks of an A100 runs the four stages of a transformer whose
layers do not divide evenly (Chung et al., SOSP'24, section 2.1: the last stage also holds the language model head).

Time: an operation that takes t0 at the highest clock takes t0 * (m + (1 - m) * f_max / f) at clock f, where the share m
is bound by memory, not by the clock. Power: static + dynamic * (V(f) / V_max)^2 * f / f_max, with a voltage that falls
linearly down to a floor. Both are the standard first-order model of dynamic voltage and frequency scaling.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

OUTPUT = Path(__file__).parents[1] / "python" / "perseus" / "data" / "example_profile.csv"

CLOCKS_MHZ = range(1410, 700, -15)
STATIC_W = 90.0
DYNAMIC_W = 290.0
VOLTAGE_FLOOR = 0.70  # of the voltage at the highest clock
FLOOR_CLOCK_MHZ = 810.0  # the voltage falls no further below this clock
MEMORY_SHARE = {"forward": 0.18, "backward": 0.14}
TIME_AT_MAX_S = {
    "forward": (0.0620, 0.0588, 0.0588, 0.0709),
    "backward": (0.1190, 0.1176, 0.1176, 0.1384),
}
ACTIVITY = {"forward": 0.94, "backward": 1.0}  # share of the dynamic power that the kernels cause

BLOCKING_POWER_W = 75.0


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


HEADER = f"""\
# Built-in example profile of Perseus: MODELLED, not measured. Made by tools/make_example_profile.py, which says how.
# Four stages on a GPU with the clocks of an A100 ({max(CLOCKS_MHZ)} to {min(CLOCKS_MHZ)} MHz); the last stage also
# holds the language model head.
# time = t0 * (m + (1 - m) * f_max / f), with m = {_listed(MEMORY_SHARE.values())} (forward, backward);
# t0 = {_listed(TIME_AT_MAX_S["forward"])} s (forward, by stage), {_listed(TIME_AT_MAX_S["backward"])} s (backward).
# power = {STATIC_W:g} W + a * {DYNAMIC_W:g} W * (V / V_max)^2 * f / f_max, with a = {_listed(ACTIVITY.values())};
# V / V_max falls linearly from 1 at f_max to {VOLTAGE_FLOOR:g} at {FLOOR_CLOCK_MHZ:g} MHz and no further.
# Blocking power {BLOCKING_POWER_W:g} W. Columns: frequency in MHz, time in s, energy of one GPU in J.
"""


def voltage(clock_mhz: float) -> float:
    """Return the voltage relative to that of the highest clock."""
    share = (clock_mhz - FLOOR_CLOCK_MHZ) / (max(CLOCKS_MHZ) - FLOOR_CLOCK_MHZ)
    return VOLTAGE_FLOOR + (1.0 - VOLTAGE_FLOOR) * max(share, 0.0)


def point(stage: int, kind: str, clock_mhz: int) -> tuple[float, float]:
    """Return time (s) and energy (J) of an operation at a clock."""
    relative = clock_mhz / max(CLOCKS_MHZ)
    memory = MEMORY_SHARE[kind]
    time_s = TIME_AT_MAX_S[kind][stage] * (memory + (1.0 - memory) / relative)
    power_w = STATIC_W + ACTIVITY[kind] * DYNAMIC_W * voltage(clock_mhz) ** 2 * relative
    return time_s, power_w * time_s


def profile() -> str:
    """Return the whole file."""
    rows = ["stage,instruction,frequency,time,energy\n"]
    for stage in range(len(TIME_AT_MAX_S["forward"])):
        for kind in TIME_AT_MAX_S:
            for clock_mhz in CLOCKS_MHZ:
                time_s, energy_j = point(stage, kind, clock_mhz)
                rows.append(f"{stage},{kind},{clock_mhz},{time_s:.9f},{energy_j:.6f}\n")
    return HEADER + "".join(rows)


if __name__ == "__main__":
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    output.write_text(profile(), encoding="utf-8")
    print(output)
