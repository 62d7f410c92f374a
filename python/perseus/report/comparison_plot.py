"""Times and energies of several methods on one plot, above the exact frontier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from perseus.report.ink import ACCENT, FAINT_INK, GRID, INK, WARNING
from perseus.report.quantities import energy_unit, time_unit

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

_COLOURS: Final = (WARNING, "#8a6d3b", "#5b8c5a", "#7d5ba6", FAINT_INK, ACCENT)
_MARKERS: Final = ("s", "v", "^", "D", "P", "o")


def comparison_figure(
    title: str,
    frontier_times_s: NDArray[np.float64],
    frontier_energies_j: NDArray[np.float64],
    points: Mapping[str, Sequence[tuple[float, float]]],
) -> Figure:
    """Return the plot.

    Parameters
    ----------
    frontier_times_s, frontier_energies_j:
        (n,): the least energy (J) of the pipeline for each iteration time (s).
    points:
        For each method the times (s) and energies (J) of its plans, until their own end.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 5.2), layout="constrained")
    axes = figure.add_subplot()
    time, energy = time_unit(float(frontier_times_s[-1])), energy_unit(float(max(frontier_energies_j)))
    axes.plot(
        frontier_times_s / time.size, frontier_energies_j / energy.size, color=ACCENT, linewidth=2.0, label="bound"
    )
    for index, (method, pairs) in enumerate(points.items()):
        times_s, energies_j = zip(*sorted(pairs), strict=True)
        axes.plot(
            [time_s / time.size for time_s in times_s],
            [energy_j / energy.size for energy_j in energies_j],
            linestyle="none",
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=7,
            markerfacecolor=_COLOURS[index % len(_COLOURS)],
            markeredgecolor=INK,
            label=method,
        )
    axes.set_xlabel(f"Iteration time ({time.symbol})")
    axes.set_ylabel(f"Energy of an iteration ({energy.symbol})")
    axes.set_title(title, loc="left", weight="bold")
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    return figure
