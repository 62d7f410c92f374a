"""A picture of a replay: what Zeus made of every job, against its default and its optimum."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from perseus.errors import MissingExtraError
from perseus.recurring.replay import Summary


def plot_summaries(summaries: Sequence[Summary], path: str | os.PathLike[str]) -> None:
    """Write the picture to ``path``; its suffix selects the format.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib; run: pip install 'perseus-energy[plot]'") from error
    gpus = list(dict.fromkeys(summary.trace.gpu for summary in summaries))
    figure = Figure(figsize=(8.0, 2.6 * len(gpus)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(gpus), 1, squeeze=False)[:, 0]
    for panel, gpu in zip(panels, gpus, strict=True):
        _draw(panel, gpu, [summary for summary in summaries if summary.trace.gpu == gpu])
    panels[0].legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.12), frameon=False)
    figure.savefig(path)


def _draw(axes: Any, gpu: str, summaries: list[Summary]) -> None:
    places = range(len(summaries))
    energies = [float(s.last_energy_ratio.mean()) for s in summaries]
    times = [float(s.last_time_ratio.mean()) for s in summaries]
    whole = [float(s.whole_cost_ratio.mean()) for s in summaries]
    bests = [s.best.cost_j / s.default.cost_j for s in summaries]
    axes.bar([p - 0.2 for p in places], energies, 0.2, label="energy")
    axes.bar(places, times, 0.2, label="time")
    axes.bar([p + 0.2 for p in places], whole, 0.2, label="cost with exploration")
    axes.plot(places, bests, "k_", markersize=30, label="optimal cost")
    axes.axhline(1.0, color="0.5", linewidth=0.8)
    axes.set_xticks(list(places), [s.trace.job.name for s in summaries])
    axes.set_title(f"{gpu}: share of the default configuration", fontsize="medium")
    axes.set_ylim(bottom=0.0)
