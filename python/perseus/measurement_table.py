"""Columns of measurements that know their lines, from a file, a data frame or a mapping of arrays."""

from __future__ import annotations

import difflib
import math
import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, Union

import numpy as np

from perseus.errors import ProfileError
from perseus.measurement_file import read_measurement_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

REQUIRED_COLUMNS: Final = ("stage", "instruction", "time", "energy")
_COLUMN_ALIASES: Final = {"kind": "instruction"}
LARGEST: Final = 1e100
"""Largest time (s), energy (J) or power (W); 1 / LARGEST is the smallest above 0. Their products stay finite."""

_NOT_NUMBERS: Final = (bool, np.bool_, complex, np.complexfloating, np.datetime64, np.timedelta64)


class DataFrame(Protocol):
    """What is needed of a data frame: pandas, polars and pyarrow have it; none of them is a dependency."""

    @property
    def columns(self) -> Any:
        """Names of the columns."""

    def __getitem__(self, name: Any, /) -> Any:
        """Return a column."""


ProfileSource = Union[str, "os.PathLike[str]", DataFrame, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasurementTable:
    """Columns of equal length, as read.

    Attributes
    ----------
    source:
        What was read, for messages.
    columns:
        Name, in lower case, to (n,) array, or list of text from a file; in the source's order.
    lines:
        (n,) the line of each row in its file, or its row number.
    line_word:
        "line" or "row".
    """

    source: str
    columns: Mapping[str, NDArray[Any] | list[str]]
    lines: Sequence[int]
    line_word: str

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, row: int) -> str:
        """Return where a row is, such as "line 7"."""
        return f"{self.line_word} {self.lines[row]}"

    def fail(self, row: int, problem: str) -> NoReturn:
        """Raise a `ProfileError` about a row."""
        raise ProfileError(f"{self.source}, {self.place(row)}: {problem}")

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column as finite numbers.

        Raises
        ------
        ProfileError
            If a value is not a finite number.
        """
        column = self.columns[name]
        numbers = _as_numbers(column)
        if numbers is None:
            self._fail_not_number(name, _values(column))
        bad = np.flatnonzero(~np.isfinite(numbers))
        if bad.size:
            self.fail(
                int(bad[0]), f"{name} is {numbers[bad[0]]}; it must be finite. Measure the point again or remove it."
            )
        return numbers

    def positive(self, name: str, unit: str) -> NDArray[np.float64]:
        """Return a column as numbers above 0, not beyond what can be computed with."""
        numbers = self.numbers(name)
        bad = np.flatnonzero((numbers < 1.0 / LARGEST) | (numbers > LARGEST))
        if bad.size:
            value = numbers[bad[0]]
            rule = f"from {1.0 / LARGEST:g} to {LARGEST:g}. Check its unit" if value > 0.0 else "above 0. Measure again"
            self.fail(int(bad[0]), f"{name} is {value:g} {unit}; it must be {rule}, or remove the point.")
        return numbers

    def texts(self, name: str) -> list[str]:
        """Return a column of text, none of it empty; white space as single spaces."""
        values = _values(self.columns[name])
        for row, value in enumerate(values):
            if not isinstance(value, str):
                self.fail(
                    row, f"{name} is {reprlib.repr(value)}; it must be text, such as forward or backward. Correct it."
                )
            if not value or value.isspace():
                self.fail(row, f"{name} is empty; it must be text, such as forward or backward. Fill it in.")
        return _tidied(values)

    def knob(self, name: str) -> NDArray[Any]:
        """Return a knob: float64 if every value is a number, else text (an object array).

        Raises
        ------
        ProfileError
            If some values are finite numbers and the others infinite, NaN or missing.
        """
        column = self.columns[name]
        numbers = _as_numbers(column)
        if numbers is not None:
            bad = np.flatnonzero(~np.isfinite(numbers))
            if bad.size:
                self.fail(
                    int(bad[0]), f"{name} is {numbers[bad[0]]}; a knob must be finite. Fill it in or leave out {name}."
                )
            return numbers
        texts = _tidied("" if _is_missing(value) else str(value) for value in _values(column))
        if "" in texts and any(texts) and _as_numbers([text for text in texts if text]) is not None:
            self.fail(texts.index(""), f"{name} is empty, but a number elsewhere. Fill it in or leave out {name}.")
        return np.array(texts, dtype=object)

    def _fail_not_number(self, name: str, values: list[Any]) -> NoReturn:
        row = next(row for row, value in enumerate(values) if _as_number(value) is None)
        found = values[row]
        what = "is empty" if isinstance(found, str) and not found.strip() else f"is {reprlib.repr(found)}"
        comma = isinstance(found, str) and _as_number(found.replace(",", "")) is not None
        remedy = "Write it with a decimal point and without commas." if comma else "Correct or remove the row."
        self.fail(row, f"{name} {what}; it must be a number. {remedy}")


def read_table(source: ProfileSource) -> MeasurementTable:
    """Read a CSV file, a data frame or a mapping of arrays.

    Raises
    ------
    ProfileError
        If there is nothing to read, columns are missing or doubled, or rows have the wrong length.
    """
    if isinstance(source, (str, os.PathLike)):
        return _from_file(source)
    if isinstance(source, Mapping):
        return _from_columns("the mapping", list(source), list(source.values()))
    if hasattr(source, "columns") and hasattr(source, "__getitem__"):  # pandas, polars, pyarrow and their like
        names = list(getattr(source, "column_names", source.columns))
        return _from_columns("the data frame", names, [source[name] for name in names])
    raise ProfileError(
        f"A profile cannot be read from {type(source).__name__}; pass the path of a CSV file, a data frame, or a "
        f"mapping from column names ({', '.join(REQUIRED_COLUMNS)} and knobs) to arrays."
    )


def _from_file(source: str | os.PathLike[Any]) -> MeasurementTable:
    path = os.fspath(source)
    if not isinstance(path, str) or not path or any(mark in path for mark in "\n\r\0"):
        raise ProfileError(
            f"A profile cannot be read from {path[:40]!r}, which is no path; pass the path of a CSV file (not its "
            "content)."
        )
    file = read_measurement_file(Path(path), (*REQUIRED_COLUMNS, *_COLUMN_ALIASES))
    names = _column_names(f"{file.path}, line {file.header_line}", file.header)
    lines, columns = file.rows()
    return MeasurementTable(
        source=file.path, columns=dict(zip(names, columns, strict=True)), lines=lines, line_word="line"
    )


def _from_columns(source: str, names: list[Any], values: list[Any]) -> MeasurementTable:
    found = _column_names(source, [str(name) for name in names])
    columns = {name: _as_column(source, name, column) for name, column in zip(found, values, strict=True)}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ProfileError(
            f"The columns of {source} have different lengths, {lengths}; give one value a point in each."
        )
    num_rows = lengths["stage"]
    if not num_rows:
        raise ProfileError(f"{source[0].upper()}{source[1:]} has no rows; give one for each measured point.")
    return MeasurementTable(source=source, columns=columns, lines=range(num_rows), line_word="row")


def _as_column(source: str, name: str, values: Any) -> NDArray[Any]:
    """Return values as an array of one axis; what is masked becomes None."""
    try:
        array = np.asarray(values)
    except ValueError:  # sequences of different lengths
        raise ProfileError(f"Column {name!r} of {source} holds sequences; give one value a point.") from None
    if array.ndim != 1:
        raise ProfileError(f"Column {name!r} of {source} has shape {array.shape}; every column must have one axis.")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    if np.ma.is_masked(values):
        array = array.astype(object)
        array[np.ma.getmaskarray(values)] = None
    return array


def _column_names(source: str, names: list[str]) -> list[str]:
    """Return column names in lower case, with aliases replaced; refuses missing, doubled and empty ones."""
    lowered = [name.lower() for name in _tidied(names)]
    found = [_COLUMN_ALIASES.get(name, name) for name in lowered]
    for required in REQUIRED_COLUMNS:
        if required in found:
            continue
        near = difflib.get_close_matches(required, found, n=1, cutoff=0.5)
        hint = f"; did you mean that {near[0]!r} is {required!r}?" if near else "."
        raise ProfileError(
            f"{source}: there is no column {required!r} among {', '.join(map(repr, names)) or 'none'}{hint} A profile "
            "has the columns stage, instruction, frequency (or other knobs), time (s) and energy (J)."
        )
    if "" in found:
        raise ProfileError(f"{source}: there is a column without a name; name it or leave it out.")
    doubled = next((name for name in found if found.count(name) > 1), None)
    if doubled is not None:
        written = [repr(name) for name, meant in zip(names, found, strict=True) if meant == doubled]
        raise ProfileError(
            f"{source}: there are two columns {doubled!r}, written {' and '.join(written)}; keep one, or rename one."
        )
    return found


def _values(column: NDArray[Any] | list[str]) -> list[Any]:
    """Return a column's values as Python objects; times and dates keep their type."""
    if isinstance(column, list):
        return column
    return list(column) if column.dtype.kind in "mM" else column.tolist()


def _tidied(texts: Iterable[str]) -> list[str]:
    """Return texts with every run of white space as one space: no line ends, so that files stay readable."""
    tidy: dict[str, str] = {}  # of a million texts few differ
    return [tidy[text] if text in tidy else tidy.setdefault(text, " ".join(text.split())) for text in texts]


def _as_numbers(column: NDArray[Any] | list[str]) -> NDArray[np.float64] | None:
    """Return a column as numbers, or None where one is not."""
    if not isinstance(column, list) and column.dtype.kind in "iuf":
        return column.astype(np.float64)
    values = _values(column)
    if isinstance(column, list):
        try:
            return np.fromiter(map(float, values), np.float64, len(values))
        except ValueError:
            return None
    numbers = [_as_number(value) for value in values]
    return None if None in numbers else np.array(numbers, dtype=np.float64)


def _as_number(value: Any) -> float | None:
    if isinstance(value, _NOT_NUMBERS):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _is_missing(value: object) -> bool:
    """Whether a data frame's value stands for none: None, NaN, NaT or NA."""
    not_a_number = isinstance(value, float) and math.isnan(value)
    return value is None or not_a_number or type(value).__name__ in ("NAType", "NaTType")
