"""An iteration as a plan would run it: when each operation starts, who waits, and where the energy goes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from perseus.errors import PlanError
from perseus.plan.blocking import rank_powers_w
from perseus.plan.planner import Planner, checked_time
from perseus.report.critical_path import critical_operations

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from perseus.dag import PipelineDag
    from perseus.plan import FrequencyPlan
    from perseus.profiles import OperationProfile, Profiles


@dataclass(frozen=True, kw_only=True, eq=False)
class Simulation:
    """One iteration, simulated. Made by `simulate`.

    Attributes
    ----------
    dag:
        The operations.
    time_s:
        When the last operation ends.
    until_s:
        When the iteration is over for all ranks: `time_s`, or later if a straggler is waited for.
    start_times_s, durations_s, energies_j:
        (num_operations,).
    blocking_power_w:
        (num_ranks,): what each rank's GPU draws while it waits.
    max_clock_compute_energy_j:
        What the operations would use at their highest clocks.
    """

    dag: PipelineDag
    time_s: float
    until_s: float
    start_times_s: NDArray[np.float64]
    durations_s: NDArray[np.float64]
    energies_j: NDArray[np.float64]
    blocking_power_w: NDArray[np.float64]
    max_clock_compute_energy_j: float

    @property
    def end_times_s(self) -> NDArray[np.float64]:
        """When each operation ends; (num_operations,)."""
        return np.add(self.start_times_s, self.durations_s, dtype=np.float64)

    @cached_property
    def blocking_s(self) -> NDArray[np.float64]:
        """How long each rank waits until the iteration is over; (num_ranks,)."""
        busy_s = np.bincount(self.dag.rank, weights=self.durations_s, minlength=self.dag.num_ranks)
        return np.subtract(self.until_s, busy_s, dtype=np.float64)

    @property
    def compute_energy_j(self) -> float:
        """What the operations use: the useful part."""
        return float(self.energies_j.sum())

    @property
    def bloat_removed_j(self) -> float:
        """What the operations would use more at their highest clocks."""
        return self.max_clock_compute_energy_j - self.compute_energy_j

    @property
    def blocking_energy_j(self) -> float:
        """What the GPUs use while they wait."""
        return float(self.blocking_power_w @ self.blocking_s)

    @property
    def energy_j(self) -> float:
        """All that the pipeline uses until the iteration is over."""
        return self.compute_energy_j + self.blocking_energy_j

    @cached_property
    def is_critical(self) -> NDArray[np.bool_]:
        """The operations that cannot take longer without the iteration taking longer; (num_operations,)."""
        return critical_operations(self.start_times_s, self.durations_s, self.dag.edges, self.dag.latency_s)

    def power_at(self, times_s: ArrayLike) -> NDArray[np.float64]:
        """Return what each rank's GPU draws at some times, W: the average over the operation that runs.

        Parameters
        ----------
        times_s:
            (k,) seconds since the iteration began.

        Returns
        -------
        NDArray
            (num_ranks, k). Blocking power where nothing runs; 0 before the iteration and after it is over.
        """
        times = np.asarray(times_s, dtype=np.float64)
        power_w = np.empty((self.dag.num_ranks, times.size))
        ends_s = self.end_times_s
        order = np.lexsort((ends_s, self.start_times_s, self.dag.rank))
        bounds = np.searchsorted(self.dag.rank[order], np.arange(self.dag.num_ranks + 1))
        for rank in range(self.dag.num_ranks):
            power_w[rank] = self.blocking_power_w[rank]
            here = order[bounds[rank] : bounds[rank + 1]]
            here = here[self.durations_s[here] > 0.0]
            if here.size:
                latest = np.searchsorted(self.start_times_s[here], times, side="right") - 1
                running = (latest >= 0) & (times < ends_s[here[latest]])
                operations = here[latest[running]]
                power_w[rank, running] = self.energies_j[operations] / self.durations_s[operations]
        power_w[:, (times < 0.0) | (times >= self.until_s)] = 0.0
        return power_w

    def power_steps_s(self) -> NDArray[np.float64]:
        """Return all times at which the power of some rank may change, ascending; between them it is constant."""
        return np.unique(np.concatenate(([0.0, self.until_s], self.start_times_s, self.end_times_s)))


def simulate(
    dag: PipelineDag, profiles: Profiles, plan: FrequencyPlan, *, wait_until_s: float | None = None
) -> Simulation:
    """Run one iteration on paper: every operation starts as soon as its predecessors allow.

    Parameters
    ----------
    dag:
        The operations, as many as the plan has.
    profiles:
        Gives times and energies of the plan's knobs; may be newer than the plan.
    plan:
        One knob for each operation.
    wait_until_s:
        When a straggler ends that all ranks wait for, s; by default the plan's, if it has one.

    Raises
    ------
    PlanError
        The plan is for other operations, asks for knobs that the profile lacks, or takes longer than the straggler.
    ProfileError
        The profile lacks an operation.
    """
    if plan.durations_s.shape != (dag.num_operations,):
        raise PlanError(
            f"the plan is for {plan.durations_s.size} operations, the pipeline has {dag.num_operations}; "
            "simulate a plan of this pipeline"
        )
    durations_s, energies_j = _costs_of_knobs(dag, profiles, plan)
    time_s = dag.makespan_s(durations_s)
    asked_s = plan.wait_until_s if wait_until_s is None else checked_time("wait_until_s", wait_until_s)
    if asked_s is not None and asked_s < time_s * (1.0 - 1e-12):
        raise PlanError(
            f"the plan takes {time_s:.9g} s on this profile, but the straggler ends at {asked_s:.9g} s; "
            "a straggler ends no earlier than the pipeline that waits for it"
        )
    return Simulation(
        dag=dag,
        time_s=time_s,
        until_s=time_s if asked_s is None else max(asked_s, time_s),
        start_times_s=dag.earliest_starts(durations_s),
        durations_s=durations_s,
        energies_j=energies_j,
        blocking_power_w=rank_powers_w(dag, profiles),
        max_clock_compute_energy_j=float(Planner(dag, profiles).max_clock_costs.energies_j.sum()),
    )


def _costs_of_knobs(
    dag: PipelineDag, profiles: Profiles, plan: FrequencyPlan
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return time and energy of each operation at the plan's knobs."""
    names = [name for name in profiles.knob_names if name in plan.knobs]
    durations_s, energies_j = dag.fixed_time_s.copy(), dag.fixed_energy_j.copy()
    measured = np.isnan(durations_s)
    for stage in np.unique(dag.stage[measured]).tolist():
        for code in np.unique(dag.kind_code[measured & (dag.stage == stage)]).tolist():
            (here,) = np.nonzero(measured & (dag.stage == stage) & (dag.kind_code == code))
            profile = profiles[stage, dag.kinds[code]]
            rows = _rows_of_knobs(profile, {name: plan.knobs[name][here] for name in names}, len(here))
            durations_s[here], energies_j[here] = profile.times_s[rows], profile.energies_j[rows]
    return durations_s, energies_j


def _rows_of_knobs(profile: OperationProfile, knobs: dict[str, NDArray[Any]], count: int) -> NDArray[np.intp]:
    """Return the profile's fastest row with each combination of knobs; rows go by time, so the first."""
    row_of: dict[tuple[float | str, ...], int] = {}
    for row, values in enumerate(zip(*(profile.knobs[name].tolist() for name in knobs), strict=True)):
        row_of.setdefault(values, row)
    if not knobs:
        row_of = {(): 0}
    wanted = list(zip(*(values.tolist() for values in knobs.values()), strict=True)) if knobs else [()] * count
    missing = next((values for values in wanted if values not in row_of), None)
    if missing is not None:
        setting = ", ".join(f"{name}={value}" for name, value in zip(knobs, missing, strict=True))
        raise PlanError(
            f"the plan sets {setting} for {profile.kind} of stage {profile.stage}, which the profile has not measured; "
            "profile it, or plan anew"
        )
    return np.fromiter((row_of[values] for values in wanted), dtype=np.intp, count=count)
