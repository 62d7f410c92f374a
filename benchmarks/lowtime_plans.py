"""Plans against those of lowtime 0.3.0, the solver published with SOSP'24, at the same deadlines.

    pip install . 'lowtime==0.3.0'
    python benchmarks/lowtime_plans.py [--gpu a100 a40] [--microbatches 12] [--every 28]

lowtime works as its authors use it: exponentials fitted to effective energy, steps of 1 ms, and each operation at the
clock that lowtime assigns it. That plan's realized time is the deadline of ours; both count as the profile measured
them. GPT-3 175B, 8 stages, 1F1B, from $PERSEUS_SHARED_DATA or ../shared/data beside the repository.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
from pathlib import Path

import numpy as np
from lowtime.solver import PhillipsDessouky

import lowtime_comparison as setting
import perseus

PROFILES = {
    "a100": ("sosp24/gpt3-175b_a100-sxm_pp8_tp8.csv", 83.64),
    "a40": ("sosp24/gpt3-175b_a40_pp8_tp8.csv", 70.38),
}


def realized(dag: perseus.PipelineDag, profiles: perseus.Profiles, clocks: list[int]) -> tuple[float, float]:
    """Time (s) and effective energy (J) of clocks (MHz), one for each operation, as the profile measured them."""
    rows = {key: {int(f): row for row, f in enumerate(profiles[key].knobs["frequency"])} for key in profiles.keys}
    durations_s, energy_j = np.empty(dag.num_operations), 0.0
    for index, (operation, clock) in enumerate(zip(dag.operations, clocks, strict=True)):
        key = (operation.stage, operation.kind)
        durations_s[index] = profiles[key].times_s[rows[key][clock]]
        energy_j += profiles[key].energies_j[rows[key][clock]]
        energy_j -= profiles.blocking_power_w[operation.stage] * durations_s[index]
    return dag.makespan_s(durations_s), float(energy_j)


def compare(gpu: str, num_microbatches: int, every: int) -> None:
    """Print how far both are above the bound."""
    root = Path(os.environ.get("PERSEUS_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    name, power_w = PROFILES[gpu]
    setting.BLOCKING_POWER_W = power_w
    profiles = perseus.read_profiles(root / name, blocking_power_w=power_w)
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=num_microbatches)
    frontier = perseus.solve_frontier(dag, profiles)
    graph = setting.lowtime_graph(dag, profiles)
    deadlines_s, theirs, ours = [], [], []
    with contextlib.redirect_stdout(io.StringIO()):
        for index, _ in enumerate(PhillipsDessouky(graph).run()):
            if index % every:
                continue
            clocks = [graph.nodes[number]["op"].assigned_knob for number in range(dag.num_operations)]
            time_s, effective_j = realized(dag, profiles, clocks)
            plan = frontier.plan_at(time_s * (1.0 + 1e-12))  # a sum of doubles: not a last bit less
            waits_j = frontier.blocking_power_w * (time_s - plan.time_s)
            bound_j = frontier.energy_at(time_s)
            deadlines_s.append(time_s)
            theirs.append((effective_j + frontier.blocking_power_w * time_s) / bound_j - 1.0)
            ours.append((plan.energy_j + waits_j) / bound_j - 1.0)
    their, our = np.array(theirs), np.array(ours)
    worse = [(d, o, t) for d, o, t in zip(deadlines_s, our, their, strict=True) if o > t + 1e-9]
    assert not worse, worse
    print(
        f"{gpu} {num_microbatches} microbatches, {len(our)} deadlines, above the bound: "
        f"lowtime mean {their.mean():.3%} "
        f"max {their.max():.3%}, ours mean {our.mean():.3%} max {our.max():.3%}, ratio {their.mean() / our.mean():.1f}"
    )


def main() -> None:
    """Print a line for each GPU and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=PROFILES, nargs="+", default=list(PROFILES))
    parser.add_argument("--microbatches", type=int, nargs="+", default=[12])
    parser.add_argument("--every", type=int, default=28)
    arguments = parser.parse_args()
    for gpu in arguments.gpu:
        for num_microbatches in arguments.microbatches:
            compare(gpu, num_microbatches, arguments.every)


if __name__ == "__main__":
    main()
