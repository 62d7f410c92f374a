"""The schedules by name. A new schedule is a module with its order function and one entry here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from perseus.errors import ScheduleError
from perseus.orders.gpipe import GPIPE
from perseus.orders.one_f_one_b import ONE_F_ONE_B
from perseus.orders.schedule import Schedule

SCHEDULES: Final[Mapping[str, Schedule]] = MappingProxyType(
    {schedule.name: schedule for schedule in (GPIPE, ONE_F_ONE_B)}
)


def find_schedule(name: str) -> Schedule:
    """Return the schedule of that name.

    Raises
    ------
    ScheduleError
        If there is none; the message lists the names and the nearest one.
    """
    schedule = SCHEDULES.get(name) if isinstance(name, str) else None
    if schedule is not None:
        return schedule
    nearest = difflib.get_close_matches(str(name).lower().replace("-", "_"), SCHEDULES, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise ScheduleError(f"unknown schedule {name!r}: the schedules are {', '.join(SCHEDULES)}{hint}")
