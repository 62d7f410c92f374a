"""What a simulated kernel asks of a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from perseus.device.errors import SimulationError


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A piece of GPU work.

    Parameters
    ----------
    work_s:
        Time at the highest clock in s, > 0.
    memory_share:
        Share of that time that memory bounds, which the core clock doesn't change; 0 to 1.
    activity:
        Dynamic power relative to a large matrix product; 0 to 1.5.
    """

    work_s: float
    memory_share: float = 0.1
    activity: float = 0.7

    def __post_init__(self) -> None:
        if not self.work_s > 0:
            raise SimulationError(f"work_s is {self.work_s}; a kernel's time is above 0 s")
        if not 0 <= self.memory_share <= 1:
            raise SimulationError(f"memory_share is {self.memory_share}; it is a share, from 0 to 1")
        if not 0 <= self.activity <= 1.5:
            raise SimulationError(f"activity is {self.activity}; it is from 0 to 1.5")
