"""Zeus for pipelines: one clock (or power limit) for all GPUs, or one for each stage.

Reference: Chung et al., Reducing energy bloat in large model training, SOSP 2024, section 6: "ZeusGlobal scans one
global power limit for all stages", "ZeusPerStage finds a set of per-stage power limits that balances forward time".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseus.baselines.clocks import LowerBound, best_within, knob_of, plan_of_rows, rows_by_value, used_keys
from perseus.plan.planner import Planner

if TYPE_CHECKING:
    from perseus.dag import PipelineDag
    from perseus.plan import FrequencyPlan
    from perseus.profiles import Profiles

_FORWARD = "forward"


def zeus_global_plans(
    dag: PipelineDag,
    profiles: Profiles,
    *,
    knob: str | None = None,
    wait_until_s: float | None = None,
    lower_bound: LowerBound | None = None,
) -> list[FrequencyPlan]:
    """Return one plan for each value of a knob that all operations were measured at, fastest first.

    Parameters
    ----------
    knob:
        Which knob; the profile's first, usually ``frequency``, by default.
    wait_until_s, lower_bound:
        As in `perseus.max_clock_plan`. Plans that end after `wait_until_s` are left out.
    """
    planner, knob = Planner(dag, profiles), knob_of(profiles, knob)
    rows = {key: rows_by_value(profiles[key], knob) for key in used_keys(dag)}
    values = set.intersection(*(set(by_value) for by_value in rows.values())) if rows else set()
    plans = (
        plan_of_rows(planner, {key: by_value[value] for key, by_value in rows.items()}, lower_bound=lower_bound)
        for value in values
    )
    return _waiting(planner, sorted(plans, key=lambda plan: plan.time_s), wait_until_s, lower_bound)


def zeus_global(
    dag: PipelineDag,
    profiles: Profiles,
    *,
    deadline_s: float | None = None,
    knob: str | None = None,
    wait_until_s: float | None = None,
    lower_bound: LowerBound | None = None,
) -> FrequencyPlan:
    """Return the best plan with one clock for all GPUs: of least energy until the deadline, or at all without one.

    Raises
    ------
    InfeasibleTimeError
        No clock meets the deadline.
    PlanError
        The operations have no clock in common.
    """
    plans = zeus_global_plans(dag, profiles, knob=knob, wait_until_s=wait_until_s, lower_bound=lower_bound)
    return best_within(plans, deadline_s)


def zeus_per_stage_plans(
    dag: PipelineDag,
    profiles: Profiles,
    *,
    knob: str | None = None,
    wait_until_s: float | None = None,
    lower_bound: LowerBound | None = None,
) -> list[FrequencyPlan]:
    """Return plans with one clock for each stage such that forward passes take equally long, fastest first.

    For each forward time of the stage whose fastest is slowest: every stage takes the slowest clock at which its
    forward pass is no longer than that, and runs all its operations at it.

    Parameters
    ----------
    knob, wait_until_s, lower_bound:
        As in `zeus_global_plans`.
    """
    planner, knob = Planner(dag, profiles), knob_of(profiles, knob)
    keys = used_keys(dag)
    rows = {key: rows_by_value(profiles[key], knob) for key in keys}
    forward_s: dict[int, dict[float | str, float]] = {}
    for stage in sorted({stage for stage, _ in keys}):
        reference = _reference_kind([kind for s, kind in keys if s == stage])
        common = set.intersection(*(set(rows[key]) for key in keys if key[0] == stage))
        times_s = profiles[stage, reference].times_s
        forward_s[stage] = {value: float(times_s[rows[stage, reference][value]]) for value in common}
    if not all(forward_s.values()):
        return []
    targets = max(forward_s.values(), key=lambda times_s: min(times_s.values())).values()
    chosen = {tuple(_slowest_within(times_s, target_s) for times_s in forward_s.values()) for target_s in targets}
    plans = []
    for values in chosen:
        value_of = dict(zip(forward_s, values, strict=True))
        row_of = {key: rows[key][value_of[key[0]]] for key in keys}
        plans.append(plan_of_rows(planner, row_of, lower_bound=lower_bound))
    return _waiting(planner, sorted(plans, key=lambda plan: plan.time_s), wait_until_s, lower_bound)


def zeus_per_stage(
    dag: PipelineDag,
    profiles: Profiles,
    *,
    deadline_s: float | None = None,
    knob: str | None = None,
    wait_until_s: float | None = None,
    lower_bound: LowerBound | None = None,
) -> FrequencyPlan:
    """Return the best plan with one clock for each stage: of least energy until the deadline, or at all without one.

    Raises
    ------
    InfeasibleTimeError, PlanError
        As `zeus_global`.
    """
    plans = zeus_per_stage_plans(dag, profiles, knob=knob, wait_until_s=wait_until_s, lower_bound=lower_bound)
    return best_within(plans, deadline_s)


def _reference_kind(kinds: list[str]) -> str:
    """Return the kind whose time is balanced: forward, or the first there is."""
    return _FORWARD if _FORWARD in kinds else min(kinds)


def _slowest_within(times_s: dict[float | str, float], limit_s: float) -> float | str:
    """Return the value of the longest time within a limit, or of the shortest time."""
    within = {value: time_s for value, time_s in times_s.items() if time_s <= limit_s}
    if within:
        return max(within, key=lambda value: within[value])
    return min(times_s, key=lambda value: times_s[value])


def _waiting(
    planner: Planner, plans: list[FrequencyPlan], wait_until_s: float | None, lower_bound: LowerBound | None
) -> list[FrequencyPlan]:
    """Return the plans with the wait for a straggler, without those that end after it."""
    if wait_until_s is None:
        return plans
    return [planner.waiting(plan, wait_until_s, lower_bound) for plan in plans if plan.time_s <= wait_until_s]
