"""``python -m perseus``: the same as the ``perseus`` command."""

import sys

from perseus.cli import main

if __name__ == "__main__":
    sys.exit(main())
