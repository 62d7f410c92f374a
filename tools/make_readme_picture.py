"""Draw the README's picture with the tool itself: ``python tools/make_readme_picture.py``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from perseus.cli import main

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "example.png"


def make_picture() -> int:
    """Solve the built-in example and draw it; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        return main(["solve", "example", "-o", folder, "--quiet"]) or main(["show", folder, "-o", str(PICTURE)])


if __name__ == "__main__":
    sys.exit(make_picture())
