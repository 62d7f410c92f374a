"""Perseus as it was published: fitted curves on a grid of times, steps of a fixed size, durations rounded down.

Reference: Chung et al., Reducing energy bloat in large model training, SOSP 2024, section 4. Each operation's Pareto
points of (time, energy) are fitted by a * exp(b * t) + c, minus blocking power; times are whole numbers of steps. On
those curves the published iteration finds the optimum for every whole number of steps, and so does the solver here,
which is used instead. Each operation then gets the slowest clock that is no slower than planned, and nothing more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from perseus.baselines.clocks import LowerBound, plan_of_costs, used_keys
from perseus.errors import PlanError
from perseus.plan.choices import collect_choices
from perseus.plan.planner import Costs, Planner
from perseus.profiles import read_profiles
from perseus.solve import solve_frontier

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perseus.dag import PipelineDag
    from perseus.plan import FrequencyPlan
    from perseus.profiles import OperationProfile, Profiles

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
# Decay of the fit over the range of times: nearly a straight line up to nearly a step.
_DECAY_RANGE = (1e-3, 50.0)


def fixed_step_perseus(
    dag: PipelineDag,
    profiles: Profiles,
    *,
    deadline_s: float | None = None,
    step_s: float = 1e-3,
    wait_until_s: float | None = None,
    lower_bound: LowerBound | None = None,
) -> FrequencyPlan:
    """Return the plan of the published method.

    Parameters
    ----------
    deadline_s:
        Iteration time to plan for, s; the shortest by default. The plan may take longer than planned by up to a step
        for each operation on the critical path, as published: times are rounded to the nearest step.
    step_s:
        Size of the steps in time, s.
    wait_until_s, lower_bound:
        As in `perseus.max_clock_plan`.

    Raises
    ------
    PlanError
        The step is not a positive number.
    ProfileError
        The profile lacks an operation, or an operation of fixed time is planned for.
    """
    if not (math.isfinite(step_s) and step_s > 0.0):
        raise PlanError(f"step_s is {step_s!r}; it must be a positive number of seconds")
    planner = Planner(dag, profiles)
    keys = used_keys(dag)
    rows_of = {key: _pareto_rows(profiles[key]) for key in keys}
    fitted = _fitted_profiles(profiles, rows_of, step_s)
    frontier = solve_frontier(dag, fitted)
    planned_for_s = frontier.min_time_s if deadline_s is None else max(deadline_s, frontier.min_time_s)
    steps = np.rint(frontier.durations_at(min(planned_for_s, frontier.max_time_s)) / step_s)
    table = collect_choices(dag, profiles, planner.powers_w, lambda stage, kind: rows_of[stage, kind])
    entries = table.entries(_rounded_down(table.offsets, np.rint(table.times_s / step_s), table.menu_of, steps))
    return plan_of_costs(
        planner,
        Costs.of(table, entries),
        wait_until_s=wait_until_s,
        lower_bound=lower_bound,
    )


def _rounded_down(
    offsets: NDArray[np.int64], steps_of: NDArray[np.float64], menu_of: NDArray[np.int32], planned: NDArray[np.float64]
) -> NDArray[np.int32]:
    """Return each operation's slowest choice that is no longer than planned."""
    choices = np.zeros(len(menu_of), dtype=np.int32)
    for menu in range(len(offsets) - 1):
        here = menu_of == menu
        steps = steps_of[offsets[menu] : offsets[menu + 1]]
        choices[here] = np.maximum(np.searchsorted(steps, planned[here], side="right") - 1, 0)
    return choices


def _pareto_rows(profile: OperationProfile) -> NDArray[np.intp]:
    """Return the rows that no other beats in time and energy, by time; rows go by time, then energy."""
    least_before_j = np.minimum.accumulate(np.concatenate(([np.inf], profile.energies_j[:-1])))
    return np.flatnonzero(profile.energies_j < least_before_j)


def _fitted_profiles(profiles: Profiles, rows_of: dict[tuple[int, str], NDArray[np.intp]], step_s: float) -> Profiles:
    """Return profiles of effective energy, with a point at each whole number of steps."""
    stages: list[int] = []
    kinds: list[str] = []
    times_s: list[float] = []
    energies_j: list[float] = []
    for (stage, kind), rows in rows_of.items():
        profile = profiles[stage, kind]
        t, e = profile.times_s[rows], profile.energies_j[rows]
        grid_s: NDArray[np.float64] = (
            np.arange(max(round(float(t[0]) / step_s), 1), max(round(float(t[-1]) / step_s), 1) + 1.0) * step_s
        )
        sampled_j = _fit(t, e - profiles.blocking_power_w[stage] * t, grid_s)
        stages += [stage] * len(grid_s)
        kinds += [kind] * len(grid_s)
        times_s += grid_s.tolist()
        energies_j += sampled_j.tolist()
    lift_j = max(0.0, -min(energies_j)) + 1.0  # a profile's energies are positive; a constant changes no plan
    columns = {
        "stage": stages,
        "instruction": kinds,
        "frequency": list(range(len(times_s), 0, -1)),
        "time": times_s,
        "energy": [energy_j + lift_j for energy_j in energies_j],
    }
    return read_profiles(columns, blocking_power_w=dict.fromkeys(stages, 0.0))


def _fit(
    times_s: NDArray[np.float64], energies_j: NDArray[np.float64], at_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return a * exp(b * t) + c at some times, fitted by least squares; exact through one or two points."""
    span_s = float(times_s[-1] - times_s[0])
    if len(times_s) < 3:
        return np.interp(at_s, times_s, energies_j)
    share = (times_s - times_s[0]) / span_s

    def solve(decay: float) -> tuple[float, NDArray[np.float64]]:
        basis = np.column_stack((np.exp(-decay * share), np.ones_like(share)))
        weights, *_ = np.linalg.lstsq(basis, energies_j, rcond=None)
        return float(np.sum((basis @ weights - energies_j) ** 2)), weights

    low, high = (math.log(decay) for decay in _DECAY_RANGE)
    while high - low > 1e-6:
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if solve(math.exp(left))[0] < solve(math.exp(right))[0]:
            high = right
        else:
            low = left
    decay = math.exp((low + high) / 2.0)
    _, weights = solve(decay)
    fitted: NDArray[np.float64] = weights[0] * np.exp(-decay * (at_s - times_s[0]) / span_s) + weights[1]
    return fitted
