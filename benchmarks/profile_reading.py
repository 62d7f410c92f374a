"""How long it takes to read a profile of a million rows, and to make its curves.

    python benchmarks/profile_reading.py [ROWS]

The file is made first, from a fixed rule; every form of it must give the same profiles.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import perseus

STAGES, CLOCKS = 8, 80
FORMS = {
    "commas": lambda text: text,
    "semicolons and decimal commas": lambda text: text.replace(",", ";").replace(".", ","),
    "quoted": lambda text: text.replace("forward", '"forward"'),
}


def make_profile(num_rows: int) -> str:
    rows = ["stage,instruction,frequency,time,energy\n"]
    for i in range(num_rows):
        setting, stage = divmod(i, STAGES)
        setting, kind = divmod(setting, 2)
        clock = 1410 - 15 * (setting % CLOCKS)
        time_s = 70.0 / clock + 1e-9 * (i % 997)
        rows.append(f"{stage},{('forward', 'backward')[kind]},{clock},{time_s:.12f},{20.0 + 0.01 * clock:.3f}\n")
    return "".join(rows)


def main(num_rows: int) -> None:
    text = make_profile(num_rows)
    found = set()
    with tempfile.TemporaryDirectory() as folder:
        for name, form in FORMS.items():
            path = Path(folder) / "profile.csv"
            path.write_text(form(text), encoding="utf-8")
            begin = time.process_time()
            profiles = perseus.read_profiles(path, blocking_power_w=70.0)
            read_s = time.process_time() - begin
            for key in profiles:
                profiles.curve(*key)
            curves_s = time.process_time() - begin - read_s
            assert sum(int(profiles[key].counts.sum()) for key in profiles) == num_rows
            found.add(
                tuple((key, profiles[key].times_s.tobytes(), profiles[key].energies_j.tobytes()) for key in profiles)
            )
            print(f"{num_rows:,} rows, {name}: {read_s:.2f} s CPU to read, {curves_s * 1e3:.1f} ms for the curves")
    assert len(found) == 1


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
