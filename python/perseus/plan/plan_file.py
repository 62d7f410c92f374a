"""The JSON form of a plan: versioned, complete, checked when it is read.

Floats are written with as many digits as bring back the same double; NaN, which JSON lacks, as null.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perseus.dag import PipelineDag
from perseus.errors import DagError, PlanError
from perseus.plan.blocking import energy_until_j
from perseus.plan.files import replace_text
from perseus.plan.frequency_plan import FrequencyPlan

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT: Final = "perseus-frequency-plan"
VERSION: Final = 1

_NUMBERS: Final = ("time_s", "energy_j", "baseline_energy_j", "deadline_s")
_OPTIONAL_NUMBERS: Final = ("lower_bound_j", "wait_until_s")
_PER_OPERATION: Final = ("start_times_s", "durations_s", "energies_j")
_KEYS: Final = frozenset(
    {"format", "version", "dag", "knobs", "blocking_power_w", *_NUMBERS, *_OPTIONAL_NUMBERS, *_PER_OPERATION}
)
# The energy in the file and that of its own operations are the same sum: they differ by rounding at most.
_ENERGY_TOLERANCE: Final = 1e-9


def write_plan(plan: FrequencyPlan, path: str | os.PathLike[str]) -> None:
    """Write a plan; an old file of that name is replaced at once."""
    data: dict[str, object] = {"format": FORMAT, "version": VERSION}
    data |= {key: getattr(plan, key) for key in _NUMBERS}
    data |= {"lower_bound_j": _or_null(plan.lower_bound_j), "wait_until_s": plan.wait_until_s}
    data |= {"blocking_power_w": plan.blocking_power_w.tolist()}
    data |= {"knobs": {name: [_or_null(value) for value in values.tolist()] for name, values in plan.knobs.items()}}
    data |= {key: getattr(plan, key).tolist() for key in _PER_OPERATION}
    data["dag"] = plan.dag.to_dict()
    members = (f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in data.items())
    replace_text(path, "{\n" + ",\n".join(members) + "\n}\n")


def _or_null(value: float | str) -> float | str | None:
    return None if isinstance(value, float) and math.isnan(value) else value


def read_plan(path: str | os.PathLike[str]) -> FrequencyPlan:
    """Read a plan; `FrequencyPlan.load` documents the errors."""
    try:
        return _plan_of(_parsed(Path(path)))
    except PlanError as error:
        raise PlanError(f"{os.fspath(path)}: {error}") from None


def _parsed(path: Path) -> Mapping[str, object]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"not a whole JSON file ({error}); was the copy cut short? Make the plan again") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise PlanError(f"no frequency plan: its format is not {FORMAT!r}; give a file that FrequencyPlan.save wrote")
    if type(data.get("version")) is not int or data["version"] != VERSION:
        raise PlanError(
            f"the version is {data.get('version')!r}, this release reads {VERSION}; use the release that wrote it"
        )
    for problem, names in (("lacks", _KEYS - data.keys()), ("has the unknown", data.keys() - _KEYS)):
        if names:
            raise PlanError(f"the plan {problem} {', '.join(sorted(names))}; make it again")
    return data


def _refused(constant: str) -> float:
    raise PlanError(f"{constant} is no JSON number; numbers are finite, unknown ones null: make the plan again")


def _plan_of(data: Mapping[str, Any]) -> FrequencyPlan:
    dag = _dag_of(data["dag"])
    size = dag.num_operations
    numbers = {key: _number(key, data[key]) for key in _NUMBERS}
    plan = FrequencyPlan(
        dag=dag,
        time_s=numbers["time_s"],
        energy_j=numbers["energy_j"],
        lower_bound_j=math.nan if data["lower_bound_j"] is None else _number("lower_bound_j", data["lower_bound_j"]),
        baseline_energy_j=numbers["baseline_energy_j"],
        deadline_s=numbers["deadline_s"],
        wait_until_s=None if data["wait_until_s"] is None else _number("wait_until_s", data["wait_until_s"]),
        knobs=_knobs(data["knobs"], size),
        start_times_s=_numbers("start_times_s", data["start_times_s"], size),
        durations_s=_numbers("durations_s", data["durations_s"], size),
        energies_j=_numbers("energies_j", data["energies_j"], size),
        blocking_power_w=_numbers("blocking_power_w", data["blocking_power_w"], dag.num_ranks),
    )
    _check_energy(plan)
    return plan


def _dag_of(data: object) -> PipelineDag:
    if not isinstance(data, dict):
        raise PlanError(f"dag is of type {type(data).__name__}; it must be an object: make the plan again")
    try:
        return PipelineDag.from_dict(data)
    except DagError as error:
        raise PlanError(f"its pipeline is not valid: {error}") from None


def _check_energy(plan: FrequencyPlan) -> None:
    until_s = plan.time_s if plan.wait_until_s is None else plan.wait_until_s
    sum_j = energy_until_j(plan.dag, plan.durations_s, plan.energies_j, plan.blocking_power_w, until_s)
    if not math.isclose(sum_j, plan.energy_j, rel_tol=_ENERGY_TOLERANCE, abs_tol=1e-300):
        raise PlanError(
            f"energy_j is {plan.energy_j!r}, but its operations and blocking sum to {sum_j!r}; the file was changed: "
            "make the plan again"
        )


def _number(name: str, value: object) -> float:
    # Not isinstance: a bool is an int.
    if (type(value) is int or type(value) is float) and abs(value) <= sys.float_info.max:
        return float(value)
    raise PlanError(f"{name} is {value!r}; it must be a finite number: make the plan again")


def _list(name: str, values: object, length: int) -> list[object]:
    if not isinstance(values, list) or len(values) != length:
        found = f"{len(values)} values" if isinstance(values, list) else f"a {type(values).__name__}"
        raise PlanError(f"{name} holds {found} where a list of {length} belongs; make the plan again")
    return values


def _numbers(name: str, values: object, length: int) -> NDArray[np.float64]:
    listed = _list(name, values, length)
    numbers = np.array([_number(f"{name}[{i}]", value) for i, value in enumerate(listed)], dtype=np.float64)
    negative = np.flatnonzero(numbers < 0.0)
    if negative.size:
        raise PlanError(f"{name}[{negative[0]}] is {numbers[negative[0]]}; it must be at least 0: make the plan again")
    return numbers


def _knobs(data: object, length: int) -> dict[str, NDArray[Any]]:
    if not isinstance(data, dict):
        raise PlanError(f"knobs is of type {type(data).__name__}; it must be an object: make the plan again")
    return {name: _knob(name, _list(f"knobs[{name!r}]", values, length)) for name, values in data.items()}


def _knob(name: str, values: list[object]) -> NDArray[Any]:
    """Return one knob's values: text if any value is, otherwise numbers with NaN for null."""
    if any(isinstance(value, str) for value in values):
        wrong = next((value for value in values if not isinstance(value, str)), None)
        if wrong is not None or None in values:
            raise PlanError(f"knobs[{name!r}] mixes text with {wrong!r}; a knob is all text or all numbers")
        return np.array(values, dtype=object)
    numbers = (math.nan if value is None else _number(f"knobs[{name!r}][{i}]", value) for i, value in enumerate(values))
    return np.fromiter(numbers, dtype=np.float64, count=len(values))
