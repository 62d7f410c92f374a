"""The pictures of a solved pipeline: the frontier, the timeline before and after, and both on one sheet.

Everything is placed in inches, from the top left corner, so that text and rows keep their size whatever the pipeline.
matplotlib's object interface only: no pyplot, no windows, no state left behind.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from perseus.errors import MissingExtraError
from perseus.report.frontier_plot import FrontierPicture, draw_frontier
from perseus.report.ink import FAINT_INK, TYPE
from perseus.report.quantities import format_energy, format_percent, format_time
from perseus.report.timeline import (
    Timeline,
    TimelineStyle,
    draw_timeline,
    has_narrow_boxes,
    has_room_for_numbers,
    readable_window_s,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PictureFormat = Literal["png", "svg"]

_WIDTH_IN: Final = 13.0
_LEFT_IN: Final = 0.75
_PANEL_WIDTH_IN: Final = 11.0
_BETWEEN_IN: Final = 0.45  # two magnified parts
_TITLE_IN: Final = 0.6
_CAPTION_IN: Final = 0.34  # above each timeline
_TICKS_IN: Final = 0.3  # below axes: ticks
_AXIS_IN: Final = 0.55  # below axes: ticks and label
_KEY_IN: Final = 0.3
_FRONTIER_HEIGHT_IN: Final = 3.1
_FRONTIER_WIDTH_IN: Final = 7.9
_DOTS_PER_INCH: Final = 160


def frontier_figure(frontier: FrontierPicture) -> Figure:
    """Return the picture of the frontier with its key numbers beside it."""
    figure = _new_figure(12.0, _TITLE_IN + _FRONTIER_HEIGHT_IN + 0.9 + _AXIS_IN)
    _write_title(figure, _headline(frontier))
    _place_frontier(figure, frontier, top_in=_TITLE_IN, height_in=_FRONTIER_HEIGHT_IN + 0.9)
    return figure


def timeline_figure(frontier: FrontierPicture, before: Timeline, after: Timeline) -> Figure:
    """Return the picture of the pipeline with every clock at its highest, and with the plan."""
    timelines = _Timelines(frontier, before, after)
    figure = _new_figure(_WIDTH_IN, _TITLE_IN + timelines.height_in)
    _write_title(figure, _headline(frontier))
    _place_timelines(figure, timelines, top_in=_TITLE_IN)
    return figure


def sheet_figure(frontier: FrontierPicture, before: Timeline, after: Timeline) -> Figure:
    """Return frontier and timelines on one sheet."""
    timelines = _Timelines(frontier, before, after)
    timelines_in = _TITLE_IN + _FRONTIER_HEIGHT_IN + _AXIS_IN + 0.1
    figure = _new_figure(_WIDTH_IN, timelines_in + timelines.height_in)
    _write_title(figure, _headline(frontier))
    _place_frontier(figure, frontier, top_in=_TITLE_IN, height_in=_FRONTIER_HEIGHT_IN)
    _place_timelines(figure, timelines, top_in=timelines_in)
    return figure


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Give matplotlib this module's type for the time of a drawing.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtraError(
            "drawing needs matplotlib, which is not installed; run: pip install 'perseus-energy[plot]'"
        ) from error
    with mpl.rc_context(TYPE):
        yield


def save_figure(figure: Figure, path: str | os.PathLike[str], picture_format: PictureFormat) -> Path:
    """Write a figure, whole or not at all; a file of that name is replaced.

    The same figure gives the same bytes: no date is written.
    """
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    metadata = {"Date": None} if picture_format == "svg" else {"Software": "perseus"}
    try:
        figure.savefig(beside, format=picture_format, dpi=_DOTS_PER_INCH, metadata=metadata)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def _new_figure(width_in: float, height_in: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in))


def _axes(figure: Figure, left_in: float, top_in: float, width_in: float, height_in: float) -> Axes:
    total_width_in, total_height_in = figure.get_size_inches()
    bottom = 1.0 - (top_in + height_in) / total_height_in
    return figure.add_axes((left_in / total_width_in, bottom, width_in / total_width_in, height_in / total_height_in))


def _write_title(figure: Figure, text: str) -> None:
    width_in, height_in = figure.get_size_inches()
    figure.text(_LEFT_IN / width_in, 1.0 - 0.3 / height_in, text, size=15, weight="bold", va="center")


def _headline(frontier: FrontierPicture) -> str:
    longer = frontier.plan_time_s / frontier.max_clock_time_s - 1.0
    saving = format_percent(frontier.saving)
    if frontier.wait_until_s is not None:
        return f"{saving} less energy while waiting for a straggler of {format_time(frontier.wait_until_s)}"
    if not frontier.is_longer_than_max_clocks(frontier.plan_time_s):
        return f"{saving} less energy, same iteration time"
    return f"{saving} less energy, {format_percent(longer, 2)} longer iteration"


def _place_frontier(figure: Figure, frontier: FrontierPicture, *, top_in: float, height_in: float) -> None:
    axes = _axes(figure, _LEFT_IN, top_in, _FRONTIER_WIDTH_IN, height_in)
    draw_frontier(axes, frontier)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False, labelspacing=0.9, borderaxespad=0.0)


def _row_height_in(num_ranks: int) -> float:
    return min(0.36, max(0.12, 4.8 / num_ranks))


class _Timelines(NamedTuple):
    """What the timelines' part of a picture shows."""

    frontier: FrontierPicture
    before: Timeline
    after: Timeline

    @property
    def panel_in(self) -> float:
        """Height of one timeline's rows."""
        return self.after.num_ranks * _row_height_in(self.after.num_ranks)

    @property
    def is_magnified(self) -> bool:
        """Whether beginning and end are drawn once more, so large that every operation can be read."""
        if not has_room_for_numbers(_row_height_in(self.after.num_ranks) * 72):
            return False
        return 0.0 < readable_window_s(self.after, _PANEL_WIDTH_IN * 72) < self.after.until_s

    @property
    def height_in(self) -> float:
        """Height of everything that `_place_timelines` places."""
        panels = 3 if self.is_magnified else 2
        return panels * (_CAPTION_IN + self.panel_in) + (panels - 1) * _TICKS_IN + _AXIS_IN + _KEY_IN


def _place_timelines(figure: Figure, timelines: _Timelines, *, top_in: float) -> None:
    frontier, before, after = timelines
    style = TimelineStyle.for_timelines((before, after))
    step_in = _CAPTION_IN + timelines.panel_in + _TICKS_IN
    first_in = top_in + _CAPTION_IN
    for row, (caption, timeline, name) in enumerate(
        ((_before_caption(frontier), before, "before"), (_after_caption(frontier), after, "after"))
    ):
        axes = _axes(figure, _LEFT_IN, first_in + row * step_in, _PANEL_WIDTH_IN, timelines.panel_in)
        _caption(axes, caption)
        axes.set_ylabel("Rank")
        draw_timeline(axes, timeline, style, name=name)
    bottom_in = first_in + step_in + timelines.panel_in
    if timelines.is_magnified:
        _place_magnified(figure, after, style, first_in + 2 * step_in, timelines.panel_in)
        bottom_in += step_in
    else:
        axes.set_xlabel(f"Time ({style.time.symbol})")
    _place_colour_bar(figure, style, first_in, bottom_in - first_in)
    _place_key(figure, timelines, bottom_in + _AXIS_IN)


def _place_magnified(figure: Figure, timeline: Timeline, style: TimelineStyle, top_in: float, height_in: float) -> None:
    """Draw the plan's beginning and end side by side, large enough to read each operation."""
    width_in = (_PANEL_WIDTH_IN - _BETWEEN_IN) / 2
    shown_s = readable_window_s(timeline, width_in * 72)
    end_s = timeline.until_s
    for left_in, window_s, caption, name in (
        (_LEFT_IN, (0.0, shown_s), "Perseus, magnified: the first", "after-begin"),
        (_LEFT_IN + width_in + _BETWEEN_IN, (end_s - shown_s, end_s), "the last", "after-end"),
    ):
        axes = _axes(figure, left_in, top_in, width_in, height_in)
        _caption(axes, f"{caption} {format_time(shown_s, 2)}")
        axes.set_xlabel(f"Time ({style.time.symbol})")
        draw_timeline(axes, timeline, style, name=name, window_s=window_s)
        if name == "after-begin":
            axes.set_ylabel("Rank")


def _caption(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", size=11, pad=5)


def _before_caption(frontier: FrontierPicture) -> str:
    end_s = frontier.plan_time_s if frontier.wait_until_s is None else frontier.wait_until_s
    own, energy = format_time(frontier.max_clock_time_s), format_energy(frontier.baseline_energy_j)
    if frontier.is_longer_than_max_clocks(end_s):
        return f"Highest clocks: {own}, then blocking until {format_time(end_s)}: {energy}"
    return f"Highest clocks: {own}, {energy}"


def _after_caption(frontier: FrontierPicture) -> str:
    own, energy = format_time(frontier.plan_time_s), format_energy(frontier.plan_energy_j)
    if frontier.wait_until_s is not None:
        return f"Perseus: {own}, then blocking until {format_time(frontier.wait_until_s)}: {energy}"
    return f"Perseus: {own}, {energy}"


def _place_colour_bar(figure: Figure, style: TimelineStyle, top_in: float, height_in: float) -> None:
    axes = _axes(figure, _LEFT_IN + _PANEL_WIDTH_IN + 0.25, top_in, 0.16, height_in)
    bar = figure.colorbar(style.colours, cax=axes)
    axes.set_title("Power (W)", loc="left", size=9, pad=8)
    bar.outline.set_visible(False)


def _place_key(figure: Figure, timelines: _Timelines, top_in: float) -> None:
    width_in, height_in = figure.get_size_inches()
    has_bars = has_narrow_boxes(timelines.after, _PANEL_WIDTH_IN * 72, timelines.after.until_s)
    critical = "Black outline" if not has_bars else "Black bar or outline" if timelines.is_magnified else "Black bar"
    figure.text(
        _LEFT_IN / width_in,
        1.0 - (top_in + 0.1) / height_in,
        f"Low box: forward. Tall box: backward. Number: microbatch. {critical}: critical path. Grey: blocking.",
        size=9,
        color=FAINT_INK,
        va="center",
    )
