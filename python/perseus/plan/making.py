"""Plans from a profile: every operation gets one profiled choice."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perseus.errors import InfeasibleTimeError, PlanError, SolveError
from perseus.plan.blocking import energy_until_j, rank_powers_w
from perseus.plan.choices import ChoiceTable, collect_choices
from perseus.plan.frequency_plan import FrequencyPlan

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from perseus.dag import PipelineDag
    from perseus.profiles import OperationProfile, Profiles

# Operations that the local search may visit, times (operations + dependencies): a few ms for 1536 operations.
_EXCHANGE_EFFORT = 64
# A bound this little above the plan's energy, relatively, is the bound's own rounding.
_BOUND_TOLERANCE = 1e-9


def make_plan(
    dag: PipelineDag,
    profiles: Profiles,
    planned_durations_s: ArrayLike,
    deadline_s: float,
    lower_bound: Callable[[float], float],
    wait_until_s: float | None = None,
) -> FrequencyPlan:
    """Turn continuous durations into one profiled choice for each operation, within a deadline.

    Rounds the durations down to profiled ones, reclaims the slack that is left and exchanges choices locally
    (``cpp/include/perseus/plan_rounding.hpp`` gives the method). Deterministic.

    Parameters
    ----------
    dag, profiles:
        The operations and what each can choose from.
    planned_durations_s:
        Shape (num_operations,): durations that meet the deadline, best the optimal ones of `Frontier.durations_at`.
        Durations that miss it are ignored: the plan then starts from the fastest choices.
    deadline_s:
        The plan's time is at most this.
    lower_bound:
        Gives for an iteration time (s) the least energy (J) of the pipeline until then; called with the plan's own
        time.
    wait_until_s:
        Time of a straggler for which all GPUs wait: the plan's energies count until then.

    Raises
    ------
    InfeasibleTimeError
        Even the fastest choices take longer than the deadline.
    ProfileError
        The profile lacks a stage and kind of the pipeline, or a rank's stages differ in blocking power.
    PlanError
        The durations or times are not numbers, or `wait_until_s` is before the plan ends.
    """
    deadline_s = _checked_time("deadline_s", deadline_s)
    planned_s = _checked_durations(dag, planned_durations_s)
    powers_w = rank_powers_w(dag, profiles)
    table = collect_choices(dag, profiles, powers_w, lambda stage, kind: profiles.curve(stage, kind).pareto_indices)
    rounded = _rounded(dag, table, planned_s, deadline_s)
    costs = _Costs.of(table, table.entries(rounded.choices))
    return _finished_plan(
        dag, profiles, powers_w, costs, rounded.start_times_s, rounded.makespan_s, lower_bound, deadline_s, wait_until_s
    )


def max_clock_plan(
    dag: PipelineDag,
    profiles: Profiles,
    *,
    wait_until_s: float | None = None,
    lower_bound: Callable[[float], float] | None = None,
) -> FrequencyPlan:
    """Return the plan in which every operation runs at its highest clock, as GPUs do without a plan.

    The highest clock is the greatest ``frequency`` of the operation's profile (the fastest row of it, if there are
    several), or the fastest row where the profile has no frequency. Without `lower_bound` (see `make_plan`) the plan's
    ``lower_bound_j`` is NaN.

    Raises
    ------
    ProfileError, PlanError
        As `make_plan`.
    """
    powers_w = rank_powers_w(dag, profiles)
    costs = _max_clock_costs(dag, profiles, powers_w)
    starts_s, time_s = dag.earliest_starts(costs.durations_s), dag.makespan_s(costs.durations_s)
    return _finished_plan(
        dag, profiles, powers_w, costs, starts_s, time_s, lower_bound or (lambda _: math.nan), time_s, wait_until_s
    )


class _Costs(NamedTuple):
    """What one choice for each operation costs, per operation."""

    durations_s: NDArray[np.float64]
    energies_j: NDArray[np.float64]
    knobs: dict[str, NDArray[Any]]

    @classmethod
    def of(cls, table: ChoiceTable, entries: NDArray[np.int64]) -> _Costs:
        knobs = {name: values[entries] for name, values in table.knobs.items()}
        return cls(table.times_s[entries], table.energies_j[entries], knobs)


class _Rounded(NamedTuple):
    choices: NDArray[np.int32]
    start_times_s: NDArray[np.float64]
    makespan_s: float


def _rounded(dag: PipelineDag, table: ChoiceTable, planned_s: NDArray[np.float64], deadline_s: float) -> _Rounded:
    from perseus import _native  # only here: a plan file is read and shown without the native module

    result = _native.round_plan(
        table.offsets,
        table.times_s,
        table.effective_energies_j,
        table.menu_of,
        planned_s,
        np.ascontiguousarray(dag.edges[:, 0]),
        np.ascontiguousarray(dag.edges[:, 1]),
        dag.latency_s,
        deadline_s,
        reclaim=True,
        exchange_effort=_EXCHANGE_EFFORT,
    )
    if result.status == _native.RoundingStatus.deadline_too_short:
        raise InfeasibleTimeError(
            f"the deadline is {deadline_s:.9g} s, but the fastest choices of all operations take "
            f"{result.makespan_s:.9g} s; ask for that or more",
            result.makespan_s,
        )
    if result.status != _native.RoundingStatus.complete:
        raise SolveError(f"the plan could not be made: the operations are {result.status.name}; please report this")
    return _Rounded(result.choices, result.start_times_s, result.makespan_s)


def _finished_plan(
    dag: PipelineDag,
    profiles: Profiles,
    powers_w: NDArray[np.float64],
    costs: _Costs,
    start_times_s: NDArray[np.float64],
    time_s: float,
    lower_bound: Callable[[float], float],
    deadline_s: float,
    wait_until_s: float | None,
) -> FrequencyPlan:
    """Return the plan with its energies: its own, the bound, and the highest clocks' until the same time."""
    if wait_until_s is not None and _checked_time("wait_until_s", wait_until_s) < time_s:
        raise PlanError(
            f"wait_until_s is {wait_until_s:.9g}, but the plan takes {time_s:.9g} s; a straggler ends no earlier than "
            "the pipeline that waits for it: give its iteration time, or a shorter deadline"
        )
    until_s = time_s if wait_until_s is None else float(wait_until_s)
    energy_j = energy_until_j(dag, costs.durations_s, costs.energies_j, powers_w, until_s)
    bound_j = lower_bound(time_s) + float(powers_w.sum()) * (until_s - time_s)
    if energy_j < bound_j <= energy_j + _BOUND_TOLERANCE * abs(energy_j):
        bound_j = energy_j
    return FrequencyPlan(
        dag=dag,
        time_s=time_s,
        energy_j=energy_j,
        lower_bound_j=bound_j,
        baseline_energy_j=_baseline_energy_j(dag, profiles, powers_w, until_s),
        deadline_s=deadline_s,
        wait_until_s=None if wait_until_s is None else until_s,
        knobs=costs.knobs,
        start_times_s=start_times_s,
        durations_s=costs.durations_s,
        energies_j=costs.energies_j,
        blocking_power_w=powers_w,
    )


def _baseline_energy_j(dag: PipelineDag, profiles: Profiles, powers_w: NDArray[np.float64], until_s: float) -> float:
    """Return the energy of the highest clocks until a time, or until they end where that is later."""
    costs = _max_clock_costs(dag, profiles, powers_w)
    end_s = max(until_s, dag.makespan_s(costs.durations_s))
    return energy_until_j(dag, costs.durations_s, costs.energies_j, powers_w, end_s)


def _max_clock_costs(dag: PipelineDag, profiles: Profiles, powers_w: NDArray[np.float64]) -> _Costs:
    table = collect_choices(dag, profiles, powers_w, lambda stage, kind: _max_clock_row(profiles[stage, kind]))
    return _Costs.of(table, table.entries(0))


def _max_clock_row(profile: OperationProfile) -> NDArray[np.intp]:
    """Return the row of the highest clock, as an array of one; rows go by time, so the fastest of several is first."""
    frequencies = profile.knobs.get("frequency")
    if frequencies is None or frequencies.dtype.kind != "f":
        return np.zeros(1, dtype=np.intp)
    return np.array([np.argmax(frequencies)], dtype=np.intp)


def _checked_time(name: str, value: float) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0.0:
        raise PlanError(f"{name} is {value!r}; it must be a finite number of seconds, at least 0")
    return number


def _checked_durations(dag: PipelineDag, durations_s: ArrayLike) -> NDArray[np.float64]:
    durations = np.asarray(durations_s, dtype=np.float64)
    if durations.shape != (dag.num_operations,):
        raise PlanError(
            f"planned_durations_s has shape {durations.shape}; it must be ({dag.num_operations},), "
            "one duration for each operation"
        )
    wrong = np.flatnonzero(~(np.isfinite(durations) & (durations >= 0.0)))
    if wrong.size:
        raise PlanError(
            f"planned_durations_s[{wrong[0]}] is {durations[wrong[0]]}; "
            "a duration is a finite number of seconds, at least 0"
        )
    return durations
