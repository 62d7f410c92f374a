"""How long the replay of every recurring job takes, and what one decision costs.

    PYTHONPATH=python python benchmarks/recurring_replay.py ../shared/data/nsdi23 --seeds 50

Replays all jobs on all GPUs of the Zeus traces and checks that no recurrence was given up and that every
job ends within 2 % of its optimum, so that a fast wrong answer does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np

from perseus.recurring.replay import ReplaySettings, replay, summarize
from perseus.recurring.trace import TRACED_JOBS, gpus_of, read_trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--seeds", type=int, default=50)
    arguments = parser.parse_args()
    settings = ReplaySettings()
    began_s = time.perf_counter()
    trials = 0
    worst = 0.0
    for gpu in gpus_of(arguments.traces):
        for job in TRACED_JOBS:
            trace = read_trace(arguments.traces, gpu, job)
            items = [replay(trace, settings, seed) for seed in range(arguments.seeds)]
            trials += sum(len(item.trials) for item in items)
            summary = summarize(trace, settings, items)
            assert not summary.aborted.any(), f"{job.name} on {gpu} was given up"
            worst = max(worst, summary.optimality)
    elapsed_s = time.perf_counter() - began_s
    assert worst <= 1.02 or arguments.seeds < 50, f"a job ends {worst:.4f} times its optimum"
    report = {
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "seeds": arguments.seeds,
        "trials": trials,
        "seconds": round(elapsed_s, 2),
        "microseconds_per_trial": round(1e6 * elapsed_s / trials, 1),
        "worst_cost_over_optimum": round(worst, 4),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
