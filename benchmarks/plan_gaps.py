"""How close discrete plans come to the exact optimum, over the whole frontier.

    python benchmarks/plan_gaps.py [--profile a100|a40] [--microbatches 12 96]

50 deadlines evenly from the shortest to the longest useful time; 1F1B, 8 stages, the measured GPT-3 175B profiles from
$PERSEUS_SHARED_DATA or ../shared/data beside the repository.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

import perseus

PROFILES = {
    "a100": ("sosp24/gpt3-175b_a100-sxm_pp8_tp8.csv", 83.64),
    "a40": ("sosp24/gpt3-175b_a40_pp8_tp8.csv", 70.38),
}


def measure(profile: str, num_microbatches: int) -> None:
    """Print one row, after checking that no plan is late."""
    root = Path(os.environ.get("PERSEUS_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    name, power_w = PROFILES[profile]
    profiles = perseus.read_profiles(root / name, blocking_power_w=power_w)
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=num_microbatches)
    frontier = perseus.solve_frontier(dag, profiles)
    deadlines_s = np.linspace(frontier.min_time_s, frontier.max_time_s, 50)
    start_s = time.process_time()
    plans = [frontier.plan_at(deadline_s) for deadline_s in deadlines_s]
    each_ms = (time.process_time() - start_s) / len(plans) * 1e3
    assert all(plan.time_s <= deadline_s for plan, deadline_s in zip(plans, deadlines_s, strict=True))
    gaps = np.array([plan.gap for plan in plans])
    print(
        f"{profile:5} {num_microbatches:5} microbatches  gap mean {gaps.mean():.3%} max {gaps.max():.3%}  "
        f"saving at the shortest time {plans[0].saving:.2%}  {each_ms:.1f} ms a plan"
    )


def main() -> None:
    """Print a row for each profile and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=PROFILES, nargs="+", default=list(PROFILES))
    parser.add_argument("--microbatches", type=int, nargs="+", default=[12, 24, 48, 96])
    arguments = parser.parse_args()
    for profile in arguments.profile:
        for num_microbatches in arguments.microbatches:
            measure(profile, num_microbatches)


if __name__ == "__main__":
    main()
