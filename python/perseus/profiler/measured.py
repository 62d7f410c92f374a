"""What was measured, and its journal: a file that grows by a line a point, so that a sweep can go on where it ended."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseus.device.errors import ClockNotHeldWarning, MeasurementError

if TYPE_CHECKING:
    from perseus.profiles import Profiles

JOURNAL_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class MeasuredPoint:
    """One operation at one value of the knob.

    Attributes
    ----------
    stage, kind:
        The operation.
    value:
        The knob's value: MHz or W.
    time_s, energy_j:
        Time and total energy of one operation on one GPU.
    time_half_width, energy_half_width:
        Half-widths of the 95 % confidence intervals, relative.
    windows:
        Counter windows that went in.
    accepted:
        Whether both half-widths reached the bar; else the time cap ended the measurement.
    held:
        Whether the GPU ran at the clock asked for.
    achieved_mhz:
        Mean clock while it worked; 0 when none was read.
    reasons:
        Why the clock wasn't held, in words.
    """

    stage: int
    kind: str
    value: float
    time_s: float
    energy_j: float
    time_half_width: float
    energy_half_width: float
    windows: int
    accepted: bool
    held: bool
    achieved_mhz: float
    reasons: str


@dataclass(frozen=True, kw_only=True)
class MeasuredProfile:
    """The result of a sweep.

    Attributes
    ----------
    knob:
        Name of the knob's column.
    gpu_uuid, gpu_name:
        Where it was measured.
    blocking_power_w:
        Power of the GPU while it waits.
    points:
        All points, in the order in which they were measured.
    """

    knob: str
    gpu_uuid: str
    gpu_name: str
    blocking_power_w: float
    points: tuple[MeasuredPoint, ...] = field(default_factory=tuple)

    def columns(self, *, keep_not_held: bool = False) -> dict[str, list[Any]]:
        """Return the points as columns of a profile: ``stage``, ``instruction`` (the kind), the knob, ``time``,
        ``energy``.

        Parameters
        ----------
        keep_not_held:
            Keep points whose clock wasn't held. Their time and energy are true, but of another clock.
        """
        kept = [point for point in self.points if point.held or keep_not_held]
        dropped = len(self.points) - len(kept)
        if dropped:
            warnings.warn(
                f"{dropped} of {len(self.points)} points were left out, because GPU {self.gpu_uuid} didn't hold their "
                "clock (reasons stand in the journal); raise the power limit or the cooling to measure there",
                ClockNotHeldWarning,
                stacklevel=2,
            )
        return {
            "stage": [point.stage for point in kept],
            "instruction": [point.kind for point in kept],
            self.knob: [point.value for point in kept],
            "time": [point.time_s for point in kept],
            "energy": [point.energy_j for point in kept],
        }

    def profiles(self, *, keep_not_held: bool = False) -> Profiles:
        """Return the points as `perseus.Profiles`."""
        from perseus.profiles import read_profiles

        return read_profiles(self.columns(keep_not_held=keep_not_held), blocking_power_w=self.blocking_power_w)

    def to_csv(self, path: str | os.PathLike[str], *, keep_not_held: bool = False) -> None:
        """Write the points as a profile file, beside and then renamed. The blocking power is not in it."""
        columns = self.columns(keep_not_held=keep_not_held)
        rows = zip(*columns.values(), strict=True)
        text = "\n".join([",".join(columns), *(",".join(_cell(value) for value in row) for row in rows)]) + "\n"
        beside = Path(f"{os.fspath(path)}.new.{os.getpid()}")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)


def merge_profiles(measured: Iterable[MeasuredProfile], *, keep_not_held: bool = False) -> Profiles:
    """Return the profile of a whole pipeline from what each rank measured of its stages.

    Parameters
    ----------
    measured:
        The ranks' measurements, all with the same knob. Each stage has the blocking power of the rank that measured it.
    keep_not_held:
        See `MeasuredProfile.columns`.

    Raises
    ------
    MeasurementError
        If there is none, or their knobs differ.
    ProfileError
        If the points don't make a profile, as when a stage is missing.
    """
    from perseus.profiles import read_profiles

    parts = list(measured)
    knobs = sorted({part.knob for part in parts})
    if len(knobs) != 1:
        raise MeasurementError(f"measurements over {knobs or 'nothing'} can't be merged; all must have one knob")
    columns: dict[str, list[Any]] = {}
    blocking_power_w: dict[int, float] = {}
    for part in parts:
        for name, values in part.columns(keep_not_held=keep_not_held).items():
            columns.setdefault(name, []).extend(values)
        blocking_power_w |= {point.stage: part.blocking_power_w for point in part.points}
    return read_profiles(columns, blocking_power_w=blocking_power_w)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


class Journal:
    """The journal of a sweep.

    Parameters
    ----------
    path:
        Its file; None: keep nothing.
    identity:
        What a sweep must agree in to go on with an earlier one: GPU, knob, kinds, ...
    """

    def __init__(self, path: str | os.PathLike[str] | None, identity: Mapping[str, object]) -> None:
        self._path = None if path is None else Path(path)
        self._identity = {"version": JOURNAL_VERSION, **identity}
        self.points: list[MeasuredPoint] = []
        self.blocking_power_w: float | None = None
        if self._path is not None and self._path.exists():
            self._read(self._path)
        elif self._path is not None:
            self._append({"sweep": self._identity})

    def add(self, point: MeasuredPoint) -> None:
        """Keep a point."""
        self.points.append(point)
        self._append({"point": asdict(point)})

    def set_blocking_power_w(self, power_w: float) -> None:
        """Keep the blocking power."""
        self.blocking_power_w = power_w
        self._append({"blocking_power_w": power_w})

    def find(self, stage: int, kind: str, value: float) -> MeasuredPoint | None:
        """Return a point measured earlier."""
        matching = [p for p in self.points if (p.stage, p.kind, p.value) == (stage, kind, value)]
        return matching[-1] if matching else None

    def _read(self, path: Path) -> None:
        lines = list(_whole_lines(path))
        if not lines or lines[0].get("sweep") != self._identity:
            raise MeasurementError(
                f"{path} is the journal of another sweep ({lines[0].get('sweep') if lines else 'no sweep'}, not "
                f"{self._identity}); choose another output, or remove it to start again"
            )
        for line in lines[1:]:
            if "point" in line:
                self.points.append(MeasuredPoint(**line["point"]))
            self.blocking_power_w = line.get("blocking_power_w", self.blocking_power_w)

    def _append(self, line: Mapping[str, object]) -> None:
        if self._path is None:
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _whole_lines(path: Path) -> Iterable[dict[str, Any]]:
    """Give the lines that were written whole; cut off the rest of one that wasn't."""
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        os.truncate(path, len(whole.encode("utf-8")))
    return (json.loads(line) for line in whole.splitlines())
