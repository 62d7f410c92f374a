"""Random pipelines of any shape, degenerate ones first, as hypothesis strategies."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
from hypothesis import strategies as st

import perseus

MAGNITUDES = [1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e9]


@dataclass
class Pipeline:
    dag: perseus.PipelineDag
    profiles: perseus.Profiles


@st.composite
def points(draw: st.DrawFn) -> list[tuple[float, float]]:
    """Measured points of one operation: one point, ties, collinear ones, convex ones, or any at all."""
    shape = draw(st.sampled_from(["one", "linear", "tied", "convex", "any"]))
    if shape == "one":
        return [(float(draw(st.integers(1, 5))), float(draw(st.integers(1, 50))))]
    steps = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    if shape == "any":
        energies = draw(st.lists(st.integers(1, 200), min_size=len(steps) + 1, max_size=len(steps) + 1))
        return [(float(1 + sum(steps[:k])), float(e)) for k, e in enumerate(energies)]
    slopes = (
        [4] * len(steps)
        if shape == "linear"
        else sorted(draw(st.lists(st.integers(0, 9), min_size=len(steps), max_size=len(steps))), reverse=True)
    )
    result = [(1.0, 200.0)]
    for step, slope in zip(steps, slopes, strict=True):
        result.append((result[-1][0] + step, result[-1][1] - step * slope))
    if shape == "tied":
        result.append(result[-1])
    return result


@st.composite
def pipelines(draw: st.DrawFn, max_operations: int = 14) -> Pipeline:
    """A pipeline and its profile; magnitudes differ between pipelines, and in some of them between stages."""
    time_unit, energy_unit = draw(st.sampled_from(MAGNITUDES)), draw(st.sampled_from(MAGNITUDES))
    mixed = draw(st.booleans())
    num_stages = draw(st.integers(1, 4))
    columns: dict[str, list[float | str]] = {name: [] for name in ("stage", "kind", "frequency", "time", "energy")}
    powers_w = {}
    for stage in range(num_stages):
        # Within a pipeline of mixed magnitudes stages differ by up to 10^6 in time and in energy.
        t_scale = time_unit * (draw(st.sampled_from([1.0, 1e-3, 1e-6])) if mixed else 1.0)
        e_scale = energy_unit * (draw(st.sampled_from([1.0, 1e-3, 1e-6])) if mixed else 1.0)
        powers_w[stage] = draw(st.sampled_from([0.0, 0.5, 3.0])) * e_scale / t_scale
        for clock, (time, energy) in enumerate(draw(points())):
            columns["stage"].append(stage)
            columns["kind"].append("forward")
            columns["frequency"].append(1500.0 - 15.0 * clock)
            columns["time"].append(time * t_scale)
            columns["energy"].append(energy * e_scale)
    return Pipeline(
        draw(dags(num_stages, time_unit, energy_unit, max_operations)),
        perseus.read_profiles(columns, blocking_power_w=powers_w),
    )


@st.composite
def dags(
    draw: st.DrawFn, num_stages: int, time_unit: float, energy_unit: float, max_operations: int
) -> perseus.PipelineDag:
    """A DAG: chains, parallel chains, layers, or anything; with fixed and zero-length operations and latencies."""
    n = draw(st.integers(1, max_operations))
    shape = draw(st.sampled_from(["none", "chain", "two chains", "any", "dense"]))
    graph = nx.DiGraph()
    for i in range(n):
        graph.add_node(i, stage=draw(st.integers(0, num_stages - 1)), kind="forward", microbatch=i)
        if draw(st.integers(0, 5)) == 0:
            graph.nodes[i]["fixed_time_s"] = draw(st.integers(0, 3)) * time_unit
            graph.nodes[i]["fixed_energy_j"] = draw(st.integers(0, 3)) * energy_unit
    pairs = {
        "none": [],
        "chain": [(i, i + 1) for i in range(n - 1)],
        "two chains": [(i, i + 2) for i in range(n - 2)],
        "any": [(i, j) for j in range(n) for i in range(j) if draw(st.integers(0, 3)) == 0],
        "dense": [(i, j) for j in range(n) for i in range(max(0, j - 3), j)],
    }[shape]
    for i, j in pairs:
        graph.add_edge(i, j, latency_s=draw(st.sampled_from([0.0, 0.0, 0.0, 1.0, 2.5])) * time_unit)
    return perseus.PipelineDag.from_networkx(graph)
