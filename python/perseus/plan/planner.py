"""A pipeline and its choices, made ready once for plans at any number of deadlines."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perseus.errors import InfeasibleTimeError, PlanError, SolveError
from perseus.plan.blocking import energy_until_j, rank_powers_w
from perseus.plan.choices import ChoiceTable, collect_choices
from perseus.plan.frequency_plan import FrequencyPlan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perseus import _native
    from perseus.dag import PipelineDag
    from perseus.profiles import OperationProfile, Profiles

# A bound this little above the plan's energy, relatively, is the bound's own rounding.
_BOUND_TOLERANCE = 1e-9


class Choices(NamedTuple):
    """One choice for each operation, and its timetable."""

    choices: NDArray[np.int32]
    """(num_operations,): index within the operation's menu."""
    start_times_s: NDArray[np.float64]
    makespan_s: float
    effective_energy_j: float


class Costs(NamedTuple):
    """What one choice for each operation costs, per operation."""

    durations_s: NDArray[np.float64]
    energies_j: NDArray[np.float64]
    knobs: dict[str, NDArray[Any]]

    @classmethod
    def of(cls, table: ChoiceTable, entries: NDArray[np.int64]) -> Costs:
        """Look up the entries of the operations, (num_operations,), in a table."""
        knobs = {name: values[entries] for name, values in table.knobs.items()}
        return cls(table.times_s[entries], table.energies_j[entries], knobs)


class Planner:
    """Makes plans of one pipeline from one profile; immutable, and safe to use from several threads.

    Raises
    ------
    ProfileError
        The profile lacks a stage and kind of the pipeline, or a rank's stages differ in blocking power.
    """

    def __init__(self, dag: PipelineDag, profiles: Profiles) -> None:
        self.dag = dag
        self.profiles = profiles
        self.powers_w = rank_powers_w(dag, profiles)

    @cached_property
    def table(self) -> ChoiceTable:
        """The choices worth considering: the Pareto points of each profile."""
        return collect_choices(
            self.dag, self.profiles, self.powers_w, lambda stage, kind: self.profiles.curve(stage, kind).pareto_indices
        )

    @cached_property
    def max_clock_costs(self) -> Costs:
        """Every operation at its highest clock."""
        table = collect_choices(
            self.dag, self.profiles, self.powers_w, lambda stage, kind: _max_clock_row(self.profiles[stage, kind])
        )
        return Costs.of(table, table.entries(0))

    @cached_property
    def max_clock_time_s(self) -> float:
        """Iteration time with every operation at its highest clock."""
        return self.dag.makespan_s(self.max_clock_costs.durations_s)

    @cached_property
    def _max_clock_energy_j(self) -> float:
        """Energy of the highest clocks until they end."""
        costs = self.max_clock_costs
        return energy_until_j(self.dag, costs.durations_s, costs.energies_j, self.powers_w, self.max_clock_time_s)

    def max_clock_energy_until_j(self, until_s: float | None) -> float:
        """Return the energy of the highest clocks until a time, or until they end where that is later or not given."""
        waits_s = 0.0 if until_s is None else max(until_s - self.max_clock_time_s, 0.0)
        return self._max_clock_energy_j + float(self.powers_w.sum()) * waits_s

    @cached_property
    def space(self) -> _native.PlanSpace:
        """The native form of the pipeline and its choices."""
        from perseus import _native  # only here: a plan file is read and shown without the native module

        table = self.table
        return _native.PlanSpace(
            table.offsets,
            table.times_s,
            table.effective_energies_j,
            table.menu_of,
            np.ascontiguousarray(self.dag.edges[:, 0]),
            np.ascontiguousarray(self.dag.edges[:, 1]),
            self.dag.latency_s,
        )

    def checked(self, rounded: _native.RoundedPlan, deadline_s: float) -> Choices:
        """Return what the native core chose.

        Raises
        ------
        InfeasibleTimeError
            Nothing that it had to start from meets the deadline.
        """
        name = rounded.status.name
        if name == "deadline_too_short":
            raise InfeasibleTimeError(
                f"the deadline is {deadline_s:.9g} s, but the fastest choices of all operations take "
                f"{rounded.makespan_s:.9g} s; ask for that or more",
                rounded.makespan_s,
            )
        if name != "complete":
            raise SolveError(f"the plan could not be made: the operations are {name}; please report this")
        return Choices(rounded.choices, rounded.start_times_s, rounded.makespan_s, rounded.energy_j)

    def finish(
        self,
        choices: Choices,
        lower_bound: Callable[[float], float],
        deadline_s: float,
        wait_until_s: float | None = None,
    ) -> FrequencyPlan:
        """Return the plan of these choices; `perseus.plan.make_plan` explains the parameters."""
        costs = Costs.of(self.table, self.table.entries(choices.choices))
        return self.plan_of(costs, choices.start_times_s, choices.makespan_s, lower_bound, deadline_s, wait_until_s)

    def plan_of(
        self,
        costs: Costs,
        start_times_s: NDArray[np.float64],
        time_s: float,
        lower_bound: Callable[[float], float],
        deadline_s: float,
        wait_until_s: float | None,
    ) -> FrequencyPlan:
        """Return a plan with its energies: its own, the bound, and the highest clocks' until the same time."""
        if wait_until_s is not None and checked_time("wait_until_s", wait_until_s) < time_s:
            raise PlanError(
                f"wait_until_s is {wait_until_s:.9g}, but the plan takes {time_s:.9g} s; a straggler ends no earlier "
                "than the pipeline that waits for it: give its iteration time, or a shorter deadline"
            )
        until_s = time_s if wait_until_s is None else float(wait_until_s)
        total_power_w = float(self.powers_w.sum())
        energy_j = energy_until_j(self.dag, costs.durations_s, costs.energies_j, self.powers_w, until_s)
        bound_j = lower_bound(time_s) + total_power_w * (until_s - time_s)
        if energy_j < bound_j <= energy_j + _BOUND_TOLERANCE * abs(energy_j):
            bound_j = energy_j
        return FrequencyPlan(
            dag=self.dag,
            time_s=time_s,
            energy_j=energy_j,
            lower_bound_j=bound_j,
            baseline_energy_j=self.max_clock_energy_until_j(until_s),
            deadline_s=deadline_s,
            wait_until_s=None if wait_until_s is None else until_s,
            knobs=costs.knobs,
            start_times_s=start_times_s,
            durations_s=costs.durations_s,
            energies_j=costs.energies_j,
            blocking_power_w=self.powers_w,
        )

    def waiting(
        self, plan: FrequencyPlan, wait_until_s: float, lower_bound: Callable[[float], float] | None
    ) -> FrequencyPlan:
        """Return a plan with its energies until a straggler ends."""
        costs = Costs(plan.durations_s, plan.energies_j, dict(plan.knobs))
        bound = lower_bound or (lambda _: math.nan)
        return self.plan_of(costs, plan.start_times_s, plan.time_s, bound, plan.deadline_s, wait_until_s)


def checked_time(name: str, value: float) -> float:
    """Return a time in seconds, or raise `PlanError` if it is negative or not finite."""
    number = float(value)
    if not math.isfinite(number) or number < 0.0:
        raise PlanError(f"{name} is {value!r}; it must be a finite number of seconds, at least 0")
    return number


def _max_clock_row(profile: OperationProfile) -> NDArray[np.intp]:
    """Return the row of the highest clock, as an array of one; rows go by time, so the fastest of several is first."""
    frequencies = profile.knobs.get("frequency")
    if frequencies is None or frequencies.dtype.kind != "f":
        return np.zeros(1, dtype=np.intp)
    return np.array([np.argmax(frequencies)], dtype=np.intp)
