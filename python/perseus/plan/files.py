"""Writing a file so that it is either the old one or the whole new one."""

from __future__ import annotations

import os

from perseus.replacement import replacement


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Write text beside the path, then move it there."""
    with replacement(path) as file:
        file.write(text)
