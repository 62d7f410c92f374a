"""The least energy of one iteration time as a linear program, solved by HiGHS and enclosed by exact bounds.

Shares nothing with the solver: it reads the measured points, makes its own hulls, and knows no frontier and no maximum
flow. Variables: the deadline, a start time for each operation, and for each segment of its hull how far the duration
reaches into it. By convexity the segments fill in the right order by themselves.

HiGHS works in doubles with absolute tolerances, which says little where magnitudes are mixed. So its answer is only a
hint, from which `bounds_at` makes two numbers in integer arithmetic that no tolerance enters:

- an upper bound: its start times, moved to the nearest ones that keep every precedence and the deadline exactly;
- a lower bound: its multipliers, made to conserve flow exactly. For any such flow f of value F, weak duality gives
  sum over operations of min over hull vertices (energy + f * time) + sum over edges f * latency - F * deadline.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import highspy
import numpy as np

import perseus

# Scaled times are whole multiples of 2^-TIME_BITS, multipliers of 2^-FLOW_BITS, and energies of the product.
TIME_BITS = 100
FLOW_BITS = 60
ENERGY_BITS = TIME_BITS + FLOW_BITS
# The longest time in the units of HiGHS. The smaller it is, the more energy the absolute tolerance on times is worth on
# steep curves; the larger it is, the more HiGHS is asked of doubles. The finer ones are for where the first fails.
LONGEST_TIME = 2.0**6
FINER_TIMES = (2.0**12, 2.0**18)
# The bounds enclose the least energy to this share of what all operations' energies can vary by, or the oracle fails.
PRECISION = 1e-9


class Bounds(NamedTuple):
    """Two numbers (J) between which the least energy lies."""

    lower_j: float
    upper_j: float


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


def power_of_two(size: float) -> float:
    """Return the power of two next to a size, by which floats can be divided without rounding."""
    return 2.0 ** round(math.log2(size)) if size > 0.0 else 1.0


def whole(value: float, bits: int) -> int:
    """Return a number in units of 2^-bits; exact unless it needs finer ones."""
    return int(Fraction(value) * 2**bits)


@dataclass
class Instance:
    """An instance in units of about its own size, so that HiGHS works on numbers around 1."""

    hulls: list[list[tuple[float, float]]]  # per operation: times over time_unit, energies over energy_unit
    edges: np.ndarray
    latency: np.ndarray
    time_unit: float  # a power of two, as is energy_unit
    energy_unit: float
    power_w: float  # of all ranks together
    range_j: float  # how much all effective energies together can vary by
    steepest_w: float  # how much they can vary by per second
    size_j: float  # of the numbers whose differences are the effective energies

    @classmethod
    def of(cls, dag: perseus.PipelineDag, profiles: perseus.Profiles, longest_time: float) -> Instance:
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
        longest_s = max(max(hull[-1][0] for hull in hulls_s), float(dag.latency_s.max(initial=0.0)))
        time_unit = power_of_two(longest_s / longest_time)
        energy_unit = power_of_two(max(h[0][1] - h[-1][1] for h in hulls_s) or max(abs(h[0][1]) for h in hulls_s))
        return cls(
            hulls=[[(t / time_unit, e / energy_unit) for t, e in hull] for hull in hulls_s],
            edges=dag.edges,
            latency=dag.latency_s / time_unit,
            time_unit=time_unit,
            energy_unit=energy_unit,
            power_w=sum(ranks.values()),
            range_j=sum(hull[0][1] - hull[-1][1] for hull in hulls_s),
            steepest_w=sum((h[0][1] - h[1][1]) / (h[1][0] - h[0][0]) for h in hulls_s if len(h) > 1),
            size_j=sum(
                abs(hull[0][1]) + abs(hull[-1][1]) + 2 * profiles.blocking_power_w[op.stage] * hull[-1][0]
                for op, hull in zip(dag.operations, hulls_s, strict=True)
            ),
        )


class Network:
    """An instance in whole numbers: precedence and the two bounds."""

    def __init__(self, instance: Instance) -> None:
        self.hulls = [[(whole(t, TIME_BITS), whole(e, ENERGY_BITS)) for t, e in hull] for hull in instance.hulls]
        self.edges: list[tuple[int, int]] = [(i, j) for i, j in instance.edges.tolist()]
        self.latency = [whole(latency, TIME_BITS) for latency in instance.latency.tolist()]
        self.incoming: list[list[int]] = [[] for _ in self.hulls]
        self.outgoing: list[list[int]] = [[] for _ in self.hulls]
        for edge, (i, j) in enumerate(self.edges):
            self.outgoing[i].append(edge)
            self.incoming[j].append(edge)
        self.order = self._order()

    def _order(self) -> list[int]:
        waiting = [len(edges) for edges in self.incoming]
        order = [i for i, count in enumerate(waiting) if count == 0]
        for i in order:  # grows while it is read
            for edge in self.outgoing[i]:
                j = self.edges[edge][1]
                waiting[j] -= 1
                if waiting[j] == 0:
                    order.append(j)
        return order

    def makespan(self, vertex: int) -> int:
        """Return the longest path with every operation at hull vertex 0 or -1."""
        duration = [hull[vertex][0] for hull in self.hulls]
        start = self._pushed_later([0] * len(self.hulls), duration)
        return max(s + d for s, d in zip(start, duration, strict=True))

    def _pushed_later(self, start: list[int], duration: list[int]) -> list[int]:
        start = list(start)
        for i in self.order:
            for edge in self.outgoing[i]:
                j = self.edges[edge][1]
                start[j] = max(start[j], start[i] + duration[i] + self.latency[edge])
        return start

    def _latest_end(self, i: int, start: list[int], deadline: int) -> int:
        return min([deadline, *(start[self.edges[edge][1]] - self.latency[edge] for edge in self.outgoing[i])])

    def upper_bound(self, start: list[int], deadline: int) -> int:
        """Return the energy of a feasible solution near the given start times; the deadline must be possible."""
        fastest = [hull[0][0] for hull in self.hulls]
        start = self._pushed_later([max(0, s) for s in start], fastest)
        latest = [0] * len(self.hulls)
        for i in reversed(self.order):
            latest[i] = self._latest_end(i, latest, deadline) - fastest[i]
            assert latest[i] >= 0, "the deadline is below the shortest makespan"
            start[i] = min(start[i], latest[i])
        return sum(
            energy_at(hull, self._latest_end(i, start, deadline) - start[i]) for i, hull in enumerate(self.hulls)
        )

    def conserving(self, edge_flow: list[int], end_flow: list[int]) -> tuple[list[int], list[int]]:
        """Return flows near the given ones that are conserved in each operation: per edge, and through each."""
        edge_flow, through = list(edge_flow), [0] * len(self.hulls)
        for i in reversed(self.order):
            # What leaves an operation came in by its edges, in proportion to their hints, or else from the start.
            through[i] = end_flow[i] + sum(edge_flow[edge] for edge in self.outgoing[i])
            left, total = through[i], sum(edge_flow[edge] for edge in self.incoming[i])
            for edge in self.incoming[i]:
                hint = edge_flow[edge]
                edge_flow[edge] = left * hint // total if total > 0 else 0
                left, total = left - edge_flow[edge], total - hint
        return edge_flow, through

    def dual_constant(self, edge_flow: list[int], through: list[int]) -> int:
        """Return the lower bound of a conserved flow for a deadline of 0."""
        least = sum(min(e + f * t for t, e in hull) for hull, f in zip(self.hulls, through, strict=True))
        return least + sum(f * latency for f, latency in zip(edge_flow, self.latency, strict=True))


def energy_at(hull: list[tuple[int, int]], duration: int) -> int:
    """Return the energy of a duration on a hull, rounded up."""
    assert duration >= hull[0][0]
    for (t0, e0), (t1, e1) in itertools.pairwise(hull):
        if duration <= t1:
            return -((-e0 * (t1 - t0) - (e1 - e0) * (duration - t0)) // (t1 - t0))
    return hull[-1][1]


class LinearProgram:
    """The LP of an instance, solved for one deadline after the other, each warm from the last."""

    def __init__(
        self, dag: perseus.PipelineDag, profiles: perseus.Profiles, longest_time: float = LONGEST_TIME
    ) -> None:
        self.instance = Instance.of(dag, profiles, longest_time)
        self._source = dag, profiles
        self.network = Network(self.instance)
        self._shortest, self._longest = self.network.makespan(0), self.network.makespan(-1)
        self.shortest_s = self._seconds(self._shortest)
        self.longest_s = self._seconds(self._longest)
        self._highs = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("threads", 1)
        for tolerance in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            self._highs.setOptionValue(tolerance, 1e-10)
        self._fixed_energy = sum(hull[0][1] for hull in self.instance.hulls)
        self._build()

    def _seconds(self, duration: int) -> float:
        """Return a time as the next float that is not below it."""
        seconds = float(Fraction(duration, 2**TIME_BITS))
        seconds = math.nextafter(seconds, math.inf) if Fraction(seconds) * 2**TIME_BITS < duration else seconds
        return seconds * self.instance.time_unit

    def _build(self) -> None:
        """Columns: deadline, start times, segments. Rows: an edge each, then the end of each last operation."""
        hulls, infinity = self.instance.hulls, highspy.kHighsInf
        n = len(hulls)
        upper, cost = [infinity] * (n + 1), [0.0] * (n + 1)
        self._segments: list[list[int]] = []
        for hull in hulls:
            self._segments.append(list(range(len(cost), len(cost) + len(hull) - 1)))
            for (t0, e0), (t1, e1) in itertools.pairwise(hull):
                upper.append(t1 - t0)
                cost.append((e1 - e0) / (t1 - t0))
        self._highs.addVars(len(cost), np.zeros(len(cost)), np.array(upper))
        self._highs.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), np.array(cost))
        for (i, j), latency in zip(self.network.edges, self.instance.latency.tolist(), strict=True):
            self._add_precedence(i, 1 + j, latency)
        self._last = [i for i in range(n) if not self.network.outgoing[i]]
        for i in self._last:
            self._add_precedence(i, 0, 0.0)

    def _add_precedence(self, i: int, later: int, latency: float) -> None:
        """Add the row: column `later` - start_i - segments_i >= fastest_i + latency."""
        columns = [later, 1 + i, *self._segments[i]]
        values = [1.0] + [-1.0] * (len(columns) - 1)
        bound = self.instance.hulls[i][0][0] + latency
        self._highs.addRow(bound, highspy.kHighsInf, len(columns), np.array(columns), np.array(values))

    def _run(self) -> None:
        self._highs.run()
        assert self._highs.getModelStatus() == highspy.HighsModelStatus.kOptimal, self._highs.getModelStatus()

    def _flows(self) -> tuple[list[int], list[int]]:
        """Return HiGHS's multipliers as a conserved flow: per edge, and through each operation."""
        dual = [max(0, whole(value, FLOW_BITS)) for value in self._highs.getSolution().row_dual]
        end_flow = [0] * len(self.network.hulls)
        for i, flow in zip(self._last, dual[len(self.network.edges) :], strict=True):
            end_flow[i] = flow
        return self.network.conserving(dual[: len(self.network.edges)], end_flow)

    def _joules(self, energy: int) -> float:
        return float(Fraction(energy, 2**ENERGY_BITS)) * self.instance.energy_unit

    def effective_energy_at(self, time_s: float) -> float:
        """Return the least sum of effective energies (J), as HiGHS has it."""
        deadline = time_s / self.instance.time_unit
        self._highs.changeColBounds(0, deadline, deadline)
        self._run()
        return float(self._highs.getObjectiveValue() + self._fixed_energy) * self.instance.energy_unit

    def energy_at(self, time_s: float) -> float:
        """Return the least energy of the pipeline until ``time_s`` (J), as HiGHS has it."""
        return self.effective_energy_at(time_s) + self.instance.power_w * time_s

    def bounds_at(self, time_s: float) -> Bounds:
        """Return exact bounds of the least sum of effective energies."""
        bounds = self._bounds_at(time_s)
        instance = self.instance
        resolution_j = 2.0**-50 * time_s * instance.steepest_w  # what the last bits of a time are worth
        precision_j = PRECISION * instance.range_j + 1e-15 * instance.size_j + resolution_j
        for longest_time in FINER_TIMES:
            if bounds.upper_j - bounds.lower_j > precision_j:
                finer = LinearProgram(*self._source, longest_time)._bounds_at(time_s)
                bounds = Bounds(max(bounds.lower_j, finer.lower_j), min(bounds.upper_j, finer.upper_j))
        assert bounds.upper_j - bounds.lower_j <= precision_j, f"HiGHS's answer is not precise enough: {bounds}"
        return bounds

    def _bounds_at(self, time_s: float) -> Bounds:
        """Return the bounds that one solution of HiGHS gives."""
        self.effective_energy_at(time_s)
        deadline = max(whole(time_s / self.instance.time_unit, TIME_BITS), self._shortest)
        columns = self._highs.getSolution().col_value
        start = [whole(value, TIME_BITS) for value in columns[1 : 1 + len(self.network.hulls)]]
        edge_flow, through = self._flows()
        value = sum(through[i] for i in self._last)
        lower = self.network.dual_constant(edge_flow, through) - value * deadline
        upper = self.network.upper_bound(start, deadline)
        assert lower <= upper
        return Bounds(self._joules(lower), self._joules(upper))

    def least_energy_bound(self) -> float:
        """Return a lower bound of the energy of the pipeline (J) until any time at all; exact like those above."""
        power = self.instance.power_w * self.instance.time_unit / self.instance.energy_unit
        self._highs.changeColBounds(0, 0.0, self.longest_s / self.instance.time_unit)
        self._highs.changeColCost(0, power)
        self._run()
        edge_flow, through = self._flows()
        self._highs.changeColCost(0, 0.0)
        # The bound is linear in the deadline, so least at one of its ends.
        slope = whole(power, FLOW_BITS) - sum(through[i] for i in self._last)
        end = self._shortest if slope >= 0 else self._longest
        return self._joules(self.network.dual_constant(edge_flow, through) + slope * end)
