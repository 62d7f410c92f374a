"""Splitting the text file of a profile into cells: encoding, separator, quotes, comments, line numbers."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perseus.errors import ProfileError

_SEPARATORS: Final = (",", ";", "\t")


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasurementFile:
    """The cells of a file, as text.

    Attributes
    ----------
    path:
        What was read, for messages.
    header, header_line:
        Names of the columns as written, without surrounding space, and the line they stand on (from 1).
    lines:
        (n,) line on which each row begins.
    columns:
        One list of (n,) texts for each name of the header.
    """

    path: str
    header: list[str]
    header_line: int
    lines: list[int]
    columns: list[list[str]]


def read_measurement_file(path: Path, known_columns: Collection[str]) -> MeasurementFile:
    """Split a file into cells.

    Commas, semicolons or tabs separate; the header tells which. Blank lines and lines that begin with # are passed
    over. Numbers may have decimal commas where commas don't separate; they are returned with points.

    Parameters
    ----------
    path:
        A UTF-8 file, with or without a byte order mark; lines end in LF, CRLF or CR.
    known_columns:
        Names by which the header is known, in lower case.

    Raises
    ------
    ProfileError
        If the file cannot be read, has no rows, or a row has not one value a column.
    """
    text = _read_text(path)
    lines = text.split("\n")
    content = [n for n, line in enumerate(lines, start=1) if (begin := line.lstrip()) and begin[0] != "#"]
    if not content:
        raise ProfileError(f"{path} is empty; a profile needs a header line and a line for each measured point.")
    separator = _find_separator(lines[content[0] - 1], known_columns)
    # Without quotes every line is a row, which is many times faster than the general case.
    split = _split_quoted if '"' in text else _split_plain
    file = split(path, lines, content, separator)
    if not file.lines:
        raise ProfileError(f"{path} has a header but no measurements; add a line for each measured point.")
    if separator != "," and "," in text:
        _use_decimal_points(file)
    return file


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise ProfileError(f"{path} is a directory; pass the path of a profile CSV file.")
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ProfileError(f"{path} does not exist; pass the path of a profile CSV file.") from None
    except UnicodeDecodeError as error:
        raise ProfileError(
            f"{path} is not UTF-8 text (byte {error.start} is 0x{error.object[error.start]:02x}); save it as UTF-8."
        ) from None
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror or error}.") from error
    if "\0" in text:
        raise ProfileError(f"{path} has zero bytes, so it is binary or UTF-16, not UTF-8 text; save it as UTF-8.")
    return text


def _find_separator(header: str, known_columns: Collection[str]) -> str:
    """Return the separator by which the header has most of the known columns, or else most columns."""

    def columns(separator: str) -> tuple[int, int]:
        names = next(csv.reader([header], delimiter=separator, skipinitialspace=True), [])
        return sum(name.strip().lower() in known_columns for name in names), len(names)

    return max(_SEPARATORS, key=columns)


def _split_plain(path: Path, lines: list[str], content: list[int], separator: str) -> MeasurementFile:
    """Split a file in which no value is quoted."""
    rows = [lines[n - 1] for n in content] if len(content) < len(lines) else lines
    width = rows[0].count(separator) + 1
    counts = [row.count(separator) for row in rows]
    if counts.count(width - 1) < len(counts):
        ragged = next(i for i, count in enumerate(counts) if count != width - 1)
        raise _ragged(path, content[ragged], counts[ragged] + 1, width)
    cells = separator.join(rows).split(separator)
    return MeasurementFile(
        path=str(path),
        header=[name.strip() for name in cells[:width]],
        header_line=content[0],
        lines=content[1:],
        columns=[cells[width + column :: width] for column in range(width)],
    )


def _split_quoted(path: Path, lines: list[str], content: list[int], separator: str) -> MeasurementFile:
    """Split a file in which values may be quoted, and then hold separators, line ends and what looks like a comment."""
    firsts: list[int] = []  # line on which each record begins
    is_content = set(content)
    in_record = False

    def source() -> Iterator[str]:
        nonlocal in_record
        for number, line in enumerate(lines, start=1):
            if in_record:
                yield line + "\n"
            elif number in is_content:
                in_record = True
                firsts.append(number)
                yield line + "\n"

    records: list[list[str]] = []
    try:
        for record in csv.reader(source(), delimiter=separator, skipinitialspace=True, strict=True):
            in_record = False
            records.append(record)
            if len(record) != len(records[0]):
                raise _ragged(path, firsts[-1], len(record), len(records[0]))
    except csv.Error as error:
        raise ProfileError(f"{path}, line {firsts[-1]}: not valid CSV ({error}); check the quotes.") from None
    return MeasurementFile(
        path=str(path),
        header=[name.strip() for name in records[0]],
        header_line=firsts[0],
        lines=firsts[1:],
        columns=[list(cells) for cells in zip(*records[1:], strict=True)],
    )


def _ragged(path: Path, line: int, found: int, width: int) -> ProfileError:
    return ProfileError(
        f"{path}, line {line}: found {found} value{'s' if found > 1 else ''}, but the header names {width} columns; "
        "give every line one value a column (quote text that contains the separator)."
    )


def _use_decimal_points(file: MeasurementFile) -> None:
    """Turn decimal commas into points in the columns of numbers, unless the file also has decimal points.

    With both, a comma may as well part thousands, and 1,410 MHz must not become 1.41.
    """
    with_commas = [column for column, cells in enumerate(file.columns) if _has_decimal(cells, ",")]
    with_points = [column for column, cells in enumerate(file.columns) if _has_decimal(cells, ".")]
    if with_commas and with_points:
        comma, point = (
            next((row, cells[row].strip()) for row in range(len(cells)) if mark in cells[row])
            for mark, cells in ((",", file.columns[with_commas[0]]), (".", file.columns[with_points[0]]))
        )
        raise ProfileError(
            f"{file.path}, line {file.lines[comma[0]]}: {file.header[with_commas[0]]} is {comma[1]!r}, but line "
            f"{file.lines[point[0]]} has {file.header[with_points[0]]} {point[1]!r}; with commas and points in numbers "
            "it cannot be told which are decimal. Write decimals with points, and thousands without separators."
        )
    for column in with_commas:
        file.columns[column] = [cell.replace(",", ".") for cell in file.columns[column]]


def _has_decimal(cells: list[str], mark: str) -> bool:
    """Whether there are values with this mark, and each is a number when the mark is read as its decimal point."""
    marked = [cell.replace(mark, ".") for cell in cells if mark in cell]
    try:
        return bool([float(cell) for cell in marked])
    except ValueError:
        return False
