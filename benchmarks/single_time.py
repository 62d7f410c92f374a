"""One iteration time: `perseus.solve_at` against the linear program solved by HiGHS.

    pip install '.[test]'
    python benchmarks/single_time.py [--microbatches 96]

CPU time at five times over the frontier of the measured GPT-3 175B profile (A100, 8 stages, 1F1B), both from the arrays
of the profile; the energies must agree to 1e-6. The linear program is the one of the tests, solved cold; building it is
not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import perseus

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "oracle"))
PROFILE = "sosp24/gpt3-175b_a100-sxm_pp8_tp8.csv"


def main() -> None:
    """Print a row for each iteration time."""
    from linear_program import LinearProgram

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--microbatches", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    data = Path(os.environ.get("PERSEUS_SHARED_DATA", ROOT.parent / "shared" / "data"))
    profiles = perseus.read_profiles(data / PROFILE, blocking_power_w=83.64)
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=arguments.microbatches)
    frontier = perseus.solve_frontier(dag, profiles)
    for fraction in (0.0, 0.1, 0.3, 0.6, 0.9):
        time_s = frontier.min_time_s + fraction * (frontier.max_time_s - frontier.min_time_s)
        ours, theirs = [], []
        for _ in range(arguments.rounds):
            start_s = time.process_time()
            found_j = perseus.solve_at(dag, profiles, time_s).energy_j
            ours.append(time.process_time() - start_s)
            program = LinearProgram(dag, profiles)
            start_s = time.process_time()
            expected_j = program.energy_at(max(time_s, program.shortest_s))
            theirs.append(time.process_time() - start_s)
            assert np.isclose(found_j, expected_j, rtol=1e-6)
        ours_ms, theirs_ms = statistics.median(ours) * 1e3, statistics.median(theirs) * 1e3
        ratio = theirs_ms / ours_ms
        print(f"T = {time_s:8.4f} s  perseus {ours_ms:7.2f} ms  HiGHS {theirs_ms:8.1f} ms  ratio {ratio:6.1f}")


if __name__ == "__main__":
    main()
