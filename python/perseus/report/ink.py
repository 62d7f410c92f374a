"""The colours and type that all pictures share, on a light background."""

from __future__ import annotations

from typing import Any, Final

INK: Final = "#1b2430"
FAINT_INK: Final = "#66707c"
GRID: Final = "#e6e8eb"
ACCENT: Final = "#1667b7"
WARNING: Final = "#c8402f"

# Blocking is the pale end: it looks like the pause that it is, and still has the colour of its power.
HEAT: Final = ("#e9e8e4", "#f9e6b8", "#fdcb7e", "#fba65a", "#f27a45", "#dd4a35", "#bd1f2d")

# Given to matplotlib for the time of one drawing, so that neither a user's matplotlibrc nor a notebook's style shows.
TYPE: Final[Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.labelsize": 10.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT_INK,
    "axes.facecolor": "white",
    "axes.grid": False,
    "axes.linewidth": 0.8,
    "axes.unicode_minus": True,
    "figure.facecolor": "white",
    "legend.fontsize": 9.0,
    "text.color": INK,
    "text.usetex": False,
    "xtick.color": FAINT_INK,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 9.0,
    "ytick.color": FAINT_INK,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 9.0,
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "perseus",
}
