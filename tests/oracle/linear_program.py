"""The least energy of one iteration time as a linear program, solved by HiGHS.

Shares nothing with the solver: it reads the measured points, makes its own hulls, and knows no flow and no frontier.
Variables: a start time for each operation, and for each segment of its hull how far the duration reaches into it. By
convexity the segments fill in the right order by themselves.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import highspy
import numpy as np

import perseus


def lower_hull(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the vertices of the decreasing part of the lower hull, by Jarvis march: slow, and simple to trust."""
    time, energy = min(points)
    hull = [(time, energy)]
    while True:
        later = [(t, e) for t, e in points if t > time and e < energy]
        if not later:
            return hull
        steepest = min((e - energy) / (t - time) for t, e in later)
        time, energy = max((t, e) for t, e in later if (e - energy) / (t - time) == steepest)
        hull.append((time, energy))


@dataclass
class Instance:
    """An instance in units of its own size, so that HiGHS works on numbers around 1."""

    hulls: list[list[tuple[float, float]]]  # per operation: times over time_unit, energies over energy_unit
    edges: np.ndarray
    latency: np.ndarray
    time_unit: float
    energy_unit: float
    power_w: float  # of all ranks together

    @classmethod
    def of(cls, dag: perseus.PipelineDag, profiles: perseus.Profiles) -> Instance:
        hulls_s: list[list[tuple[float, float]]] = []
        cache: dict[tuple[int, str], list[tuple[float, float]]] = {}
        for i, op in enumerate(dag.operations):
            power = profiles.blocking_power_w[op.stage]
            if not np.isnan(dag.fixed_time_s[i]):
                hulls_s.append([(dag.fixed_time_s[i], dag.fixed_energy_j[i] - power * dag.fixed_time_s[i])])
                continue
            if (op.stage, op.kind) not in cache:
                points = profiles[op.stage, op.kind]
                pairs = zip(points.times_s.tolist(), points.energies_j.tolist(), strict=True)
                cache[op.stage, op.kind] = lower_hull([(t, e - power * t) for t, e in pairs])
            hulls_s.append(cache[op.stage, op.kind])
        ranks = {op.rank: profiles.blocking_power_w[op.stage] for op in dag.operations}
        time_unit = max(max(hull[-1][0] for hull in hulls_s), float(dag.latency_s.max(initial=0.0))) or 1.0
        energy_unit = max(hull[0][1] - hull[-1][1] for hull in hulls_s) or 1.0
        return cls(
            hulls=[[(t / time_unit, e / energy_unit) for t, e in hull] for hull in hulls_s],
            edges=dag.edges,
            latency=dag.latency_s / time_unit,
            time_unit=time_unit,
            energy_unit=energy_unit,
            power_w=sum(ranks.values()),
        )

    def makespan(self, vertex: int) -> float:
        """Return the longest path (s) with every operation at hull vertex 0 or -1, by Bellman-Ford."""
        duration = np.array([hull[vertex][0] for hull in self.hulls])
        start = np.zeros(len(self.hulls))
        for _ in range(len(self.hulls)):
            before = start.copy()
            if len(self.edges):
                np.maximum.at(start, self.edges[:, 1], (start + duration)[self.edges[:, 0]] + self.latency)
            if (before == start).all():
                break
        return float((start + duration).max()) * self.time_unit


class LinearProgram:
    """The LP of an instance; `energy_at` solves it for one deadline, warm from the last."""

    def __init__(self, dag: perseus.PipelineDag, profiles: perseus.Profiles) -> None:
        self.instance = Instance.of(dag, profiles)
        self.shortest_s = self.instance.makespan(0)
        self.longest_s = self.instance.makespan(-1)
        self._num_ends = len(self.instance.hulls)
        self._highs = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("threads", 1)
        for tolerance in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            self._highs.setOptionValue(tolerance, 1e-10)
        self._fixed_energy = sum(hull[0][1] for hull in self.instance.hulls)
        self._build()

    def _build(self) -> None:
        hulls = self.instance.hulls
        n = len(hulls)
        lower, upper, cost = [0.0] * n, [highspy.kHighsInf] * n, [0.0] * n
        segments: list[list[int]] = []
        for hull in hulls:
            mine = []
            for (t0, e0), (t1, e1) in itertools.pairwise(hull):
                mine.append(len(cost))
                lower.append(0.0)
                upper.append(t1 - t0)
                cost.append((e1 - e0) / (t1 - t0))
            segments.append(mine)
        self._highs.addVars(len(cost), np.array(lower), np.array(upper))
        self._highs.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), np.array(cost))
        for (i, j), latency in zip(self.instance.edges.tolist(), self.instance.latency.tolist(), strict=True):
            # start_j - start_i - sum of i's segments >= fastest_i + latency
            columns = [j, i, *segments[i]]
            values = [1.0, -1.0] + [-1.0] * len(segments[i])
            bound = hulls[i][0][0] + latency
            self._highs.addRow(bound, highspy.kHighsInf, len(columns), np.array(columns), np.array(values))
        self._deadline_rows = []
        for i, hull in enumerate(hulls):
            columns = [i, *segments[i]]
            self._deadline_rows.append((self._highs.getNumRow(), hull[0][0]))
            self._highs.addRow(-highspy.kHighsInf, 0.0, len(columns), np.array(columns), np.ones(len(columns)))

    def effective_energy_at(self, time_s: float) -> float:
        """Return the least sum of effective energies, J."""
        deadline = time_s / self.instance.time_unit
        for row, fastest in self._deadline_rows:
            self._highs.changeRowBounds(row, -highspy.kHighsInf, deadline - fastest)
        self._highs.run()
        assert self._highs.getModelStatus() == highspy.HighsModelStatus.kOptimal, self._highs.getModelStatus()
        return float(self._highs.getObjectiveValue() + self._fixed_energy) * self.instance.energy_unit

    def energy_at(self, time_s: float) -> float:
        """Return the least energy of the pipeline until ``time_s``, J."""
        return self.effective_energy_at(time_s) + self.instance.power_w * time_s
