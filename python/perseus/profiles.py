"""Measured time and energy of every operation at every knob setting."""

from __future__ import annotations

import csv
import difflib
import math
import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perseus.curves import Curve, effective_curve
from perseus.errors import ProfileError
from perseus.measured_points import Duplicates, measured_points, shortest
from perseus.measurement_table import LARGEST, ProfileSource, read_table
from perseus.replacement import replacement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

EXAMPLE_BLOCKING_POWER_W: Final = 75.0
"""Blocking power (W) of the modelled GPU of the built-in example profile."""


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
        object.__setattr__(self, "knobs", MappingProxyType(dict(self.knobs)))
        for array in (self.times_s, self.energies_j, self.counts, *self.knobs.values()):
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.times_s)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "knobs": dict(self.knobs)}  # a mapping proxy cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # arrays come out of a pickle writable


class Profiles:
    """Measurements of a pipeline's operations, and the power its GPUs draw while they wait: an immutable value.

    Made by `read_profiles`. ``profiles[stage, kind]`` gives an `OperationProfile`; iteration gives the keys.
    """

    def __init__(
        self, operations: Mapping[tuple[int, str], OperationProfile], blocking_power_w: Mapping[int, float]
    ) -> None:
        self._operations = dict(sorted(operations.items()))
        self._blocking_power_w = MappingProxyType(dict(sorted(blocking_power_w.items())))
        self._curves: dict[tuple[int, str], Curve] = {}

    @property
    def blocking_power_w(self) -> Mapping[int, float]:
        """Watts that a GPU draws while it waits, for every stage."""
        return self._blocking_power_w

    @property
    def keys(self) -> tuple[tuple[int, str], ...]:
        """The (stage, kind) pairs that were measured, sorted."""
        return tuple(self._operations)

    @property
    def knob_names(self) -> tuple[str, ...]:
        """Names of what was set, ``frequency`` first if it is there."""
        return tuple(next(iter(self._operations.values())).knobs)

    @property
    def stages(self) -> tuple[int, ...]:
        """Numbers of the stages, ascending."""
        return tuple(self._blocking_power_w)

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

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return iter(self._operations)

    def __len__(self) -> int:
        return len(self._operations)

    def curve(self, stage: int, kind: str) -> Curve:
        """Return the convex curve of effective energy of a (stage, kind); computed once."""
        key = (stage, kind)
        if key not in self._curves:
            measured = self[key]
            curve = effective_curve(measured.times_s, measured.energies_j, self._blocking_power_w[stage])
            self._curves.setdefault(key, curve)  # of two threads that come here at once, the first one's curve stays
        return self._curves[key]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the points with the columns that `read_profiles` reads; numbers are kept exactly."""
        with replacement(path) as file:
            writer = csv.writer(file)
            writer.writerow(["stage", "instruction", *self.knob_names, "time", "energy"])
            for (stage, kind), measured in self._operations.items():
                knobs = (map(shortest, measured.knobs[name].tolist()) for name in self.knob_names)
                points = zip(*knobs, measured.times_s.tolist(), measured.energies_j.tolist(), strict=True)
                writer.writerows([stage, kind, *point] for point in points)

    def __repr__(self) -> str:
        points = sum(len(measured) for measured in self._operations.values())
        powers = sorted(set(self.blocking_power_w.values()))
        power = f"{powers[0]:g}" if len(powers) == 1 else f"{powers[0]:g} to {powers[-1]:g}"
        return (
            f"Profiles({len(self.stages)} stages, kinds {', '.join(self.kinds)}, {points} points over "
            f"{', '.join(self.knob_names)}, blocking power {power} W)"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"operations": self._operations, "blocking_power_w": dict(self._blocking_power_w)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["operations"], state["blocking_power_w"])  # type: ignore[misc]


def example_profile_path() -> Path:
    """Return the path of the built-in example profile: 4 stages on a modelled GPU (its header says how)."""
    return Path(str(resources.files("perseus") / "data" / "example_profile.csv"))


def read_profiles(
    source: ProfileSource,
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
        Files may have a byte order mark, CRLF, tabs or semicolons, and then decimal commas, and comments (#).
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
    points = measured_points(read_table(source), duplicates)
    operations = {}
    for rows in points.by_operation():
        measured = OperationProfile(
            stage=int(points.stage[rows.start]),
            kind=str(points.kind[rows.start]),
            times_s=points.times_s[rows],
            energies_j=points.energies_j[rows],
            knobs={name: values[rows] for name, values in points.knobs.items()},
            counts=points.counts[rows],
        )
        operations[measured.stage, measured.kind] = measured
    return Profiles(operations, _blocking_powers(blocking_power_w, int(points.stage[-1]) + 1))


def _blocking_powers(given: object, num_stages: int) -> dict[int, float]:
    """Return each stage's blocking power."""
    if not isinstance(given, Mapping):
        power_w = _power(given, "blocking_power_w")
        return dict.fromkeys(range(num_stages), power_w)
    missing = [stage for stage in range(num_stages) if stage not in given]
    if missing:
        raise ProfileError(
            f"blocking_power_w has no entry for stage {missing[0]}, but for {', '.join(map(repr, given)) or 'none'}; "
            "give every stage of the profile one, its number as the key, or pass a single number."
        )
    return {stage: _power(given[stage], f"blocking_power_w of stage {stage}") for stage in range(num_stages)}


def _power(value: object, name: str) -> float:
    try:
        power_w = math.nan if isinstance(value, (bool, np.bool_, str)) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        power_w = math.nan
    if not 0.0 <= power_w <= LARGEST:
        raise ProfileError(
            f"{name} is {reprlib.repr(value)}; it must be a number of watts, 0 or more (to {LARGEST:g}), or a mapping "
            "from stages to such numbers. Measure a waiting GPU's power."
        )
    return power_w
