"""Writing a file so that it is either the old one or the whole new one."""

from __future__ import annotations

import os
from pathlib import Path


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Write text beside the path, then move it there."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
