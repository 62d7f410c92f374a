"""Plans along a whole frontier, and how to choose among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, overload

import numpy as np

from perseus.errors import InfeasibleTimeError, PlanError
from perseus.plan.frequency_plan import FrequencyPlan
from perseus.plan.planner import Planner, checked_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

_J_PER_KWH = 3.6e6
_S_PER_HOUR = 3600.0
# A time this much above a limit, relatively, meets it: both were computed in doubles.
_TIME_TOLERANCE = 1e-12


class PlanSeries(Sequence[FrequencyPlan]):
    """Plans by increasing time; each next one takes longer and costs less. Made by `Frontier.plans`; immutable.

    What falls from plan to plan is the energy until any one time that all of them meet: slower never costs more. The
    energy until a plan's own end, `energies_j`, falls until the plan of least energy and grows from there, since the
    GPUs draw power for longer.
    """

    def __init__(self, plans: Iterable[FrequencyPlan], planner: Planner, lower_bound: Callable[[float], float]) -> None:
        self._plans = _without_beaten(plans)
        self._planner = planner
        self._lower_bound = lower_bound
        if not self._plans:
            raise PlanError("a series needs at least one plan")

    @property
    def times_s(self) -> NDArray[np.float64]:
        """Iteration time of each plan, increasing; (len,)."""
        return np.array([plan.time_s for plan in self._plans])

    @property
    def energies_j(self) -> NDArray[np.float64]:
        """Energy of the pipeline until each plan's own end; (len,)."""
        return np.array([plan.energy_j for plan in self._plans])

    @property
    def gaps(self) -> NDArray[np.float64]:
        """How far each plan is from the bound, relatively; (len,)."""
        return np.array([plan.gap for plan in self._plans])

    def within(self, deadline_s: float) -> FrequencyPlan:
        """Return the slowest plan that meets a deadline (s): of least energy until then.

        Raises
        ------
        InfeasibleTimeError
            None meets it.
        """
        deadline_s = checked_time("deadline_s", deadline_s)
        count = int(np.searchsorted(self.times_s, deadline_s * (1.0 + _TIME_TOLERANCE), side="right"))
        if count == 0:
            shortest_s = self._plans[0].time_s
            raise InfeasibleTimeError(
                f"the deadline is {deadline_s:.9g} s, the shortest plan takes {shortest_s:.9g} s; ask for that or more",
                shortest_s,
            )
        return self._plans[count - 1]

    def within_slowdown(self, slowdown: float) -> FrequencyPlan:
        """Return the slowest plan that takes at most this many times the shortest plan's time; at least 1."""
        if not (math.isfinite(slowdown) and slowdown >= 1.0):
            raise PlanError(f"slowdown is {slowdown!r}; it must be a finite factor of at least 1")
        return self.within(slowdown * self._plans[0].time_s)

    def for_straggler(self, straggler_time_s: float) -> FrequencyPlan:
        """Return the plan of least energy while waiting for a straggler that ends then (s), energies until then.

        A straggler that ends before the shortest plan does is none: that plan is returned as it is.
        """
        straggler_time_s = checked_time("straggler_time_s", straggler_time_s)
        if straggler_time_s <= self._plans[0].time_s:
            return self._plans[0]
        plan = self.within(straggler_time_s)
        return self._planner.waiting(plan, max(straggler_time_s, plan.time_s), self._lower_bound)

    def within_power(self, average_power_w: float) -> FrequencyPlan:
        """Return the fastest plan whose average power (W, of the whole pipeline) is at most this.

        Raises
        ------
        PlanError
            No plan draws so little; the message says what the least is.
        """
        powers_w = self.energies_j / self.times_s
        (meeting,) = np.nonzero(powers_w <= average_power_w)
        if not meeting.size:
            raise PlanError(
                f"the power cap is {average_power_w:.6g} W, but the plans draw {powers_w.min():.6g} W or more on "
                "average; raise the cap"
            )
        return self._plans[int(meeting[0])]

    def least_energy(self) -> FrequencyPlan:
        """Return the plan of least energy until its own end."""
        return self._plans[int(np.argmin(self.energies_j))]

    def cheapest(self, *, price_per_kwh: float, price_per_hour: float) -> FrequencyPlan:
        """Return the plan that costs least.

        Parameters
        ----------
        price_per_kwh:
            Of energy, in any currency.
        price_per_hour:
            Of the pipeline's time, in the same currency: rent, depreciation, or what an hour's delay is worth.
        """
        weights = (_weight("price_per_kwh", price_per_kwh), _weight("price_per_hour", price_per_hour))
        costs = weights[0] * self.energies_j / _J_PER_KWH + weights[1] * self.times_s / _S_PER_HOUR
        return self._plans[int(np.argmin(costs))]

    def least_carbon(self, *, grid_g_per_kwh: float, embodied_g_per_hour: float = 0.0) -> FrequencyPlan:
        """Return the plan of least carbon.

        Parameters
        ----------
        grid_g_per_kwh:
            What a kWh from the grid emits, g.
        embodied_g_per_hour:
            What the making of the pipeline's machines emitted, g, by the hour of their life.
        """
        grid = _weight("grid_g_per_kwh", grid_g_per_kwh)
        embodied = _weight("embodied_g_per_hour", embodied_g_per_hour)
        return self.cheapest(price_per_kwh=grid, price_per_hour=embodied)

    @overload
    def __getitem__(self, index: int) -> FrequencyPlan: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[FrequencyPlan, ...]: ...
    def __getitem__(self, index: int | slice) -> FrequencyPlan | tuple[FrequencyPlan, ...]:
        return self._plans[index]

    def __len__(self) -> int:
        return len(self._plans)

    def __repr__(self) -> str:
        first, last = self._plans[0], self._plans[-1]
        return f"PlanSeries({len(self)} plans, {first.time_s:.6g} to {last.time_s:.6g} s)"


def _without_beaten(plans: Iterable[FrequencyPlan]) -> tuple[FrequencyPlan, ...]:
    """Return the plans by time, without those that another one beats in time and energy until the same time."""
    kept: list[FrequencyPlan] = []
    least_j = math.inf
    for plan in sorted(plans, key=lambda plan: (plan.time_s, _effective_energy_j(plan))):
        energy_j = _effective_energy_j(plan)
        if energy_j < least_j:
            kept.append(plan)
            least_j = energy_j
    return tuple(kept)


def _effective_energy_j(plan: FrequencyPlan) -> float:
    """Return the energy without what the GPUs would draw anyway: comparable between times."""
    return float(plan.energies_j.sum() - (plan.blocking_power_w[plan.dag.rank] * plan.durations_s).sum())


def _weight(name: str, value: float) -> float:
    if not (math.isfinite(value) and value >= 0.0):
        raise PlanError(f"{name} is {value!r}; it must be a finite number of at least 0")
    return float(value)
