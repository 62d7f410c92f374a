"""Writing a file so that its old content stays until the new one is complete."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO


@contextlib.contextmanager
def replacement(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Open a text file beside ``path`` for writing and put it in its place when the block ends without an error.

    Lines end as they are written. After an error nothing is left behind, and ``path`` is as it was.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", newline="", encoding="utf-8") as file:
            yield file
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
