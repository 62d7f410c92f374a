"""What commands write: results on stdout (text, or JSON and nothing else), everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType


class Output:
    """Where a command's results go.

    Parameters
    ----------
    as_json:
        Results are one JSON document; `show_text` and `show` do nothing.
    quiet:
        No text at all; errors are still told, and JSON that was asked for is still written.
    """

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self._as_json = as_json
        self._quiet = quiet

    @property
    def may_show_progress(self) -> bool:
        """Whether a bar on stderr would be seen by someone."""
        return not (self._as_json or self._quiet) and sys.stderr.isatty()

    def show(self, renderable: RenderableType) -> None:
        """Print something that rich can lay out, such as a table."""
        if self._as_json or self._quiet:
            return
        from rich.console import Console

        console = Console(file=sys.stdout)
        with console.capture() as captured:
            console.print(renderable)
        write(sys.stdout, captured.get())

    def show_text(self, text: str) -> None:
        """Print a line."""
        if not (self._as_json or self._quiet):
            write(sys.stdout, f"{text}\n")

    def show_json(self, document: Mapping[str, object]) -> None:
        """Print the result as JSON, if JSON was asked for."""
        if self._as_json:
            write(sys.stdout, f"{as_json_text(document)}\n")


def as_json_text(document: Mapping[str, object]) -> str:
    """Return a JSON document as people can read it. NaN and infinity are refused: JSON has none."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def write(stream: TextIO, text: str) -> None:
    """Write and flush. A reader that has seen enough (``| head``) is no error: the rest is dropped."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _discard(stream)
    except UnicodeEncodeError:  # a terminal without "µ": better a question mark than no result
        encoding = stream.encoding or "ascii"
        write(stream, text.encode(encoding, errors="replace").decode(encoding))


def flush() -> None:
    """Flush both streams, so that the interpreter finds nothing to complain about when it ends."""
    for stream in (sys.stdout, sys.stderr):
        write(stream, "")


def _discard(stream: TextIO) -> None:
    """Let the stream's file descriptor lead nowhere; what is still buffered goes there, too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)
