"""CPU time of the whole frontier: Perseus against lowtime 0.3.0, the solver published with SOSP'24.

    pip install . 'lowtime==0.3.0'
    python benchmarks/lowtime_comparison.py [--microbatches 12] [--json]

Both get the measured GPT-3 175B profile (A100, 8 stages, 1F1B) from $PERSEUS_SHARED_DATA or ../shared/data beside the
repository, in one process on one machine. lowtime works as its authors use it: an exponential fitted to the effective
energy of each operation, and steps of 1 ms. Its fits and its graph are prepared outside of the measured time; Perseus
is measured from the arrays of the profile to the certified frontier. Fails if Perseus needs more than a thousandth of
lowtime's CPU time, or if the energies disagree by more than the error of lowtime's fits.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np

import perseus

PROFILE = "sosp24/gpt3-175b_a100-sxm_pp8_tp8.csv"
BLOCKING_POWER_W = 83.64
STEP_S = 0.001
# The worst residual of lowtime's fits on this profile is 2.8 % of an operation's effective energy.
FIT_ERROR = 0.03
LEAST_RATIO = 1000


def read() -> perseus.Profiles:
    """Return the measured profile."""
    root = Path(os.environ.get("PERSEUS_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (root / PROFILE).exists():
        raise SystemExit(f"no measured profile at {root / PROFILE}; set PERSEUS_SHARED_DATA")
    return perseus.read_profiles(root / PROFILE, blocking_power_w=BLOCKING_POWER_W)


def cpu_seconds(work: Callable[[], object]) -> tuple[float, object]:
    """Return the CPU time of a call, over all threads, and its result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def lowtime_graph(dag: perseus.PipelineDag, profiles: perseus.Profiles) -> nx.DiGraph:
    """Return the pipeline as lowtime takes it."""
    from lowtime.cost_model import ExponentialModel
    from lowtime.graph_utils import add_sink_node, add_source_node
    from lowtime.operation import CandidateExecutionOptions, ExecutionOption, Operation, OperationSpec

    specs = {}
    for key in profiles.keys:
        points = profiles[key]
        options = [
            ExecutionOption(real_time=t, unit_time=STEP_S, cost=e - BLOCKING_POWER_W * t, knob=int(f))
            for t, e, f in zip(points.times_s, points.energies_j, points.knobs["frequency"], strict=True)
        ]
        candidates = CandidateExecutionOptions(options=options)
        specs[key] = OperationSpec(options=candidates, cost_model=ExponentialModel(candidates))
    graph = nx.DiGraph()
    for number, operation in enumerate(dag.operations):
        graph.add_node(number, op=Operation(spec=specs[operation.stage, operation.kind]))
    graph.add_edges_from(dag.edges.tolist())
    for number in range(dag.num_operations):  # before the two ends are added
        graph.nodes[number]["first"] = graph.in_degree(number) == 0
        graph.nodes[number]["last"] = graph.out_degree(number) == 0
    add_source_node(graph, "source")
    add_sink_node(graph, "sink")
    graph.add_edges_from(("source", n) for n, data in list(graph.nodes(data=True)) if data.get("first"))
    graph.add_edges_from((n, "sink") for n, data in list(graph.nodes(data=True)) if data.get("last"))
    graph.graph |= {"source_node": "source", "sink_node": "sink"}
    return graph


def compare(num_microbatches: int, rounds: int) -> dict[str, object]:
    """Measure both and check that their answers agree."""
    from lowtime.solver import PhillipsDessouky

    profiles = read()
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=num_microbatches)
    frontier = perseus.solve_frontier(dag, profiles)

    def solve_anew() -> perseus.Frontier:
        fresh = perseus.Profiles({key: profiles[key] for key in profiles.keys}, profiles.blocking_power_w)
        new_dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=8, num_microbatches=num_microbatches)
        return perseus.solve_frontier(new_dag, fresh)

    ours = [cpu_seconds(solve_anew)[0] for _ in range(rounds)]
    graph = lowtime_graph(dag, profiles)
    with contextlib.redirect_stdout(io.StringIO()):
        theirs, results = cpu_seconds(lambda: list(PhillipsDessouky(graph).run()))
    points = np.array([(r.quant_time * STEP_S, r.cost) for r in results])  # type: ignore[attr-defined]
    # Its times are rounded down by up to a step an operation; where they are possible at all, its planned energy may
    # undercut the exact optimum by the error of its fits only.
    feasible = points[points[:, 0] >= frontier.min_time_s]
    exact_j = np.array([frontier.energy_at(t) for t in feasible[:, 0]])
    planned_j = feasible[:, 1] + 8 * BLOCKING_POWER_W * feasible[:, 0]
    assert len(feasible) > 100
    assert (planned_j >= exact_j * (1 - FIT_ERROR)).all()
    assert (planned_j <= exact_j * (1 + FIT_ERROR)).all()
    ratio = theirs / statistics.median(ours)
    assert ratio >= LEAST_RATIO, f"only {ratio:.0f} times less CPU time"
    return {
        "num_microbatches": num_microbatches,
        "num_operations": dag.num_operations,
        "perseus_cpu_s": statistics.median(ours),
        "perseus_breakpoints": len(frontier),
        "perseus_certified": frontier.statistics["certified"],
        "lowtime_cpu_s": theirs,
        "lowtime_points": len(points),
        "ratio": ratio,
    }


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--microbatches", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=9, help="runs of Perseus, of which the median counts")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = compare(arguments.microbatches, arguments.rounds)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{result['num_operations']} operations, {result['num_microbatches']} microbatches")
    print(f"lowtime 0.3.0  {result['lowtime_cpu_s']:10.3f} s CPU  {result['lowtime_points']} points, steps of 1 ms")
    print(f"Perseus        {result['perseus_cpu_s']:10.6f} s CPU  {result['perseus_breakpoints']} exact breakpoints")
    print(f"ratio          {result['ratio']:10.0f}")


if __name__ == "__main__":
    main()
