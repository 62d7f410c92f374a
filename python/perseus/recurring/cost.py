"""The energy-time cost that a recurring job minimises, and the power limit that it implies.

Zeus (NSDI'23, arXiv 2208.06102), equation 2: a run that consumed ``energy_j`` in ``time_s`` costs

    eta * energy_j + (1 - eta) * max_power_w * time_s        [J]

``eta`` = 1 counts energy alone, ``eta`` = 0 time alone.  ``max_power_w`` is the highest power limit,
summed over the GPUs of the job, so that both terms are joules.  Equation 7: whatever number of epochs
a batch size needs, every one of them is cheapest at the power limit with the lowest cost rate per unit
of work.  The power limit is therefore chosen once per batch size, and apart from the batch size.
"""

from __future__ import annotations

from dataclasses import dataclass

from perseus.recurring.errors import JobError


@dataclass(frozen=True, kw_only=True)
class Preference:
    """How much energy counts against time.

    Parameters
    ----------
    eta:
        Weight of energy, between 0 and 1.
    max_power_w:
        Highest power limit, in watts, summed over the GPUs of the job.
    """

    eta: float
    max_power_w: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.eta <= 1.0:
            raise JobError(f"eta is {self.eta}; it weighs energy against time, so give a value from 0 to 1")
        if not 0.0 < self.max_power_w < float("inf"):
            raise JobError(
                f"max_power_w is {self.max_power_w}; give the highest power limit of all GPUs together, in W"
            )

    def cost_j(self, energy_j: float, time_s: float) -> float:
        """Return the cost, in joules, of ``energy_j`` consumed over ``time_s``."""
        return self.eta * energy_j + (1.0 - self.eta) * self.max_power_w * time_s

    def cost_rate_w(self, average_power_w: float) -> float:
        """Return the cost per second, in watts, of running at ``average_power_w``."""
        return self.eta * average_power_w + (1.0 - self.eta) * self.max_power_w
