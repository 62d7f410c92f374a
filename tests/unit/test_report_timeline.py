import dataclasses
import functools

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.text import Text

import perseus
from perseus.profiles import EXAMPLE_BLOCKING_POWER_W
from perseus.report.frontier_plot import FrontierPicture
from perseus.report.picture import drawing, frontier_figure, sheet_figure, timeline_figure
from perseus.report.timeline import Timeline


@functools.cache
def solved(microbatches: int) -> tuple[perseus.Frontier, perseus.FrequencyPlan]:
    profiles = perseus.read_profiles(perseus.example_profile_path(), blocking_power_w=EXAMPLE_BLOCKING_POWER_W)
    dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=4, num_microbatches=microbatches)
    return perseus.solve_frontier(dag, profiles), perseus.max_clock_plan(dag, profiles)


def scene(
    microbatches: int, slowdown: float = 1.0, straggler: float | None = None
) -> tuple[FrontierPicture, Timeline, Timeline]:
    frontier, max_clocks = solved(microbatches)
    wait_until_s = None if straggler is None else straggler * frontier.min_time_s
    plan = frontier.plan_at(slowdown * frontier.min_time_s, wait_until_s=wait_until_s)
    picture = FrontierPicture.of_plans(plan, max_clocks, frontier.times_s, frontier.energies_j)
    return picture, Timeline.of_plan(max_clocks, picture.end_s), Timeline.of_plan(plan, picture.end_s)


@pytest.mark.parametrize(("slowdown", "straggler"), [(1.0, None), (1.2, None), (1.1, 1.4)])
def test_working_and_waiting_fill_every_rank_and_account_for_all_energy(
    slowdown: float, straggler: float | None
) -> None:
    picture, before, after = scene(6, slowdown, straggler)
    for timeline, energy_j in ((before, picture.baseline_energy_j), (after, picture.plan_energy_j)):
        rank, starts_s, ends_s = timeline.blocking_intervals()
        assert np.all(ends_s > starts_s)
        waits_s = np.bincount(rank, weights=ends_s - starts_s, minlength=timeline.num_ranks)
        busy_s = np.bincount(timeline.rank, weights=timeline.durations_s, minlength=timeline.num_ranks)
        assert waits_s + busy_s == pytest.approx(timeline.until_s)
        drawn_j = timeline.powers_w @ timeline.durations_s + timeline.blocking_power_w @ waits_s
        # The plan may end a little before its deadline, and the baseline is accounted until the plan's end.
        assert drawn_j == pytest.approx(energy_j, rel=1e-6)


def test_the_critical_path_is_as_long_as_the_iteration() -> None:
    picture, before, after = scene(6, 1.1)
    for timeline, time_s in ((before, picture.max_clock_time_s), (after, picture.plan_time_s)):
        ends_s = timeline.start_times_s + timeline.durations_s
        assert ends_s[timeline.is_critical].max() == pytest.approx(time_s)
        assert timeline.start_times_s[timeline.is_critical].min() == 0.0
        assert timeline.durations_s[timeline.is_critical].sum() >= time_s * (1 - 1e-9)
        assert 0 < timeline.is_critical.sum() < timeline.is_critical.size


def test_a_window_holds_what_runs_in_it() -> None:
    _, before, _ = scene(6)
    low_s, high_s = 0.3 * before.until_s, 0.4 * before.until_s
    seen = before.within(low_s, high_s)
    assert 0 < seen.rank.size < before.rank.size
    assert np.all(seen.start_times_s < high_s)
    assert np.all(seen.start_times_s + seen.durations_s > low_s)
    assert before.within(0.0, before.until_s).rank.size == before.rank.size


def test_zero_durations_have_no_power_and_no_trouble() -> None:
    _, before, after = scene(2)
    nothing = dataclasses.replace(after, durations_s=np.zeros_like(after.durations_s))
    assert not nothing.powers_w.any()
    picture, _, _ = scene(2)
    with drawing():
        FigureCanvasAgg(timeline_figure(picture, before, nothing)).draw()


def collection_sizes(figure: Figure) -> dict[str, int]:
    return {
        str(collection.get_gid()): len(collection.get_paths())
        for axes in figure.axes
        for collection in axes.findobj(Collection)
        if collection.get_gid()
    }


@pytest.mark.parametrize("microbatches", [1, 8, 48])
def test_every_operation_is_one_box_of_one_collection(microbatches: int) -> None:
    picture, before, after = scene(microbatches)
    with drawing():
        sizes = collection_sizes(timeline_figure(picture, before, after))
    for name, timeline in (("before", before), ("after", after)):
        assert sizes[f"{name}-operations"] == 2 * 4 * microbatches
        assert sizes[f"{name}-critical-path"] == timeline.is_critical.sum()
        assert sizes[f"{name}-blocking"] == timeline.blocking_intervals()[0].size
    assert ("after-begin-operations" in sizes) == (microbatches == 48)


@pytest.mark.parametrize(
    ("microbatches", "slowdown", "straggler"), [(1, 1.0, None), (8, 1.05, None), (8, 1.1, 1.5), (96, 1.0, None)]
)
def test_no_text_covers_another_or_leaves_the_picture(
    microbatches: int, slowdown: float, straggler: float | None
) -> None:
    picture, before, after = scene(microbatches, slowdown, straggler)
    with drawing():
        for figure in (frontier_figure(picture), timeline_figure(picture, before, after)):
            assert overlapping_texts(figure) == []
        assert overlapping_texts(sheet_figure(picture, before, after)) == []


def overlapping_texts(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that overlap on paper; a text that leaves the figure is paired with the figure."""
    FigureCanvasAgg(figure).draw()
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    hidden = tick_labels_out_of_view(figure)
    shown = [text for text in texts if id(text) not in hidden]
    boxes = np.array([text.get_window_extent().extents for text in shown])
    width, height = figure.bbox.width, figure.bbox.height
    found = [
        (text.get_text(), "the figure")
        for text, (x0, y0, x1, y1) in zip(shown, boxes, strict=True)
        if x0 < 0 or y0 < 0 or x1 > width or y1 > height
    ]
    for index, (x0, y0, x1, y1) in enumerate(boxes):
        covers = (boxes[:, 0] < x1) & (boxes[:, 2] > x0) & (boxes[:, 1] < y1) & (boxes[:, 3] > y0)
        found += [
            (shown[index].get_text(), shown[other].get_text()) for other in np.flatnonzero(covers) if other > index
        ]
    return found


def tick_labels_out_of_view(figure: Figure) -> set[int]:
    """Identities of tick labels beyond the axes' limits: they exist, but are not drawn."""
    hidden = set()
    for axes in figure.axes:
        for axis, low, high in ((axes.xaxis, *axes.get_xlim()), (axes.yaxis, *sorted(axes.get_ylim()))):
            places = axis.get_ticklocs()
            labels = zip(places, axis.get_ticklabels(), strict=True)
            hidden |= {id(label) for place, label in labels if not low <= place <= high}
    return hidden


@pytest.mark.parametrize(
    ("slowdown", "straggler", "headline"),
    [
        (1.0, None, "less energy, same iteration time"),
        (1.1, None, "less energy, 10 % longer iteration"),
        (1.1, 1.5, "less energy while waiting for a straggler of"),
    ],
)
def test_the_title_says_the_saving(slowdown: float, straggler: float | None, headline: str) -> None:
    picture, before, after = scene(8, slowdown, straggler)
    with drawing():
        texts = [text.get_text() for text in timeline_figure(picture, before, after).findobj(Text)]
    title = next(text for text in texts if headline in text)
    assert title.startswith(f"{100 * picture.saving:.1f} % ")


def test_t_star_is_where_the_frontier_is_lowest() -> None:
    picture, _, _ = scene(8)
    frontier, _ = solved(8)
    assert picture.min_energy_time_s == frontier.min_energy_time_s


def test_drawing_leaves_no_state_behind() -> None:
    before = dict(mpl.rcParams)
    picture, first, second = scene(2)
    with drawing():
        FigureCanvasAgg(sheet_figure(picture, first, second)).draw()
    assert dict(mpl.rcParams) == before
