"""From a table of measurements to points: checked, complete, and one for each operation and knob setting."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from perseus.errors import ProfileError
from perseus.measurement_table import REQUIRED_COLUMNS, MeasurementTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

FREQUENCY: Final = "frequency"
_MAX_STAGES: Final = 1_000_000  # more is a mistake in the file, and would only fill memory
_KIND_ALIASES: Final = {
    "f": "forward",
    "fwd": "forward",
    "b": "backward",
    "bwd": "backward",
    "i": "input_grad",
    "w": "weight_grad",
    "r": "recompute",
}

_KINDS: Final = tuple(dict.fromkeys(_KIND_ALIASES.values()))

Duplicates = Literal["average", "error"]


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredPoints:
    """Points in parallel arrays, sorted by stage, kind, time, energy.

    Attributes
    ----------
    stage:
        (p,) int64, from 0 without gaps; every stage has every kind.
    kind:
        (p,) text.
    times_s, energies_j:
        (p,) float64, above 0: seconds, and joules of one GPU; means where a point was measured repeatedly.
    knobs:
        Name to (p,) array, ``frequency`` (MHz) first if it is there: float64, or object where not numeric.
    counts:
        (p,) int64: measurements in each point.
    """

    stage: NDArray[np.int64]
    kind: NDArray[Any]
    times_s: NDArray[np.float64]
    energies_j: NDArray[np.float64]
    knobs: Mapping[str, NDArray[Any]]
    counts: NDArray[np.int64]

    def by_operation(self) -> list[slice]:
        """Return where the points of each (stage, kind) stand, in order."""
        is_new = (self.stage[1:] != self.stage[:-1]) | (self.kind[1:] != self.kind[:-1])
        bounds = [0, *(np.flatnonzero(is_new) + 1).tolist(), len(self.stage)]
        return [slice(begin, end) for begin, end in pairwise(bounds)]


def measured_points(table: MeasurementTable, duplicates: Duplicates) -> MeasuredPoints:
    """Check a table and gather its points.

    Raises
    ------
    ProfileError
        If a value breaks a rule, a stage or kind is missing, or (``duplicates="error"``) a point occurs twice.
    """
    stage = _stages(table)
    kinds, kind = _kinds(table)
    time_s = table.positive("time", "s")
    energy_j = table.positive("energy", "J")
    knobs = _knobs(table)
    _check_complete(table, stage, kinds, kind)
    point, first = _points(stage * len(kinds) + kind, knobs)
    if duplicates == "error":
        _check_distinct(table, point, first, knobs)
    times_s, energies_j = _means(time_s, point, first), _means(energy_j, point, first)
    order = np.lexsort((first, energies_j, times_s, kind[first], stage[first]))
    rows = first[order]
    return MeasuredPoints(
        stage=stage[rows],
        kind=np.array(kinds)[kind[rows]],
        times_s=times_s[order],
        energies_j=energies_j[order],
        knobs={name: values[rows] for name, values in knobs.items()},
        counts=np.bincount(point)[order],
    )


def _stages(table: MeasurementTable) -> NDArray[np.int64]:
    numbers = table.numbers("stage")
    bad = np.flatnonzero((numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= _MAX_STAGES))
    if bad.size:
        table.fail(
            int(bad[0]),
            f"stage is {numbers[bad[0]]:.9g}; stages are whole numbers from 0, below {_MAX_STAGES}. Renumber them.",
        )
    return numbers.astype(np.int64)


def _kinds(table: MeasurementTable) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names of the kinds, sorted, and (n,) which of them each row has."""
    texts = table.texts("instruction")
    meant = {text: _kind_name(text) for text in set(texts)}
    names = sorted(set(meant.values()))
    number = {name: i for i, name in enumerate(names)}
    number_of_text = {text: number[name] for text, name in meant.items()}
    return names, np.fromiter(map(number_of_text.__getitem__, texts), np.int64, len(texts))


def _kind_name(text: str) -> str:
    """Return the kind that a text means; what is not known stays as it is, in lower case."""
    lowered = text.lower()
    joined = lowered.replace("-", "_").replace(" ", "_")
    return joined if joined in _KINDS else _KIND_ALIASES.get(lowered, lowered)


def _knobs(table: MeasurementTable) -> dict[str, NDArray[Any]]:
    names = [name for name in table.columns if name not in REQUIRED_COLUMNS]
    if not names:
        raise ProfileError(
            f"{table.source} has no knob: besides {', '.join(REQUIRED_COLUMNS)} it needs what was set at each point, "
            "such as a column frequency (MHz)."
        )
    names.sort(key=lambda name: name != FREQUENCY)  # stable: frequency first, the others as they come
    return {name: table.positive(name, "MHz") if name == FREQUENCY else table.knob(name) for name in names}


def _check_complete(
    table: MeasurementTable, stage: NDArray[np.int64], kinds: list[str], kind: NDArray[np.int64]
) -> None:
    """Raise a `ProfileError` if stages have gaps, or a stage lacks a kind that another one has."""
    num_stages = int(stage.max()) + 1
    gaps = np.setdiff1d(np.arange(num_stages), stage)
    if gaps.size:
        last = table.place(int(np.argmax(stage)))
        raise ProfileError(
            f"{table.source} has no measurements of stage {gaps[0]}, but of stage {num_stages - 1} ({last}); stages "
            "are numbered from 0 without gaps. Measure the missing stage, or renumber."
        )
    measured = np.zeros((num_stages, len(kinds)), dtype=bool)
    measured[stage, kind] = True
    num_with = measured.sum(axis=0).tolist()
    # A kind of few stages, or of no known name, may be a misspelt one: that is told first.
    for number in sorted(range(len(kinds)), key=lambda number: (num_with[number], kinds[number] in _KINDS)):
        missing = np.flatnonzero(~measured[:, number])
        if missing.size:
            row = int(np.flatnonzero(kind == number)[0])
            others = [name for name in (*_KINDS, *kinds[:100]) if name != kinds[number]]
            near = difflib.get_close_matches(kinds[number], others, n=1, cutoff=0.7)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ProfileError(
                f"{table.source} has no {kinds[number]!r} of stage {missing[0]}, but of stage {stage[row]} "
                f"({table.place(row)}); measure every kind of operation on every stage.{hint}"
            )


def _points(
    operation: NDArray[np.int64], knobs: Mapping[str, NDArray[Any]]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return (n,) the point of each row: those of one operation and equal knobs are one; and each point's first row."""
    _, first, point = np.unique(operation, return_index=True, return_inverse=True)
    for values in knobs.values():
        _, setting = np.unique(values, return_inverse=True)
        _, first, point = np.unique(point * (setting.max() + 1) + setting, return_index=True, return_inverse=True)
    return point, first


def _check_distinct(
    table: MeasurementTable, point: NDArray[np.intp], first: NDArray[np.intp], knobs: Mapping[str, NDArray[Any]]
) -> None:
    again = np.setdiff1d(np.arange(len(table)), first)
    if again.size:
        row, earlier = int(again[0]), int(first[point[again[0]]])
        setting = ", ".join(f"{name} {shortest(values.item(row))}" for name, values in knobs.items())
        table.fail(
            row,
            f"stage {table.columns['stage'][row]}, {table.columns['instruction'][row]} at {setting} stands on "
            f"{table.place(earlier)} too; a point may stand once. Keep one of the two, or pass duplicates='average'.",
        )


def _means(values: NDArray[np.float64], point: NDArray[np.intp], first: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the mean of each point's rows; of equal values exactly these, because it is taken from the first one."""
    base = values[first]
    means: NDArray[np.float64] = base + np.bincount(point, weights=values - base[point]) / np.bincount(point)
    return means


def shortest(value: object) -> object:
    """Return whole floats as integers: a clock of 1410 MHz, not 1410.0."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
