"""Measured time and energy of every operation at every knob setting."""

from __future__ import annotations

import csv
import difflib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from perseus.curves import Curve, effective_curve
from perseus.errors import ProfileError
from perseus.measurement_table import REQUIRED_COLUMNS, MeasurementTable, read_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXAMPLE_BLOCKING_POWER_W: Final = 75.0
"""Blocking power (W) of the modelled GPU of the built-in example profile."""

FREQUENCY: Final = "frequency"
_KIND_ALIASES: Final = {
    "f": "forward",
    "fwd": "forward",
    "b": "backward",
    "bwd": "backward",
    "i": "input_grad",
    "w": "weight_grad",
    "r": "recompute",
}

Duplicates = Literal["average", "error"]


@dataclass(frozen=True, kw_only=True, eq=False)
class OperationProfile:
    """Measured points of one (stage, kind), by time and then energy.

    Attributes
    ----------
    stage, kind:
        Which operations these are.
    times_s, energies_j:
        (n,) float64: duration in seconds, and energy on one GPU in joules.
    knobs:
        Name to (n,) array: what was set at each point; ``frequency`` in MHz. float64, or object where not numeric.
    counts:
        (n,) int64: measurements averaged in each point.
    """

    stage: int
    kind: str
    times_s: NDArray[np.float64]
    energies_j: NDArray[np.float64]
    knobs: Mapping[str, NDArray[Any]]
    counts: NDArray[np.int64]

    def __post_init__(self) -> None:
        for array in (self.times_s, self.energies_j, self.counts, *self.knobs.values()):
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.times_s)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "knobs": dict(self.knobs)}


class Profiles:
    """Measurements of a pipeline's operations, and the power its GPUs draw while they wait: an immutable value.

    Made by `read_profiles`. ``profiles[stage, kind]`` gives an `OperationProfile`.

    Attributes
    ----------
    blocking_power_w:
        Stage to watts, for every stage.
    knob_names:
        Names of what was set, ``frequency`` first if it is there.
    keys:
        The (stage, kind) pairs that were measured, sorted.
    """

    def __init__(
        self, operations: Mapping[tuple[int, str], OperationProfile], blocking_power_w: Mapping[int, float]
    ) -> None:
        self._operations = dict(sorted(operations.items()))
        self._curves: dict[tuple[int, str], Curve] = {}
        self.blocking_power_w: Mapping[int, float] = MappingProxyType(dict(sorted(blocking_power_w.items())))
        self.keys: tuple[tuple[int, str], ...] = tuple(self._operations)
        self.knob_names: tuple[str, ...] = tuple(next(iter(self._operations.values())).knobs)

    @property
    def stages(self) -> tuple[int, ...]:
        """Numbers of the stages, ascending."""
        return tuple(dict.fromkeys(stage for stage, _ in self.keys))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the kinds of operation, sorted."""
        return tuple(sorted({kind for _, kind in self.keys}))

    def __getitem__(self, key: tuple[int, str]) -> OperationProfile:
        """Return the measurements of a (stage, kind).

        Raises
        ------
        ProfileError
            If it was not measured.
        """
        if key in self._operations:
            return self._operations[key]
        stage, kind = key
        near = difflib.get_close_matches(str(kind), self.kinds, n=1)
        hint = f" Did you mean {near[0]!r}?" if near and near[0] != kind else ""
        raise ProfileError(
            f"Stage {stage}, {kind!r} is not in the profile, which has stages {self.stages[0]} to {self.stages[-1]} "
            f"with {', '.join(map(repr, self.kinds))}; measure it, or use a pipeline of what was measured.{hint}"
        )

    def __contains__(self, key: object) -> bool:
        return key in self._operations

    def curve(self, stage: int, kind: str) -> Curve:
        """Return the convex curve of effective energy of a (stage, kind); computed once."""
        key = (stage, kind)
        if key not in self._curves:
            measured = self[key]
            self._curves[key] = effective_curve(measured.times_s, measured.energies_j, self.blocking_power_w[stage])
        return self._curves[key]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the points with the columns that `read_profiles` reads; numbers are kept exactly."""
        target = Path(path)
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            with partial.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["stage", "instruction", *self.knob_names, "time", "energy"])
                for (stage, kind), measured in self._operations.items():
                    knobs = (map(_shortest, measured.knobs[name].tolist()) for name in self.knob_names)
                    points = zip(*knobs, measured.times_s.tolist(), measured.energies_j.tolist(), strict=True)
                    writer.writerows([stage, kind, *point] for point in points)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def __repr__(self) -> str:
        points = sum(len(measured) for measured in self._operations.values())
        powers = sorted(set(self.blocking_power_w.values()))
        power = f"{powers[0]:g}" if len(powers) == 1 else f"{powers[0]:g} to {powers[-1]:g}"
        return (
            f"Profiles({len(self.stages)} stages, kinds {', '.join(self.kinds)}, {points} points over "
            f"{', '.join(self.knob_names)}, blocking power {power} W)"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"operations": self._operations, "blocking_power_w": dict(self.blocking_power_w)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["operations"], state["blocking_power_w"])  # type: ignore[misc]


def example_profile_path() -> Path:
    """Return the path of the built-in example profile: 4 stages on a modelled GPU (its header says how)."""
    return Path(str(resources.files("perseus") / "data" / "example_profile.csv"))


def read_profiles(
    source: object,
    *,
    blocking_power_w: float | Mapping[int, float],
    duplicates: Duplicates = "average",
) -> Profiles:
    """Read measured time and energy of a pipeline's operations.

    Parameters
    ----------
    source:
        Path of a CSV file, a data frame, or a mapping from column names to arrays. Columns: ``stage`` (0, 1, ...),
        ``instruction`` or ``kind`` (forward, backward, input_grad, weight_grad, recompute, or their first letters),
        ``time`` (s), ``energy`` (J, of one GPU), and one or more knobs: ``frequency`` (MHz) and any other column.
        Files may have a byte order mark, CRLF, tabs or semicolons, decimal commas between semicolons, comments (#).
    blocking_power_w:
        Power (W) that a GPU draws while it waits: one number, or stage to number.
    duplicates:
        Points of the same knobs are averaged, or are an ``"error"``.

    Raises
    ------
    ProfileError
        Naming file, line, what was found, the rule and the remedy.
    """
    if duplicates not in ("average", "error"):
        raise ProfileError(f"duplicates={duplicates!r} is unknown; choose 'average' or 'error'.")
    table = read_table(source)
    stage = _stages(table)
    kind = _kinds(table)
    time_s = _positive(table, "time", "s")
    energy_j = _positive(table, "energy", "J")
    knobs = _knobs(table)
    operations: dict[tuple[int, str], OperationProfile] = {}
    names, kind_number = np.unique(kind, return_inverse=True)
    group = stage * len(names) + kind_number.ravel()
    by_group = np.argsort(group, kind="stable")
    for rows in np.split(by_group, np.flatnonzero(np.diff(group[by_group])) + 1):
        key = (int(stage[rows[0]]), str(kind[rows[0]]))
        operations[key] = _operation(table, key, rows, time_s, energy_j, knobs, duplicates)
    _check_complete(table, operations)
    num_stages = int(stage.max()) + 1
    return Profiles(operations, _blocking_powers(blocking_power_w, num_stages))


def _stages(table: MeasurementTable) -> NDArray[np.int64]:
    numbers = table.numbers("stage")
    bad = np.flatnonzero((numbers != np.floor(numbers)) | (numbers < 0) | (numbers > 2**20 - 1))
    if bad.size:
        table.fail(int(bad[0]), f"stage is {numbers[bad[0]]:g}; stages are whole numbers from 0. Renumber them.")
    return numbers.astype(np.int64)


def _kinds(table: MeasurementTable) -> NDArray[Any]:
    given, number = np.unique(table.columns["instruction"].astype(str), return_inverse=True)
    names = [_KIND_ALIASES.get(name.strip().lower(), name.strip().lower()) for name in given.tolist()]
    if "" in names:
        row = int(np.flatnonzero(number.ravel() == names.index(""))[0])
        table.fail(
            row, "instruction is empty; it names the kind of operation, such as forward or backward. Fill it in."
        )
    return np.array(names)[number.ravel()]


def _positive(table: MeasurementTable, name: str, unit: str) -> NDArray[np.float64]:
    numbers = table.numbers(name)
    bad = np.flatnonzero(numbers <= 0.0)
    if bad.size:
        table.fail(int(bad[0]), f"{name} is {numbers[bad[0]]:g} {unit}; it must be above 0. Measure the point again.")
    return numbers


def _knobs(table: MeasurementTable) -> dict[str, NDArray[Any]]:
    names = [name for name in table.columns if name not in REQUIRED_COLUMNS]
    if not names:
        raise ProfileError(
            f"{table.source} has no knob: besides {', '.join(REQUIRED_COLUMNS)} it needs what was set at each point, "
            "such as a column frequency (MHz)."
        )
    names.sort(key=lambda name: name != FREQUENCY)  # stable: frequency first, the others as they come
    knobs = {name: table.knob(name) for name in names}
    if FREQUENCY in knobs:
        knobs[FREQUENCY] = _positive(table, FREQUENCY, "MHz")
    return knobs


def _operation(
    table: MeasurementTable,
    key: tuple[int, str],
    rows: NDArray[np.intp],
    time_s: NDArray[np.float64],
    energy_j: NDArray[np.float64],
    knobs: Mapping[str, NDArray[Any]],
    duplicates: Duplicates,
) -> OperationProfile:
    """Gather the points of one (stage, kind); those of equal knobs become their average."""
    settings = list(zip(*(knobs[name][rows].tolist() for name in knobs), strict=True))
    point_of = {setting: point for point, setting in enumerate(dict.fromkeys(settings))}
    point = np.array([point_of[setting] for setting in settings])
    counts = np.bincount(point)
    if duplicates == "error" and counts.max() > 1:
        twice = int(np.flatnonzero(point == int(np.argmax(counts > 1)))[1])
        setting = ", ".join(f"{name} {_shortest(value)}" for name, value in zip(knobs, settings[twice], strict=True))
        table.fail(
            int(rows[twice]),
            f"stage {key[0]}, {key[1]} with {setting} was measured twice; keep one of the two, or pass "
            "duplicates='average'.",
        )
    times = np.bincount(point, weights=time_s[rows]) / counts
    energies = np.bincount(point, weights=energy_j[rows]) / counts
    _, first = np.unique(point, return_index=True)
    order = np.lexsort((energies, times))
    return OperationProfile(
        stage=key[0],
        kind=key[1],
        times_s=times[order],
        energies_j=energies[order],
        knobs=MappingProxyType({name: values[rows[first]][order] for name, values in knobs.items()}),
        counts=counts[order],
    )


def _check_complete(table: MeasurementTable, operations: Mapping[tuple[int, str], OperationProfile]) -> None:
    stages = {stage for stage, _ in operations}
    missing = sorted(set(range(max(stages) + 1)) - stages)
    if missing:
        raise ProfileError(
            f"{table.source} has no measurements of stage {missing[0]}, but of stage {max(stages)}; stages are "
            "numbered from 0 without gaps. Measure the missing stage, or renumber."
        )
    for kind in sorted({kind for _, kind in operations}):
        without = sorted(stage for stage in stages if (stage, kind) not in operations)
        if without:
            raise ProfileError(
                f"{table.source} has no {kind!r} of stage {without[0]}, which other stages have; measure every kind of "
                "operation on every stage."
            )


def _blocking_powers(given: object, num_stages: int) -> dict[int, float]:
    """Return each stage's blocking power."""
    if not isinstance(given, Mapping):
        power_w = _power(given, "blocking_power_w")
        return dict.fromkeys(range(num_stages), power_w)
    missing = sorted(set(range(num_stages)) - set(given))
    if missing:
        raise ProfileError(
            f"blocking_power_w has no entry for stage {missing[0]}; it gives stages {sorted(map(str, given))}. Give "
            "every stage of the profile one, or pass a single number."
        )
    return {stage: _power(given[stage], f"blocking_power_w of stage {stage}") for stage in range(num_stages)}


def _power(value: object, name: str) -> float:
    try:
        power_w = math.nan if isinstance(value, (bool, str)) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        power_w = math.nan
    if not (math.isfinite(power_w) and power_w >= 0.0):
        raise ProfileError(
            f"{name} is {value!r}; it must be a number of watts, 0 or more. Measure a waiting GPU's power."
        )
    return power_w


def _shortest(value: object) -> object:
    """Write whole floats as integers: a clock of 1410 MHz, not 1410.0."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
