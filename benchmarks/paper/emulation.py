"""The emulation tables of SOSP'24 (section 6), recomputed from the measured profiles, next to the published values.

    python benchmarks/paper/emulation.py [--gpu a100 a40] [--microbatches 12 24 48 96] [--json FILE]

GPT-3 175B, 8 stages, 1F1B, strong scaling: 12, 24, 48, 96 microbatches on 128, 64, 32, 16 pipelines. Profiles and
published values from $PERSEUS_SHARED_DATA or ../shared/data beside the repository. Times are scaled by 10 and energies
by 10 and the 8 GPUs of tensor parallelism, as in the paper.

Published: EnvPipe's times and energies; the intrinsic savings of Perseus; the authors' planned frontiers (A100 at 12
and 96, A40 at 12 microbatches), from which savings with stragglers are read. Where none is known, a dash stands.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
from pathlib import Path

import numpy as np

import perseus
from perseus import baselines
from perseus.comparison import STRAGGLER_SLOWDOWNS

DATA = Path(os.environ.get("PERSEUS_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data")) / "sosp24"
PROFILES = {
    "a100": ("gpt3-175b_a100-sxm_pp8_tp8.csv", 83.64, "a100_sxm", "a100-sxm"),
    "a40": ("gpt3-175b_a40_pp8_tp8.csv", 70.38, "a40", "a40"),
}
PIPELINES = {12: 128, 24: 64, 48: 32, 96: 16}
# Savings (%) of Perseus against the highest clocks without a straggler, as published.
PUBLISHED_INTRINSIC = {
    "a100": {12: 15.20, 24: 14.19, 48: 13.62, 96: 13.32},
    "a40": {12: 11.81, 24: 10.22, 48: 9.34, 96: 8.88},
}
TIME_SCALE, ENERGY_SCALE = 10.0, 80.0


def published_envpipe(device: str, num_microbatches: int) -> tuple[float, float]:
    """Time (s) and energy (J) of EnvPipe."""
    with (DATA / "envpipe_emulation.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["model"], row["device"], row["num_microbatches"]) == ("gpt3-175b", device, str(num_microbatches)):
                return float(row["iteration_time"]), float(row["energy"])
    raise LookupError(f"no EnvPipe emulation for {device}, {num_microbatches} microbatches")


def published_frontier(name: str, num_microbatches: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Times (s) and energies (J) that the authors' solver planned, by time; None where they are not here."""
    path = DATA / f"published_frontier_gpt3-175b_{name}_mb{num_microbatches}.csv"
    if not path.exists():
        return None
    times_s, energies_j = np.loadtxt(path, delimiter=",", skiprows=1, unpack=True)
    order = np.argsort(times_s)
    return times_s[order], energies_j[order]


class Emulation:
    """One GPU and number of microbatches."""

    def __init__(self, gpu: str, num_microbatches: int) -> None:
        name, power_w, self.device, self.short = PROFILES[gpu]
        self.gpu, self.num_microbatches = gpu, num_microbatches
        profiles = perseus.read_profiles(DATA / name, blocking_power_w=power_w)
        self.dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=num_microbatches)
        self.profiles = profiles
        self.frontier = perseus.solve_frontier(self.dag, profiles)
        self.highest = perseus.max_clock_plan(self.dag, profiles)
        self.envpipe = baselines.envpipe(self.dag, profiles)

    def intrinsic(self) -> dict[str, float]:
        """Savings (%) without a straggler, and EnvPipe beside its publication."""
        ours = self.frontier.plan_at(self.frontier.min_time_s)
        time_s, energy_j = published_envpipe(self.device, self.num_microbatches)
        bound_j = self.frontier.energy_at(self.frontier.min_time_s)
        return {
            "pipelines": PIPELINES.get(self.num_microbatches, 0),
            "perseus": 100 * ours.saving,
            "perseus_published": PUBLISHED_INTRINSIC[self.gpu].get(self.num_microbatches, float("nan")),
            "bound": 100 * (1.0 - bound_j / self.highest.energy_j),
            "envpipe": 100 * self.envpipe.saving,
            "envpipe_published": 100 * (1.0 - energy_j / ENERGY_SCALE / self.highest.energy_j),
            "envpipe_time_difference": 100 * (TIME_SCALE * self.envpipe.time_s / time_s - 1.0),
            "envpipe_energy_difference": 100 * (ENERGY_SCALE * self.envpipe.energy_j / energy_j - 1.0),
        }

    def with_straggler(self, slowdown: float) -> dict[str, float]:
        """Savings (%) of a pipeline that waits for a straggler."""
        until_s = slowdown * self.highest.time_s
        power_w = self.frontier.blocking_power_w
        highest_j = self.highest.energy_j + power_w * (until_s - self.highest.time_s)
        ours = self.frontier.plan_at(min(until_s, self.frontier.max_time_s), wait_until_s=until_s)
        envpipe_j = self.envpipe.energy_j + power_w * (until_s - self.envpipe.time_s)
        published = published_frontier(self.short, self.num_microbatches)
        planned = float("nan")
        if published is not None:
            times_s, energies_j = published
            time_s = min(until_s, times_s[-1])
            planned_j = np.interp(time_s, times_s, energies_j) + power_w * (until_s - time_s)
            planned = 100 * (1.0 - planned_j / highest_j)
        return {
            "perseus": 100 * (1.0 - ours.energy_j / highest_j),
            "perseus_published_planned": planned,
            "envpipe": 100 * (1.0 - envpipe_j / highest_j),
        }

    def breakdown(self) -> dict[str, float]:
        """Where the energy of the highest clocks goes with our plan, in % of it."""
        plan = self.frontier.plan_at(self.frontier.min_time_s)
        run = perseus.simulate(self.dag, self.profiles, plan)
        before = perseus.simulate(self.dag, self.profiles, self.highest)
        whole_j = before.energy_j
        return {
            "compute": 100 * run.compute_energy_j / whole_j,
            "bloat_removed": 100 * run.bloat_removed_j / whole_j,
            "blocking_before": 100 * before.blocking_energy_j / whole_j,
            "blocking": 100 * run.blocking_energy_j / whole_j,
        }


def show(title: str, rows: list[tuple[str, dict[str, float]]]) -> None:
    """Print a table; NaN as a dash."""
    names = list(rows[0][1])
    width = max(len(label) for label, _ in rows)
    print(f"\n{title}\n{'':{width}}  " + "  ".join(names))
    for label, values in rows:
        cells = ("-" if np.isnan(values[name]) else f"{values[name]:.4g}" for name in names)
        line = "  ".join(f"{cell:>{len(name)}}" for cell, name in zip(cells, names, strict=True))
        print(f"{label:{width}}  {line}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=PROFILES, nargs="+", default=list(PROFILES))
    parser.add_argument("--microbatches", type=int, nargs="+", default=list(PIPELINES))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    tables: dict[str, list[tuple[str, dict[str, float]]]] = {"intrinsic": [], "stragglers": [], "breakdown": []}
    for gpu in arguments.gpu:
        for num_microbatches in arguments.microbatches:
            emulation = Emulation(gpu, num_microbatches)
            label = f"{gpu} M={num_microbatches}"
            tables["intrinsic"].append((label, emulation.intrinsic()))
            for slowdown in STRAGGLER_SLOWDOWNS:
                tables["stragglers"].append((f"{label} x{slowdown:g}", emulation.with_straggler(slowdown)))
            tables["breakdown"].append((label, emulation.breakdown()))
    show("Savings without a straggler, %", tables["intrinsic"])
    show("Savings of a pipeline that waits for a straggler, %", tables["stragglers"])
    show("Energy without a straggler, % of that of the highest clocks", tables["breakdown"])
    if arguments.json is not None:
        text = json.dumps({name: dict(rows) for name, rows in tables.items()}, indent=2).replace("NaN", "null")
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
