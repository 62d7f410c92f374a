"""The plan itself: an immutable value that can be saved, read back and looked at without the profile."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perseus.errors import PlanError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perseus.dag import Operation, PipelineDag


class PlannedOperation(NamedTuple):
    """One operation with its choice, as `FrequencyPlan.by_stage` shows it."""

    operation: Operation
    knobs: dict[str, float | str]
    """Value of each knob; empty for an operation of fixed time."""
    start_time_s: float
    duration_s: float
    energy_j: float


@dataclass(frozen=True, kw_only=True, eq=False)
class FrequencyPlan:
    """One profiled knob for each operation of an iteration, and what that costs.

    Made by `Frontier.plan_at`, `perseus.max_clock_plan` or `load`. Arrays are per operation in ``dag.operations``
    order unless said otherwise, and read-only.

    Attributes
    ----------
    dag:
        The operations.
    time_s:
        Iteration time of the plan: the longest path through its durations. Never above `deadline_s`.
    energy_j:
        Energy of the whole pipeline, blocking included, until `time_s`, or until `wait_until_s` if that is given.
    lower_bound_j:
        The least energy that any plan of this time could have, until then; NaN where it is not known.
    baseline_energy_j:
        Energy with every operation at its highest clock, until the same time (until it ends, if it takes longer).
    deadline_s:
        The iteration time that was asked for.
    wait_until_s:
        Time of the straggler that all GPUs wait for, or None.
    knobs:
        (num_operations,) for each knob of the profile; NaN or "" for operations of fixed time.
    start_times_s, durations_s, energies_j:
        (num_operations,): earliest start, and the profile's time and energy of the choice.
    blocking_power_w:
        (num_ranks,): what each rank's GPU draws while it waits.
    """

    dag: PipelineDag
    time_s: float
    energy_j: float
    lower_bound_j: float
    baseline_energy_j: float
    deadline_s: float
    wait_until_s: float | None
    knobs: Mapping[str, NDArray[Any]]
    start_times_s: NDArray[np.float64]
    durations_s: NDArray[np.float64]
    energies_j: NDArray[np.float64]
    blocking_power_w: NDArray[np.float64]

    def __post_init__(self) -> None:
        for array in (self.start_times_s, self.durations_s, self.energies_j, *self.knobs.values()):
            array.setflags(write=False)
        self.blocking_power_w.setflags(write=False)
        object.__setattr__(self, "knobs", MappingProxyType(dict(self.knobs)))

    @property
    def gap(self) -> float:
        """How far the plan is from the bound, relatively: at most this share of energy could still be saved."""
        above_j = self.energy_j - self.lower_bound_j
        return above_j / self.lower_bound_j if above_j != 0.0 else 0.0

    @property
    def saving(self) -> float:
        """Share of the energy of the highest clocks that the plan saves until the same time."""
        saved_j = self.baseline_energy_j - self.energy_j
        return saved_j / self.baseline_energy_j if saved_j != 0.0 else 0.0

    @property
    def frequencies_mhz(self) -> NDArray[np.float64]:
        """Clock of each operation in MHz, NaN for operations of fixed time; (num_operations,).

        Raises
        ------
        PlanError
            The profile has no column ``frequency``, or it is not numeric.
        """
        frequencies = self.knobs.get("frequency")
        if frequencies is None:
            known = ", ".join(self.knobs) or "none"
            raise PlanError(
                f"the plan has no knob 'frequency', only {known}; read `knobs`, or profile with a frequency column"
            )
        if frequencies.dtype.kind != "f":
            raise PlanError("the knob 'frequency' is text; it must be a number of MHz in every row of the profile")
        return frequencies

    def by_stage(self) -> dict[int, list[PlannedOperation]]:
        """Return for each stage its operations in program order."""
        stages: dict[int, list[PlannedOperation]] = {stage: [] for stage in np.unique(self.dag.stage).tolist()}
        for index in self.program_order().tolist():
            planned = self._planned(index)
            stages[planned.operation.stage].append(planned)
        return stages

    def program_order(self) -> NDArray[np.intp]:
        """Return the operations rank by rank, by start within a rank; (num_operations,).

        The order of ``dag.operations`` itself, except for a pipeline from a graph.
        """
        return np.lexsort((self.start_times_s, self.dag.rank))

    def _planned(self, index: int) -> PlannedOperation:
        fixed = not np.isnan(self.dag.fixed_time_s[index])
        return PlannedOperation(
            operation=self.dag.operations[index],
            knobs={} if fixed else {name: values[index] for name, values in self._plain_knobs.items()},
            start_time_s=float(self.start_times_s[index]),
            duration_s=float(self.durations_s[index]),
            energy_j=float(self.energies_j[index]),
        )

    @cached_property
    def _plain_knobs(self) -> dict[str, list[Any]]:
        return {name: values.tolist() for name, values in self.knobs.items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as versioned JSON, complete: `load` needs no profile. An old file is replaced at once."""
        from perseus.plan.plan_file import write_plan

        write_plan(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FrequencyPlan:
        """Read a plan that `save` wrote, to the last bit.

        Raises
        ------
        PlanError
            The file is no plan, of another version, cut short or changed; the message says what is wrong.
        OSError
            The file cannot be read.
        """
        from perseus.plan.plan_file import read_plan

        return read_plan(path)

    def to_zeus(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as a solution file of Zeus's pipeline frequency optimizer: see `perseus.plan.zeus_export`.

        Raises
        ------
        PlanError
            The plan has no whole numbers of MHz, or the name does not end in ``.py``, which Zeus needs.
        """
        from perseus.plan.zeus_export import write_zeus_solution

        write_zeus_solution(self, path)

    def __reduce__(self) -> tuple[Callable[..., FrequencyPlan], tuple[dict[str, Any]]]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return _restored, ({**values, "knobs": dict(self.knobs)},)

    def __repr__(self) -> str:
        bounded = "no bound" if math.isnan(self.lower_bound_j) else f"at most {100 * self.gap:.3g} % above optimal"
        return (
            f"<FrequencyPlan {self.dag.num_operations} operations, {self.time_s:.6g} s, {self.energy_j:.6g} J, "
            f"{bounded}>"
        )


def _restored(values: dict[str, Any]) -> FrequencyPlan:
    return FrequencyPlan(**values)
