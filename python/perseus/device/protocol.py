"""What Perseus needs of a GPU."""

from __future__ import annotations

import enum
from typing import Protocol, runtime_checkable


class EventReason(enum.IntFlag):
    """Why a GPU's clock is what it is (NVML's "clocks event reasons")."""

    NONE = 0
    IDLE = 0x1
    APPLICATION_CLOCKS = 0x2
    POWER_CAP = 0x4
    HARDWARE_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    THERMAL = 0x20
    HARDWARE_THERMAL = 0x40
    POWER_BRAKE = 0x80
    DISPLAY_CLOCK = 0x100

    @property
    def slowing(self) -> EventReason:
        """Those of the reasons that make a clock fall below what was asked for."""
        return self & (
            EventReason.POWER_CAP
            | EventReason.HARDWARE_SLOWDOWN
            | EventReason.THERMAL
            | EventReason.HARDWARE_THERMAL
            | EventReason.POWER_BRAKE
        )

    def describe(self) -> str:
        """Return the names of the reasons, joined by commas; ``none`` when there are none."""
        names = [flag.name.lower().replace("_", " ") for flag in EventReason if flag and flag in self and flag.name]
        return ", ".join(names) or "none"


@runtime_checkable
class Gpu(Protocol):
    """One physical GPU, found by its UUID. Every method may raise a `DeviceError`.

    Objects stay usable after a fork and can be pickled: they open the driver anew where they are.
    """

    @property
    def uuid(self) -> str:
        """Identity of the board, ``GPU-...``."""

    @property
    def index(self) -> int:
        """Number of the GPU on this machine in NVML's order; not torch's number."""

    @property
    def name(self) -> str:
        """Product name."""

    @property
    def has_energy_counter(self) -> bool:
        """Whether energy comes from the hardware's counter; otherwise it is integrated from power readings."""

    @property
    def counter_resets(self) -> int:
        """How often the counter was seen to start again; a measurement across one is void."""

    def energy_j(self) -> float:
        """Return the energy used since some moment, in J. It never falls."""

    def power_w(self) -> float:
        """Return the present power in W, as instantaneous as the driver gives it."""

    def supported_clocks_mhz(self) -> tuple[int, ...]:
        """Return the core clocks that can be locked, highest first."""

    def lock_clocks_mhz(self, min_mhz: int, max_mhz: int) -> None:
        """Keep the core clock within a range."""

    def reset_clocks(self) -> None:
        """Let the core clock go where the driver likes."""

    def achieved_clock_mhz(self) -> int:
        """Return the present core clock."""

    def event_reasons(self) -> EventReason:
        """Return why the clock is what it is."""

    def power_limit_w(self) -> float:
        """Return the power limit in force."""

    def default_power_limit_w(self) -> float:
        """Return the power limit after a driver load."""

    def power_limit_range_w(self) -> tuple[float, float]:
        """Return the lowest and highest power limit that the GPU takes."""

    def set_power_limit_w(self, limit_w: float) -> None:
        """Set the power limit.

        Raises
        ------
        PowerLimitError
            If the limit is outside of the range; the driver isn't asked.
        """
