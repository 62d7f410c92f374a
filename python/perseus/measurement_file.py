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
    """A file whose header has been found; `rows` splits the rest.

    Attributes
    ----------
    path:
        What was read, for messages.
    header, header_line:
        Names of the columns as written, without surrounding space, and the line they stand on (from 1).
    separator:
        Comma, semicolon or tab.
    text_lines:
        All lines, without their ends.
    content:
        Numbers, from 1, of the lines that are neither blank nor comments; the header's comes first.
    """

    path: str
    header: list[str]
    header_line: int
    separator: str
    text_lines: list[str]
    content: list[int]

    def rows(self) -> tuple[list[int], list[list[str]]]:
        """Return (n,) the line on which each row begins, and for each column a list of (n,) texts.

        Numbers may have decimal commas where commas don't separate; they are returned with points.

        Raises
        ------
        ProfileError
            If there are no rows, or one has not one value a column.
        """
        if len(self.content) == 1:
            raise ProfileError(f"{self.path} has a header but no measurements; add a line for each measured point.")
        # Without quotes every line is a row, which is many times faster to split than the general case.
        is_quoted = any('"' in line for line in self.text_lines)
        lines, columns = _split_quoted(self) if is_quoted else _split_plain(self)
        if self.separator != ",":
            _use_decimal_points(self.path, self.header, lines, columns)
        return lines, columns


def read_measurement_file(path: Path, known_columns: Collection[str]) -> MeasurementFile:
    """Read a file and find its header.

    Commas, semicolons or tabs separate; the header tells which. Blank lines and lines that begin with # are passed
    over.

    Parameters
    ----------
    path:
        A UTF-8 file, with or without a byte order mark; lines end in LF, CRLF or CR.
    known_columns:
        Names by which the header is known, in lower case.

    Raises
    ------
    ProfileError
        If the file cannot be read or is empty.
    """
    lines = _read_text(path).split("\n")
    content = [n for n, line in enumerate(lines, start=1) if (begin := line.lstrip()) and begin[0] != "#"]
    if not content:
        raise ProfileError(f"{path} is empty; a profile needs a header line and a line for each measured point.")
    separator, header = _find_header(lines[content[0] - 1], known_columns)
    return MeasurementFile(
        path=str(path),
        header=header,
        header_line=content[0],
        separator=separator,
        text_lines=lines,
        content=content,
    )


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
        raise ProfileError(
            f"{path} cannot be read: {error.strerror or error}; pass the path of a CSV file that you may read."
        ) from error
    if "\0" in text:
        raise ProfileError(f"{path} has zero bytes, so it is binary or UTF-16, not UTF-8 text; save it as UTF-8.")
    return text


def _find_header(line: str, known_columns: Collection[str]) -> tuple[str, list[str]]:
    """Return the separator by which a line has most of the known columns, or else most columns; and the columns."""
    headers = {separator: _split_header(line, separator) for separator in _SEPARATORS}
    return max(headers.items(), key=lambda item: (sum(name.lower() in known_columns for name in item[1]), len(item[1])))


def _split_header(line: str, separator: str) -> list[str]:
    try:
        return [name.strip() for name in next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])]
    except csv.Error:  # a name of more than 128 KiB: this is not the separator
        return [line[:40]]


def _split_plain(file: MeasurementFile) -> tuple[list[int], list[list[str]]]:
    """Split a file in which no value is quoted."""
    width, numbers = len(file.header), file.content[1:]
    rows = [file.text_lines[number - 1] for number in numbers]
    counts = [row.count(file.separator) for row in rows]
    if counts.count(width - 1) < len(counts):
        ragged = next(row for row, count in enumerate(counts) if count != width - 1)
        raise _ragged(file, numbers[ragged], counts[ragged] + 1)
    cells = file.separator.join(rows).split(file.separator)
    return numbers, [cells[column::width] for column in range(width)]


def _split_quoted(file: MeasurementFile) -> tuple[list[int], list[list[str]]]:
    """Split a file in which values may be quoted, and then hold separators, line ends and what looks like a comment."""
    begins: list[int] = []  # line on which each row begins
    is_content = set(file.content)
    in_row = False

    def lines() -> Iterator[str]:
        nonlocal in_row
        for number in range(file.header_line + 1, len(file.text_lines) + 1):
            if not in_row and number in is_content:
                in_row = True
                begins.append(number)
            if in_row:
                yield file.text_lines[number - 1] + "\n"

    rows: list[list[str]] = []
    try:
        for row in csv.reader(lines(), delimiter=file.separator, skipinitialspace=True, strict=True):
            in_row = False
            rows.append(row)
            if len(row) != len(file.header):
                raise _ragged(file, begins[-1], len(row))
    except csv.Error as error:
        raise ProfileError(f"{file.path}, line {begins[-1]}: not valid CSV ({error}); check the quotes.") from None
    return begins, [list(cells) for cells in zip(*rows, strict=True)]


def _ragged(file: MeasurementFile, line: int, found: int) -> ProfileError:
    return ProfileError(
        f"{file.path}, line {line}: found {found} value{'s' if found > 1 else ''}, but the header names "
        f"{len(file.header)} columns; give every line one value a column (quote text that contains the separator)."
    )


def _use_decimal_points(path: str, header: list[str], lines: list[int], columns: list[list[str]]) -> None:
    """Turn decimal commas into points in the columns of numbers, unless the file also has decimal points.

    With both, a comma may as well part thousands, and 1,410 MHz must not become 1.41.
    """

    def first_with(mark: str, column: int) -> tuple[int, str]:
        line, value = next((line, value) for line, value in zip(lines, columns[column], strict=True) if mark in value)
        return line, f"{header[column]} {value.strip()!r}"

    with_commas = [column for column, cells in enumerate(columns) if _has_decimal(cells, ",")]
    with_points = [column for column, cells in enumerate(columns) if _has_decimal(cells, ".")]
    if with_commas and with_points:
        line, value = first_with(",", with_commas[0])
        other_line, other_value = first_with(".", with_points[0])
        raise ProfileError(
            f"{path}, line {line}: found {value}, but {other_value} on line {other_line}; with commas and points in "
            "numbers it cannot be told which are decimal. Write decimals with points, and thousands without separators."
        )
    for column in with_commas:
        columns[column] = [cell.replace(",", ".") for cell in columns[column]]


def _has_decimal(cells: list[str], mark: str) -> bool:
    """Whether there are values with this mark, and each is a number when the mark is read as its decimal point."""
    marked = [cell.replace(mark, ".") for cell in cells if mark in cell]
    try:
        return bool([float(cell) for cell in marked])
    except ValueError:
        return False
