"""The pipeline's timeline: one row per rank, every operation a box in the colour of its power.

`Timeline` is what there is to draw, free of any plotting; `draw_timeline` draws it on matplotlib axes. Thousands of
operations are a handful of collections, so that a picture takes well under a second and an SVG keeps one group each
for operations, blocking and critical path (their ids: ``NAME-operations``, ``NAME-blocking``, ``NAME-critical-path``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from perseus.report.critical_path import critical_operations
from perseus.report.ink import HEAT, INK
from perseus.report.quantities import Unit, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

    from perseus.plan import FrequencyPlan

_TALL: Final = 0.84  # height of an operation, in rows
_LOW: Final = 0.60  # height of a forward, so that forward and backward are told apart at a glance
_LUMINANCE: Final = np.array([0.299, 0.587, 0.114])
_MAX_ROW_LABELS: Final = 24
_SMALLEST_NUMBER_PT: Final = 4.5
_LARGEST_NUMBER_PT: Final = 8.5
_OUTLINE_PT: Final = 1.3
# Operations narrower than this on paper get no white gaps, and a bar below them instead of an outline around them.
_NARROW_PT: Final = 6.5
_BAR: Final = (0.36, 0.47)  # where that bar lies, in rows from the row's middle
_DIGIT_WIDTH: Final = 0.64  # of the font size
_NUMBER_HEIGHT: Final = 0.6 * _LOW  # font size, in rows
_NUMBER_SHARE: Final = 0.75  # of a box's width that its number may take


@dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """What one iteration looks like, operation by operation.

    Attributes
    ----------
    rank, microbatch:
        int32, shape (num_operations,); microbatch is negative for an operation that belongs to none.
    is_forward:
        bool, shape (num_operations,).
    start_times_s, durations_s, energies_j:
        Shape (num_operations,).
    is_critical:
        bool, shape (num_operations,): zero slack.
    blocking_power_w:
        Shape (num_ranks,): what a rank draws while it waits.
    until_s:
        When the iteration is over for every rank, blocking included, in seconds.
    """

    rank: NDArray[np.int32]
    microbatch: NDArray[np.int32]
    is_forward: NDArray[np.bool_]
    start_times_s: NDArray[np.float64]
    durations_s: NDArray[np.float64]
    energies_j: NDArray[np.float64]
    is_critical: NDArray[np.bool_]
    blocking_power_w: NDArray[np.float64]
    until_s: float

    @classmethod
    def of_plan(cls, plan: FrequencyPlan, until_s: float) -> Timeline:
        """Return the timeline of a plan, with blocking from its end until `until_s`."""
        dag = plan.dag
        starts, durations = plan.start_times_s, plan.durations_s
        is_forward = np.array([kind == "forward" for kind in dag.kinds], dtype=np.bool_)
        return cls(
            rank=dag.rank,
            microbatch=dag.microbatch,
            is_forward=is_forward[dag.kind_code],
            start_times_s=starts,
            durations_s=durations,
            energies_j=plan.energies_j,
            is_critical=critical_operations(starts, durations, dag.edges, dag.latency_s),
            blocking_power_w=plan.blocking_power_w,
            until_s=until_s,
        )

    @property
    def num_ranks(self) -> int:
        """Number of rows."""
        return self.blocking_power_w.size

    @property
    def powers_w(self) -> NDArray[np.float64]:
        """Average power of each operation, W, shape (num_operations,); 0 where it takes no time."""
        powers = np.zeros_like(self.energies_j)
        return np.divide(self.energies_j, self.durations_s, out=powers, where=self.durations_s > 0.0)

    def within(self, low_s: float, high_s: float) -> Timeline:
        """Return the timeline with only the operations that run between two times."""
        seen = (self.start_times_s < high_s) & (self.start_times_s + self.durations_s > low_s)
        seen |= (self.start_times_s == low_s) & (self.durations_s == 0.0)
        per_operation = (
            "rank",
            "microbatch",
            "is_forward",
            "start_times_s",
            "durations_s",
            "energies_j",
            "is_critical",
        )
        return replace(self, **{name: getattr(self, name)[seen] for name in per_operation})

    def blocking_intervals(self) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
        """Return rank, start and end (seconds) of every stretch in which a rank waits."""
        ranks = np.arange(self.num_ranks, dtype=np.int32)
        # A rank's waits are what lies between the ends of its operations (or 0) and the next starts (or until_s).
        rank_of_start = np.concatenate((ranks, self.rank))
        starts = np.concatenate((np.zeros(self.num_ranks), self.start_times_s + self.durations_s))
        rank_of_end = np.concatenate((self.rank, ranks))
        ends = np.concatenate((self.start_times_s, np.full(self.num_ranks, self.until_s)))
        by_start = np.lexsort((starts, rank_of_start))
        by_end = np.lexsort((ends, rank_of_end))
        waits = ends[by_end] - starts[by_start] > 1e-9 * self.until_s
        return rank_of_start[by_start][waits], starts[by_start][waits], ends[by_end][waits]


@dataclass(frozen=True, kw_only=True, eq=False)
class TimelineStyle:
    """The scales that timelines share when they are compared.

    Attributes
    ----------
    colours:
        Maps watts to colours.
    until_s:
        The end of the x axis, in seconds.
    time:
        The unit of the x axis.
    """

    colours: ScalarMappable
    until_s: float
    time: Unit

    @classmethod
    def for_timelines(cls, timelines: Sequence[Timeline]) -> TimelineStyle:
        """Return scales that hold every power and every time of `timelines`."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import LinearSegmentedColormap, Normalize

        powers = np.concatenate([np.append(t.powers_w[t.durations_s > 0], t.blocking_power_w) for t in timelines])
        until_s = max(timeline.until_s for timeline in timelines)
        heat = LinearSegmentedColormap.from_list("perseus-power", HEAT)
        colours = ScalarMappable(Normalize(float(powers.min()), float(powers.max())), heat)
        return cls(colours=colours, until_s=until_s, time=time_unit(until_s))

    def is_dark(self, powers_w: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Say which powers have a colour so dark that text on it must be light."""
        red_green_blue = self.colours.to_rgba(powers_w)[:, :3]
        return np.asarray(red_green_blue @ _LUMINANCE < 0.52, dtype=np.bool_)


def draw_timeline(
    axes: Axes,
    timeline: Timeline,
    style: TimelineStyle,
    *,
    name: str,
    window_s: tuple[float, float] | None = None,
) -> None:
    """Draw `timeline` on empty axes whose place on the figure is final.

    Parameters
    ----------
    style:
        The scales that this timeline shares with those it is compared with.
    name:
        Prefix of the groups' ids in an SVG.
    window_s:
        Draw only what happens between these two times; the whole iteration without it.
    """
    window_s = (0.0, style.until_s) if window_s is None else window_s
    _format_axes(axes, timeline.num_ranks, style, window_s)
    seen = timeline.within(*window_s)
    is_narrow = has_narrow_boxes(seen, _size_pt(axes)[0], window_s[1] - window_s[0])
    _draw_blocking(axes, timeline, style, name)
    _draw_operations(axes, seen, style, name, gap_pt=0.0 if is_narrow else 0.8)
    _draw_critical_path(axes, seen, style, name, as_bar=is_narrow)
    _draw_numbers(axes, seen, style)


def has_narrow_boxes(timeline: Timeline, width_pt: float, shown_s: float) -> bool:
    """Say whether operations are so narrow that a bar below them, not an outline, marks the critical path."""
    return _narrowest_pt(timeline, width_pt, shown_s) < _NARROW_PT


def has_room_for_numbers(row_height_pt: float) -> bool:
    """Say whether a row is so high that numbers in it can be read."""
    return _NUMBER_HEIGHT * row_height_pt >= _SMALLEST_NUMBER_PT


def readable_window_s(timeline: Timeline, width_pt: float) -> float:
    """Return how many seconds fit on `width_pt` so that every operation's number can be read."""
    needed_pt = _SMALLEST_NUMBER_PT * 1.2 * _DIGIT_WIDTH * _digits(timeline) / _NUMBER_SHARE
    return timeline.until_s * _narrowest_pt(timeline, width_pt, timeline.until_s) / max(needed_pt, _NARROW_PT)


def _narrowest_pt(timeline: Timeline, width_pt: float, shown_s: float) -> float:
    """Return the width on paper of the narrowest operations (but 1 in 20), if `shown_s` take `width_pt`."""
    takes_time = timeline.durations_s[timeline.durations_s > 0.0]
    return float(np.quantile(takes_time, 0.05)) / shown_s * width_pt if takes_time.size else 0.0


def _draw_blocking(axes: Axes, timeline: Timeline, style: TimelineStyle, name: str) -> None:
    from matplotlib.collections import PolyCollection

    rank, starts_s, ends_s = timeline.blocking_intervals()
    boxes = _boxes(rank, starts_s / style.time.size, ends_s / style.time.size, -_TALL / 2, _TALL / 2)
    colours = style.colours.to_rgba(timeline.blocking_power_w[rank])
    blocking = PolyCollection(list(boxes), facecolors=colours, linewidths=0.0, gid=f"{name}-blocking")
    axes.add_collection(blocking, autolim=False)


def _draw_operations(axes: Axes, timeline: Timeline, style: TimelineStyle, name: str, *, gap_pt: float) -> None:
    from matplotlib.collections import PolyCollection

    operations = PolyCollection(
        list(_operation_boxes(timeline, style)),
        facecolors=style.colours.to_rgba(timeline.powers_w),
        edgecolors="white" if gap_pt else "none",
        linewidths=gap_pt,
        gid=f"{name}-operations",
    )
    axes.add_collection(operations, autolim=False)


def _draw_critical_path(axes: Axes, timeline: Timeline, style: TimelineStyle, name: str, *, as_bar: bool) -> None:
    from matplotlib.collections import PolyCollection

    boxes = _operation_boxes(timeline, style)[timeline.is_critical]
    if as_bar:
        row = timeline.rank[timeline.is_critical, np.newaxis]
        boxes[:, :2, 1], boxes[:, 2:, 1] = row + _BAR[0], row + _BAR[1]
    critical = PolyCollection(
        list(boxes),
        facecolors=INK if as_bar else "none",
        edgecolors="none" if as_bar else INK,
        linewidths=0.0 if as_bar else _OUTLINE_PT,
        joinstyle="miter",
        zorder=3,
        gid=f"{name}-critical-path",
    )
    axes.add_collection(critical, autolim=False)


def _operation_boxes(timeline: Timeline, style: TimelineStyle) -> NDArray[np.float64]:
    starts, ends = timeline.start_times_s, timeline.start_times_s + timeline.durations_s
    half = np.where(timeline.is_forward, _LOW, _TALL) / 2
    return _boxes(timeline.rank, starts / style.time.size, ends / style.time.size, -half, half)


def _boxes(
    rank: NDArray[np.int32],
    starts: NDArray[np.float64],
    ends: NDArray[np.float64],
    below: NDArray[np.float64] | float,
    above: NDArray[np.float64] | float,
) -> NDArray[np.float64]:
    """Return the corners of one box per interval, shape (num_intervals, 4, 2), around its rank's row."""
    low, high = rank + below, rank + above
    x = np.stack((starts, ends, ends, starts), axis=1)
    y = np.stack((low, low, high, high), axis=1)
    return np.stack((x, y), axis=2)


def _format_axes(axes: Axes, rows: int, style: TimelineStyle, window_s: tuple[float, float]) -> None:
    axes.set_xlim(window_s[0] / style.time.size, window_s[1] / style.time.size)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_yticks(range(0, rows, -(-rows // _MAX_ROW_LABELS)))
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _size_pt(axes: Axes) -> tuple[float, float]:
    """Return the width and height of the axes on paper, in points."""
    points_per_pixel = 72 / axes.figure.dpi
    return float(axes.bbox.width * points_per_pixel), float(axes.bbox.height * points_per_pixel)


def _digits(timeline: Timeline) -> int:
    return len(str(max(int(timeline.microbatch.max(initial=0)), 0)))


def _draw_numbers(axes: Axes, timeline: Timeline, style: TimelineStyle) -> None:
    """Write each operation's microbatch into its box, unless the numbers would be too small to read."""
    width_pt, height_pt = _size_pt(axes)
    low, high = axes.get_xlim()
    shown_s = (high - low) * style.time.size
    room_pt = _NUMBER_SHARE * _narrowest_pt(timeline, width_pt, shown_s) / (_DIGIT_WIDTH * _digits(timeline))
    size_pt = min(room_pt, _NUMBER_HEIGHT * height_pt / timeline.num_ranks, _LARGEST_NUMBER_PT)
    if size_pt < _SMALLEST_NUMBER_PT:
        return
    centres = (timeline.start_times_s + timeline.durations_s / 2) / style.time.size
    fits = timeline.durations_s / shown_s * width_pt >= _DIGIT_WIDTH * size_pt * _digits(timeline)
    margin = 0.6 * _DIGIT_WIDTH * _digits(timeline) * size_pt / width_pt * (high - low)  # whole numbers only
    is_inside = (centres > low + margin) & (centres < high - margin)
    ink = np.where(style.is_dark(timeline.powers_w), "white", INK)
    for operation in np.flatnonzero(fits & is_inside & (timeline.microbatch >= 0)).tolist():
        axes.text(
            centres[operation],
            timeline.rank[operation],
            str(timeline.microbatch[operation]),
            size=size_pt,
            color=str(ink[operation]),
            ha="center",
            va="center_baseline",
            zorder=4,
        )
