"""Plans from a profile: every operation gets one profiled choice."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from perseus.errors import PlanError
from perseus.plan.effort import THOROUGH, rounding_options
from perseus.plan.frequency_plan import FrequencyPlan
from perseus.plan.planner import Planner, checked_time

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from perseus.dag import PipelineDag
    from perseus.profiles import Profiles


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
    deadline_s = checked_time("deadline_s", deadline_s)
    planned_s = _checked_durations(dag, planned_durations_s)
    planner = Planner(dag, profiles)
    rounded = planner.space.round(planned_s, deadline_s, rounding_options(THOROUGH))
    return planner.finish(planner.checked(rounded, deadline_s), lower_bound, deadline_s, wait_until_s)


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
    planner = Planner(dag, profiles)
    costs, time_s = planner.max_clock_costs, planner.max_clock_time_s
    starts_s = dag.earliest_starts(costs.durations_s)
    return planner.plan_of(costs, starts_s, time_s, lower_bound or (lambda _: math.nan), time_s, wait_until_s)


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
