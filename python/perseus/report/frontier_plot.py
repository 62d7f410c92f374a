"""The frontier: least energy of an iteration against its time, with the plan on it and the highest clocks above."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus.report.ink import ACCENT, FAINT_INK, GRID, INK, WARNING
from perseus.report.quantities import energy_unit, format_energy, format_percent, format_time, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from perseus.plan import FrequencyPlan

_VISIBLE: Final = 5e-5  # half a digit of the times printed
_MARGIN: Final = 0.06  # free space around the data, as a share of its range


@dataclass(frozen=True, kw_only=True, eq=False)
class FrontierPicture:
    """What the frontier's plot shows.

    Attributes
    ----------
    times_s, energies_j:
        Shape (num_breakpoints,), by time: the energy of the whole pipeline, blocking until that time included.
    plan_time_s, plan_energy_j:
        The chosen plan; its energy includes blocking until `wait_until_s`.
    max_clock_time_s, max_clock_energy_j:
        Every operation at its highest clock, until its own end.
    baseline_energy_j:
        The highest clocks, then blocking until the plan's end (or until `wait_until_s`).
    total_blocking_power_w:
        All ranks' blocking power together.
    wait_until_s:
        When a straggler ends, if every rank waits for one.
    """

    times_s: NDArray[np.float64]
    energies_j: NDArray[np.float64]
    plan_time_s: float
    plan_energy_j: float
    max_clock_time_s: float
    max_clock_energy_j: float
    baseline_energy_j: float
    total_blocking_power_w: float
    wait_until_s: float | None = None

    @classmethod
    def of_plans(
        cls,
        plan: FrequencyPlan,
        max_clock_plan: FrequencyPlan,
        times_s: NDArray[np.float64],
        energies_j: NDArray[np.float64],
    ) -> FrontierPicture:
        """Return the picture of a frontier, a plan on it, and the plan with every clock at its highest."""
        return cls(
            times_s=times_s,
            energies_j=energies_j,
            plan_time_s=plan.time_s,
            plan_energy_j=plan.energy_j,
            max_clock_time_s=max_clock_plan.time_s,
            max_clock_energy_j=max_clock_plan.energy_j,
            baseline_energy_j=plan.baseline_energy_j,
            total_blocking_power_w=float(plan.blocking_power_w.sum()),
            wait_until_s=plan.wait_until_s,
        )

    @property
    def end_s(self) -> float:
        """When everybody is done: the plan, the highest clocks and the straggler."""
        return max(self.plan_time_s, self.max_clock_time_s, self.wait_until_s or 0.0)

    def is_longer_than_max_clocks(self, time_s: float) -> bool:
        """Say whether a time differs visibly from that of the highest clocks; both are rounded sums."""
        return time_s > self.max_clock_time_s * (1.0 + _VISIBLE)

    @property
    def min_energy_time_s(self) -> float:
        """T*, the time of least total energy (E is piecewise linear: it is a breakpoint), in seconds."""
        return float(self.times_s[np.argmin(self.energies_j)])

    @property
    def saving(self) -> float:
        """Share of the energy of the highest clocks that the plan saves, over the same time."""
        return 1.0 - self.plan_energy_j / self.baseline_energy_j


def draw_frontier(axes: Axes, picture: FrontierPicture) -> None:
    """Draw the frontier on empty axes; what the marks mean, with their values, goes into a legend beside them."""
    time, energy = time_unit(float(picture.times_s[-1])), energy_unit(picture.baseline_energy_j)
    energies_j = _accounted(picture, picture.times_s, picture.energies_j)
    axes.plot(
        picture.times_s / time.size,
        energies_j / energy.size,
        color=ACCENT,
        linewidth=2.0,
        solid_capstyle="round",
        label=f"least energy for each time\n({picture.times_s.size} breakpoints)",
        gid="frontier",
    )
    _draw_saving(axes, picture, time.size, energy.size)
    _draw_points(axes, picture, time.size, energy.size)
    axes.set_xlabel(f"Iteration time ({time.symbol})")
    until = "" if picture.wait_until_s is None else f" until {format_time(picture.wait_until_s)}"
    axes.set_ylabel(f"Energy of an iteration{until} ({energy.symbol})")
    axes.margins(_MARGIN)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _accounted(
    picture: FrontierPicture, times_s: NDArray[np.float64], energies_j: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the energies until the straggler ends, where there is one; else as they are."""
    if picture.wait_until_s is None:
        return energies_j
    waits_s = np.maximum(picture.wait_until_s - times_s, 0.0)
    return np.asarray(energies_j + picture.total_blocking_power_w * waits_s, dtype=np.float64)


class _Mark(NamedTuple):
    """A point of the plot, and its line in the legend."""

    name: str
    time_s: float
    energy_j: float
    marker: str
    size_pt: float
    colour: str
    gid: str

    @property
    def label(self) -> str:
        return f"{self.name}: {format_time(self.time_s)}, {format_energy(self.energy_j)}"


def _marks(picture: FrontierPicture) -> Iterator[_Mark]:
    yield _Mark("plan", picture.plan_time_s, picture.plan_energy_j, "o", 9.0, ACCENT, "plan")
    until_s = picture.max_clock_time_s if picture.wait_until_s is None else picture.wait_until_s
    max_clocks_j = picture.max_clock_energy_j + picture.total_blocking_power_w * max(
        until_s - picture.max_clock_time_s, 0.0
    )
    yield _Mark("highest clocks", picture.max_clock_time_s, max_clocks_j, "s", 8.0, WARNING, "max-clocks")
    if picture.wait_until_s is None:
        least_j = float(picture.energies_j.min())
        yield _Mark("T*, least energy", picture.min_energy_time_s, least_j, "D", 8.0, "white", "t-star")


def _draw_points(axes: Axes, picture: FrontierPicture, time: float, energy: float) -> None:
    for mark in _marks(picture):
        axes.plot(
            [mark.time_s / time],
            [mark.energy_j / energy],
            linestyle="none",
            marker=mark.marker,
            markersize=mark.size_pt,
            markerfacecolor=mark.colour,
            markeredgecolor=INK,
            markeredgewidth=1.0,
            zorder=4,
            label=mark.label,
            gid=mark.gid,
        )


def _draw_saving(axes: Axes, picture: FrontierPicture, time: float, energy: float) -> None:
    """Draw the highest clocks' energy up to the plan's time, and the saving as an arrow down to the plan."""
    times = np.array([picture.max_clock_time_s, max(picture.plan_time_s, picture.max_clock_time_s)])
    blocking_j = picture.total_blocking_power_w * (times - times[0])
    energies_j = _accounted(picture, times, picture.max_clock_energy_j + blocking_j)
    if picture.is_longer_than_max_clocks(picture.plan_time_s):
        axes.plot(
            times / time,
            energies_j / energy,
            color=WARNING,
            linewidth=1.4,
            linestyle=(0, (4, 2)),
            label="highest clocks, then blocking",
        )
    axes.annotate(
        "",
        xy=(picture.plan_time_s / time, picture.plan_energy_j / energy),
        xytext=(picture.plan_time_s / time, picture.baseline_energy_j / energy),
        arrowprops={"arrowstyle": "-|>", "color": FAINT_INK, "linewidth": 1.2, "shrinkA": 5, "shrinkB": 5},
    )
    axes.plot([], [], color=FAINT_INK, marker="v", linestyle="-", label=f"saving: {format_percent(picture.saving)}")
