"""Reading measurements: a CSV file, a data frame or a mapping of arrays becomes columns that know their lines."""

from __future__ import annotations

import csv
import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from perseus.errors import ProfileError

if TYPE_CHECKING:
    from numpy.typing import NDArray

REQUIRED_COLUMNS = ("stage", "instruction", "time", "energy")
_COLUMN_ALIASES = {"kind": "instruction"}
_SEPARATORS = (",", ";", "\t")


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasurementTable:
    """Columns of equal length, as read.

    Attributes
    ----------
    source:
        What was read, for messages.
    columns:
        Name, in lower case, to (n,) array of text or numbers; in the source's order.
    lines:
        (n,) the line of each row in its file, or its row number.
    line_word:
        "line" or "row".
    """

    source: str
    columns: Mapping[str, NDArray[Any]]
    lines: NDArray[np.int64]
    line_word: str

    def __len__(self) -> int:
        return len(self.lines)

    def fail(self, row: int, problem: str) -> NoReturn:
        """Raise a `ProfileError` about a row."""
        raise ProfileError(f"{self.source}, {self.line_word} {self.lines[row]}: {problem}")

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
            row = next(i for i, value in enumerate(column.tolist()) if _as_number(value) is None)
            found = column.tolist()[row]
            what = "is empty" if str(found).strip() == "" else f"is {found!r}"
            self.fail(row, f"{name} {what}; it must be a number. Correct or remove the row.")
        bad = np.flatnonzero(~np.isfinite(numbers))
        if bad.size:
            self.fail(
                int(bad[0]), f"{name} is {numbers[bad[0]]}; it must be finite. Measure the point again or remove it."
            )
        return numbers

    def knob(self, name: str) -> NDArray[Any]:
        """Return a knob column: float64 if every value is a number, else text."""
        if self.columns[name].dtype.kind != "b":
            numbers = _as_numbers(self.columns[name])
            if numbers is not None and bool(np.isfinite(numbers).all()):
                return numbers
        return np.array([str(value).strip() for value in self.columns[name].tolist()], dtype=object)


def read_table(source: object) -> MeasurementTable:
    """Read a CSV file, a data frame or a mapping of arrays.

    Raises
    ------
    ProfileError
        If there is nothing to read, columns are missing or doubled, or rows have the wrong length.
    """
    if isinstance(source, (str, os.PathLike)):
        return _read_csv(Path(source))
    if isinstance(source, Mapping):
        return _from_columns("the mapping", dict(source))
    if hasattr(source, "columns") and hasattr(source, "__getitem__"):  # pandas, polars and their like
        return _from_columns("the data frame", {name: source[name] for name in source.columns})
    raise ProfileError(
        f"A profile cannot be read from {type(source).__name__}; pass the path of a CSV file, a data frame, or a "
        f"mapping from column names ({', '.join(REQUIRED_COLUMNS)} and knobs) to arrays."
    )


def _from_columns(source: str, columns: Mapping[Any, Any]) -> MeasurementTable:
    arrays = [np.asarray(values) for values in columns.values()]
    names = _column_names(source, [str(name) for name in columns])
    for name, array in zip(names, arrays, strict=True):
        if array.ndim != 1:
            raise ProfileError(f"Column {name!r} of {source} has shape {array.shape}; every column must have one axis.")
    lengths = {name: len(array) for name, array in zip(names, arrays, strict=True)}
    if len(set(lengths.values())) > 1:
        raise ProfileError(
            f"The columns of {source} have different lengths, {lengths}; give one value a point in each."
        )
    if not arrays or not len(arrays[0]):
        raise ProfileError(f"{source[0].upper()}{source[1:]} has no rows; give one for each measured point.")
    return MeasurementTable(
        source=source,
        columns=dict(zip(names, arrays, strict=True)),
        lines=np.arange(len(arrays[0])),
        line_word="row",
    )


def _read_csv(path: Path) -> MeasurementTable:
    text = _read_text(path)
    separator = _find_separator(text)
    ends, records = _records(path, text, separator)
    if not records:
        raise ProfileError(f"{path} is empty; a profile needs a header line and a line for each measured point.")
    names = _column_names(f"{path}, line {ends[0]}", [cell.strip() for cell in records[0]])
    if len(records) == 1:
        raise ProfileError(f"{path} has a header but no measurements; add a line for each measured point.")
    lines, rows = np.array(ends[1:]), records[1:]
    for line, row in zip(lines.tolist(), rows, strict=True):
        if len(row) != len(names):
            raise ProfileError(
                f"{path}, line {line}: found {len(row)} values, but the header names {len(names)} columns; give every "
                "line one value a column (quote text that contains the separator)."
            )
    columns = {name: np.array(cells) for name, cells in zip(names, zip(*rows, strict=True), strict=True)}
    if separator == ";":
        columns = {name: _with_decimal_points(cells) for name, cells in columns.items()}
    return MeasurementTable(source=str(path), columns=columns, lines=lines, line_word="line")


def _read_text(path: Path) -> str:
    if path.is_dir():
        raise ProfileError(f"{path} is a directory; pass the path of a profile CSV file.")
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ProfileError(f"{path} does not exist; pass the path of a profile CSV file.") from None
    except UnicodeDecodeError as error:
        raise ProfileError(
            f"{path} is not UTF-8 text (byte {error.start} is 0x{error.object[error.start]:02x}); save it as UTF-8."
        ) from None
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror or error}.") from error


def _is_content(line: str) -> bool:
    stripped = line.strip()
    return bool(stripped) and not stripped.startswith("#")


def _find_separator(text: str) -> str:
    """Return the separator that the header line has most of; a header with a semicolon is separated by it."""
    header = next((line for line in text.splitlines() if _is_content(line)), "")
    if ";" in header:
        return ";"
    return max(_SEPARATORS, key=header.count)


def _records(path: Path, text: str, separator: str) -> tuple[list[int], list[list[str]]]:
    """Return the records and the line on which each ends; blank lines and comments are passed over."""
    lines = text.splitlines(keepends=True)
    numbers = [number for number, line in enumerate(lines, start=1) if _is_content(line)]
    reader = csv.reader((lines[n - 1] for n in numbers), delimiter=separator, skipinitialspace=True, strict=True)
    ends: list[int] = []
    records: list[list[str]] = []
    try:
        if '"' not in text:  # every line is a record
            return numbers, list(reader)
        for record in reader:
            records.append(record)
            ends.append(numbers[reader.line_num - 1])
    except csv.Error as error:
        line = numbers[max(reader.line_num - 1, 0)]
        raise ProfileError(f"{path}, line {line}: not valid CSV ({error}); check the quotes.") from None
    return ends, records


def _column_names(source: str, names: list[str]) -> list[str]:
    """Return column names in lower case, with aliases replaced; refuses missing, doubled and empty ones."""
    found = [_COLUMN_ALIASES.get(name.strip().lower(), name.strip().lower()) for name in names]
    for required in REQUIRED_COLUMNS:
        if required in found:
            continue
        near = difflib.get_close_matches(required, found, n=1, cutoff=0.5)
        hint = f"; did you mean that {near[0]!r} is {required!r}?" if near else ""
        raise ProfileError(
            f"{source}: there is no column {required!r} among {', '.join(map(repr, names))}{hint}. A profile has the "
            "columns stage, instruction, frequency (or other knobs), time (s) and energy (J)."
        )
    doubled = sorted({name for name in found if found.count(name) > 1})
    if doubled or "" in found:
        what = f"column {doubled[0]!r} twice" if doubled and doubled[0] else "a column without a name"
        raise ProfileError(f"{source}: the header has {what}; give every column its own name.")
    return found


def _with_decimal_points(cells: NDArray[Any]) -> NDArray[Any]:
    """Turn decimal commas into points where every value that has a comma is then a number."""
    with_comma = np.char.find(cells, ",") >= 0
    if not with_comma.any() or (np.char.find(cells, ".") >= 0).any():
        return cells
    replaced = np.char.replace(cells, ",", ".")
    return replaced if _as_numbers(replaced[with_comma]) is not None else cells


def _as_numbers(values: NDArray[Any]) -> NDArray[np.float64] | None:
    if values.dtype.kind == "b":
        return None
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        return None


def _as_number(value: object) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
