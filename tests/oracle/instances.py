"""Random pipelines of any shape, degenerate ones first, as hypothesis strategies."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
from hypothesis import strategies as st

import perseus

MAGNITUDES = [1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e9]
KINDS = ["forward", "backward"]
POINT_SHAPES = ["one", "linear", "tied", "convex", "any"]
DAG_SHAPES = ["none", "chain", "two chains", "any", "dense", "identical chains", "layers"]

Points = list[tuple[float, float]]


@dataclass
class Pipeline:
    dag: perseus.PipelineDag
    profiles: perseus.Profiles


@st.composite
def points(draw: st.DrawFn, max_segments: int = 5, max_step: int = 4) -> Points:
    """Measured points in whole numbers: one point, ties, collinear ones, convex ones, or any at all."""
    shape = draw(st.sampled_from(POINT_SHAPES))
    if shape == "one":
        return [(float(draw(st.integers(1, 5))), float(draw(st.integers(1, 50))))]
    steps = draw(st.lists(st.integers(1, max_step), min_size=1, max_size=max_segments))
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
def measured_points(draw: st.DrawFn) -> Points:
    """Points as a measurement gives them: all digits used, nothing ties, not quite convex."""
    time, energy = draw(st.floats(0.5, 5.0)), draw(st.floats(50.0, 200.0))
    result = [(time, energy)]
    for _ in range(draw(st.integers(0, 12))):
        time *= 1.0 + draw(st.floats(1e-4, 0.2))
        energy *= 1.0 - draw(st.floats(-0.01, 0.1))
        result.append((time, energy))
    return result


@st.composite
def profiles(draw: st.DrawFn, num_stages: int, time_unit: float, energy_unit: float, mixed: bool) -> perseus.Profiles:
    """Profiles of all stages and kinds, each stage with its own blocking power; mixed ones are up to 10^6 apart."""
    columns: dict[str, list[float | str]] = {name: [] for name in ("stage", "kind", "frequency", "time", "energy")}
    powers_w = {}
    for stage in range(num_stages):
        t_scale = time_unit * (draw(st.sampled_from([1.0, 1e-3, 1e-6])) if mixed else 1.0)
        e_scale = energy_unit * (draw(st.sampled_from([1.0, 1e-3, 1e-6])) if mixed else 1.0)
        powers_w[stage] = draw(st.sampled_from([0.0, 0.5, 3.0])) * e_scale / t_scale
        for kind in KINDS:
            for clock, (time, energy) in enumerate(draw(st.one_of(points(), measured_points()))):
                row = (stage, kind, 1500.0 - 15.0 * clock, time * t_scale, energy * e_scale)
                for column, value in zip(columns.values(), row, strict=True):
                    column.append(value)
    return perseus.read_profiles(columns, blocking_power_w=powers_w)


@st.composite
def edges(draw: st.DrawFn, n: int, shape: str) -> list[tuple[int, int]]:
    """Edges from lower to higher numbers."""
    width = draw(st.integers(1, 5))
    if shape == "any":
        return [(i, j) for j in range(n) for i in range(j) if draw(st.integers(0, 3)) == 0]
    if shape == "layers":
        return [(i, j) for j in range(n) for i in range(j) if i // width + 1 == j // width]
    return {
        "none": [],
        "chain": [(i, i + 1) for i in range(n - 1)],
        "two chains": [(i, i + 2) for i in range(n - 2)],
        "identical chains": [(i, i + width) for i in range(n - width)],
        "dense": [(i, j) for j in range(n) for i in range(max(0, j - 3), j)],
    }[shape]


@st.composite
def dags(
    draw: st.DrawFn, num_stages: int, time_unit: float, energy_unit: float, max_operations: int, latencies: list[float]
) -> perseus.PipelineDag:
    """A DAG: chains, parallel chains, layers, or anything; with fixed and zero-length operations and latencies."""
    n = draw(st.integers(1, max_operations))
    shape = draw(st.sampled_from(DAG_SHAPES))
    pairs = draw(edges(n, shape))
    width = max((j - i for i, j in pairs), default=1)
    graph = nx.DiGraph()
    for i in draw(st.sampled_from([range(n), range(n - 1, -1, -1)])):
        # Operations side by side in identical chains are the same.
        stage = i // width % num_stages if shape == "identical chains" else draw(st.integers(0, num_stages - 1))
        kind = KINDS[i // width % 2] if shape == "identical chains" else draw(st.sampled_from(KINDS))
        graph.add_node(i, stage=stage, kind=kind, microbatch=i)
        if draw(st.integers(0, 5)) == 0:
            graph.nodes[i]["fixed_time_s"] = draw(st.integers(0, 3)) * time_unit
            graph.nodes[i]["fixed_energy_j"] = draw(st.integers(0, 3)) * energy_unit
    for i, j in pairs:
        graph.add_edge(i, j, latency_s=draw(st.sampled_from(latencies)) * time_unit)
    return perseus.PipelineDag.from_networkx(graph)


@st.composite
def pipelines(draw: st.DrawFn, max_operations: int = 14) -> Pipeline:
    """A pipeline and its profile; magnitudes differ between pipelines, and in some of them between stages."""
    time_unit, energy_unit = draw(st.sampled_from(MAGNITUDES)), draw(st.sampled_from(MAGNITUDES))
    num_stages = draw(st.integers(1, 4))
    dag = draw(dags(num_stages, time_unit, energy_unit, max_operations, [0.0, 0.0, 0.0, 1.0, 2.5]))
    return Pipeline(dag, draw(profiles(num_stages, time_unit, energy_unit, draw(st.booleans()))))


@st.composite
def whole_pipelines(draw: st.DrawFn) -> Pipeline:
    """A pipeline of few operations whose times are all whole seconds, for brute force."""
    num_stages = draw(st.integers(1, 3))
    columns: dict[str, list[float | str]] = {name: [] for name in ("stage", "kind", "frequency", "time", "energy")}
    for stage in range(num_stages):
        for kind in KINDS:
            for clock, point in enumerate(draw(points(max_segments=3, max_step=2))):
                row = (stage, kind, 1500.0 - 15.0 * clock, *point)
                for column, value in zip(columns.values(), row, strict=True):
                    column.append(value)
    powers_w = {stage: draw(st.sampled_from([0.0, 0.5, 3.0])) for stage in range(num_stages)}
    dag = draw(dags(num_stages, 1.0, 1.0, 5, [0.0, 0.0, 1.0, 2.0]))
    return Pipeline(dag, perseus.read_profiles(columns, blocking_power_w=powers_w))
