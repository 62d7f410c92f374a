"""The least energy of one iteration time by trying every combination of durations.

For pipelines whose times are whole seconds. With vertices, latencies and deadline whole, the constraints are those of a
network, which is totally unimodular: some optimal durations are whole, so trying the whole ones is exact. Neither hulls
nor linear programs are needed: the cost of a duration is the cheapest mixture of two measured points, or of one.
"""

from __future__ import annotations

import math

import numpy as np

import perseus


def mixture_energy(points: list[tuple[float, float]], duration: int) -> float:
    """Return the least energy of measured (time, energy) points mixed so that they take at most a duration."""
    least = min((e for t, e in points if t <= duration), default=math.inf)
    for t0, e0 in points:
        for t1, e1 in points:
            if t0 <= duration < t1:
                least = min(least, e0 + (e1 - e0) * (duration - t0) / (t1 - t0))
    return least


class BruteForce:
    """Every combination of whole durations of a pipeline, with its makespan and its energy."""

    def __init__(self, dag: perseus.PipelineDag, profiles: perseus.Profiles) -> None:
        menus = [self._menu(dag, profiles, i) for i in range(dag.num_operations)]
        sizes = [len(menu) for menu in menus]
        choice = np.unravel_index(np.arange(math.prod(sizes)), sizes)
        durations = [np.array(sorted(menu))[c] for menu, c in zip(menus, choice, strict=True)]
        energies = [np.array([menu[d] for d in sorted(menu)])[c] for menu, c in zip(menus, choice, strict=True)]
        self._effective_j = np.sum(energies, axis=0)
        self._makespan = self._longest_paths(dag, durations)
        powers_w = {op.rank: profiles.blocking_power_w[op.stage] for op in dag.operations}
        self._power_w = sum(powers_w.values())

    @classmethod
    def count(cls, dag: perseus.PipelineDag, profiles: perseus.Profiles) -> int:
        """Return the number of combinations."""
        return math.prod(len(cls._menu(dag, profiles, i)) for i in range(dag.num_operations))

    @staticmethod
    def _menu(dag: perseus.PipelineDag, profiles: perseus.Profiles, i: int) -> dict[int, float]:
        """Return an operation's whole durations and their effective energies."""
        stage, kind = dag.operations[i].stage, dag.operations[i].kind
        power_w = profiles.blocking_power_w[stage]
        if not np.isnan(dag.fixed_time_s[i]):
            points = [(float(dag.fixed_time_s[i]), float(dag.fixed_energy_j[i]))]
        else:
            points = list(zip(profiles[stage, kind].times_s, profiles[stage, kind].energies_j, strict=True))
        effective = [(t, e - power_w * t) for t, e in points]
        times = [int(t) for t, _ in points]
        assert times == [t for t, _ in points], "brute force needs whole times"
        return {d: mixture_energy(effective, d) for d in range(min(times), max(times) + 1)}

    @staticmethod
    def _longest_paths(dag: perseus.PipelineDag, durations: list[np.ndarray]) -> np.ndarray:
        ends = [duration.astype(float) for duration in durations]
        for _ in range(dag.num_operations):  # Bellman-Ford needs no order of the operations
            for (i, j), latency in zip(dag.edges.tolist(), dag.latency_s.tolist(), strict=True):
                ends[j] = np.maximum(ends[j], ends[i] + latency + durations[j])
        return np.max(ends, axis=0)

    @property
    def shortest(self) -> int:
        """The shortest makespan."""
        return int(self._makespan.min())

    def energy_at(self, deadline: int) -> float:
        """Return the least energy of the pipeline until a whole time, J."""
        return float(self._effective_j[self._makespan <= deadline].min()) + self._power_w * deadline
