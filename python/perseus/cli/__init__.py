"""The ``perseus`` command: one module per subcommand; everything heavy is imported by the subcommand that needs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the ``perseus`` command and return its exit code.

    Parameters
    ----------
    arguments:
        What follows the command's name; those of this process without it.
    """
    from perseus.cli.app import run

    return run(sys.argv[1:] if arguments is None else list(arguments))
