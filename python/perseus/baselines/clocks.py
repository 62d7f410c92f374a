"""The clocks that a profile offers, and plans that give each operation one of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from perseus.errors import InfeasibleTimeError, PlanError, ProfileError
from perseus.plan.choices import collect_choices
from perseus.plan.planner import Costs, Planner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perseus.dag import PipelineDag
    from perseus.plan import FrequencyPlan
    from perseus.profiles import OperationProfile, Profiles

Key = tuple[int, str]
LowerBound = Callable[[float], float]


def used_keys(dag: PipelineDag) -> list[Key]:
    """Return the (stage, kind) of the operations that have a choice, sorted."""
    measured = np.isnan(dag.fixed_time_s)
    pairs = np.unique(np.column_stack((dag.stage[measured], dag.kind_code[measured])), axis=0)
    return [(stage, dag.kinds[code]) for stage, code in pairs.tolist()]


def knob_of(profiles: Profiles, knob: str | None) -> str:
    """Return the knob that was asked for, or the profile's first.

    Raises
    ------
    ProfileError
        The profile has no such knob.
    """
    if knob is None and profiles.knob_names:
        return profiles.knob_names[0]
    if knob is None or knob not in profiles.knob_names:
        known = ", ".join(profiles.knob_names) or "none"
        raise ProfileError(f"the profile has no knob {knob or ''!r}, only {known}; name one of those")
    return knob


def rows_by_value(profile: OperationProfile, knob: str) -> dict[float | str, int]:
    """Return for each value of a knob the profile's fastest row with it; rows go by time, so the first."""
    rows: dict[float | str, int] = {}
    for row, value in enumerate(profile.knobs[knob].tolist()):
        rows.setdefault(value, row)
    return rows


def plan_of_rows(
    planner: Planner,
    row_of: Mapping[Key, int],
    *,
    wait_until_s: float | None = None,
    lower_bound: LowerBound | None = None,
) -> FrequencyPlan:
    """Return the plan in which all operations of a stage and kind run at one row of their profile."""
    table = collect_choices(
        planner.dag, planner.profiles, planner.powers_w, lambda stage, kind: np.array([row_of[stage, kind]])
    )
    return plan_of_costs(planner, Costs.of(table, table.entries(0)), wait_until_s=wait_until_s, lower_bound=lower_bound)


def plan_of_costs(
    planner: Planner,
    costs: Costs,
    *,
    deadline_s: float | None = None,
    wait_until_s: float | None = None,
    lower_bound: LowerBound | None = None,
) -> FrequencyPlan:
    """Return the plan of these choices, every operation starting as early as it can."""
    time_s = planner.dag.makespan_s(costs.durations_s)
    starts_s = planner.dag.earliest_starts(costs.durations_s)
    deadline_s = time_s if deadline_s is None else deadline_s
    return planner.plan_of(costs, starts_s, time_s, lower_bound or (lambda _: math.nan), deadline_s, wait_until_s)


def effective_energy_j(plan: FrequencyPlan) -> float:
    """Return the energy of a plan without what its GPUs would draw anyway, J: comparable between times."""
    until_s = plan.time_s if plan.wait_until_s is None else plan.wait_until_s
    return plan.energy_j - float(plan.blocking_power_w.sum()) * until_s


def best_within(plans: list[FrequencyPlan], deadline_s: float | None) -> FrequencyPlan:
    """Return the plan of least energy until the deadline among those that meet it; without one, of least energy.

    Raises
    ------
    InfeasibleTimeError
        None meets the deadline.
    """
    if not plans:
        raise PlanError("there is no clock that all operations have in common; profile all at the same clocks")
    if deadline_s is None:
        return min(plans, key=lambda plan: plan.energy_j)
    in_time = [plan for plan in plans if plan.time_s <= deadline_s * (1.0 + 1e-12)]
    if not in_time:
        shortest_s = min(plan.time_s for plan in plans)
        raise InfeasibleTimeError(
            f"the deadline is {deadline_s:.9g} s, but no clocks of this kind take less than {shortest_s:.9g} s; "
            "ask for that or more",
            shortest_s,
        )
    return min(in_time, key=effective_energy_j)


def ascending_clocks(profile: OperationProfile, knob: str) -> NDArray[np.intp]:
    """Return the profile's rows by ascending value of a numeric knob, the fastest row of each value.

    Raises
    ------
    ProfileError
        The knob is text.
    """
    if profile.knobs[knob].dtype.kind != "f":
        raise ProfileError(f"the knob {knob!r} is text; raising clocks step by step needs numbers in every row")
    rows = rows_by_value(profile, knob)
    return np.array([rows[value] for value in sorted(rows, key=float)], dtype=np.intp)
