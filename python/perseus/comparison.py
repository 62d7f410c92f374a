"""All baselines and our plans side by side, alone and while waiting for stragglers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseus import baselines
from perseus.baselines.clocks import best_within
from perseus.errors import InfeasibleTimeError, PlanError
from perseus.plan.planner import Planner

if TYPE_CHECKING:
    from perseus.dag import PipelineDag
    from perseus.frontier import Frontier
    from perseus.plan import FrequencyPlan
    from perseus.plan.effort import Effort
    from perseus.profiles import Profiles

STRAGGLER_SLOWDOWNS = (1.05, 1.1, 1.2, 1.3, 1.4, 1.5)

OURS = "Perseus"


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedPlan:
    """What one method does in one situation.

    Attributes
    ----------
    method:
        Its name.
    slowdown:
        The straggler's time over the time of the highest clocks, or None without a straggler.
    plan:
        Its energies count until the straggler ends, if there is one.
    saving:
        Share of the energy that the highest clocks use until the straggler ends (until they end, without one).
    """

    method: str
    slowdown: float | None
    plan: FrequencyPlan
    saving: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Methods, each alone and with every straggler; made by `compare`.

    Attributes
    ----------
    frontier:
        The exact one, for the bound.
    plans:
        By method, then by slowdown. A method that cannot meet a straggler's time has no plan there.
    """

    frontier: Frontier
    plans: tuple[ComparedPlan, ...]

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, in the order compared."""
        return tuple(dict.fromkeys(compared.method for compared in self.plans))

    @property
    def slowdowns(self) -> tuple[float | None, ...]:
        """None (no straggler), then the stragglers."""
        found = {compared.slowdown for compared in self.plans}
        return (None, *sorted(slowdown for slowdown in found if slowdown is not None))

    def of(self, method: str, slowdown: float | None) -> ComparedPlan | None:
        """Return a method's plan in a situation, or None if it has none."""
        matching = (c for c in self.plans if (c.method, c.slowdown) == (method, slowdown))
        return next(matching, None)


# Returns the plan for a straggler's time, or the one of no slowdown for None.
_Method = Callable[["float | None"], "FrequencyPlan"]


def compare(
    frontier: Frontier,
    *,
    slowdowns: Iterable[float] = STRAGGLER_SLOWDOWNS,
    effort: Effort = "best",
    fixed_step_s: float | None = None,
) -> Comparison:
    """Compare the highest clocks, Zeus, EnvPipe, Perseus as published and our plans.

    Parameters
    ----------
    slowdowns:
        Stragglers' times over the time of the highest clocks, each at least 1.
    effort:
        Of our plans.
    fixed_step_s:
        Step of Perseus as published, s; by default a thousandth of the range of iteration times.

    Raises
    ------
    PlanError
        A slowdown is below 1.
    """
    slowdowns = tuple(slowdowns)
    wrong = [slowdown for slowdown in slowdowns if not slowdown >= 1.0]
    if wrong:
        raise PlanError(f"the slowdown {wrong[0]!r} is below 1; a straggler ends no earlier than the others")
    dag, profiles = frontier.dag, frontier.profiles
    planner = Planner(dag, profiles)
    step_s = fixed_step_s or (frontier.max_time_s - frontier.min_time_s) / 1000 or frontier.min_time_s / 1000
    plans = []
    for name, method in _methods(frontier, dag, profiles, effort, step_s):
        for slowdown in (None, *slowdowns):
            until_s = None if slowdown is None else slowdown * planner.max_clock_time_s
            try:
                plan = method(until_s)
            except InfeasibleTimeError:
                continue
            if until_s is not None:
                plan = planner.waiting(plan, max(until_s, plan.time_s), frontier.energy_at)
            baseline_j = planner.max_clock_energy_until_j(until_s)
            plans.append(
                ComparedPlan(method=name, slowdown=slowdown, plan=plan, saving=1.0 - plan.energy_j / baseline_j)
            )
    return Comparison(frontier=frontier, plans=tuple(plans))


def _methods(
    frontier: Frontier, dag: PipelineDag, profiles: Profiles, effort: Effort, step_s: float
) -> Iterator[tuple[str, _Method]]:
    bound = frontier.energy_at
    highest = baselines.max_clock_plan(dag, profiles, lower_bound=bound)
    yield "highest clocks", lambda until_s: highest
    for name, plans in (
        ("ZeusGlobal", baselines.zeus_global_plans(dag, profiles, lower_bound=bound)),
        ("ZeusPerStage", baselines.zeus_per_stage_plans(dag, profiles, lower_bound=bound)),
    ):
        if plans:
            yield name, _within(plans, highest.time_s)
    if profiles.knob_names and profiles[profiles.keys[0]].knobs[profiles.knob_names[0]].dtype.kind == "f":
        envelope = baselines.envpipe(dag, profiles, lower_bound=bound)
        yield "EnvPipe", lambda until_s: envelope

    def fixed(until_s: float | None) -> FrequencyPlan:
        return baselines.fixed_step_perseus(dag, profiles, deadline_s=until_s, step_s=step_s, lower_bound=bound)

    def ours(until_s: float | None) -> FrequencyPlan:
        deadline_s = frontier.min_time_s if until_s is None else max(until_s, frontier.min_time_s)
        return frontier.plan_at(min(deadline_s, frontier.max_time_s), effort=effort)

    yield "Perseus, fixed step", fixed
    yield OURS, ours


def _within(plans: list[FrequencyPlan], shortest_s: float) -> _Method:
    return lambda until_s: best_within(plans, shortest_s if until_s is None else until_s)
