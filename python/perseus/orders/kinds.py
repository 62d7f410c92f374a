"""The kinds of operation whose data dependencies are known, and their letters in orders."""

from __future__ import annotations

from typing import Final

FORWARD: Final = 0
BACKWARD: Final = 1
INPUT_GRAD: Final = 2
WEIGHT_GRAD: Final = 3
RECOMPUTE: Final = 4

# Indexed by the codes above. Any other kind (loading, optimizer step, ...) has no data dependency of its own.
KINDS: Final = ("forward", "backward", "input_grad", "weight_grad", "recompute")
LETTERS: Final = "FBIWR"

_NAME_OF_LETTER: Final = dict(zip(LETTERS, KINDS, strict=True))


def kind_name(text: str) -> str:
    """Return the full name of a kind given by its letter or its name.

    Examples
    --------
    >>> kind_name("F"), kind_name("optimizer")
    ('forward', 'optimizer')
    """
    return _NAME_OF_LETTER.get(text, text)


def ordered_kinds(names: set[str]) -> tuple[str, ...]:
    """Return the names in one fixed order: the known kinds first, then the others by name."""
    return tuple(k for k in KINDS if k in names) + tuple(sorted(names.difference(KINDS)))
