"""A trial: one run of a recurring job, as the trial log keeps it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perseus.recurring.cost import Preference
from perseus.recurring.policy import Ending, Outcome, Phase


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """How a run ended.

    Attributes
    ----------
    ending:
        ``reached`` the target, ``capped`` (stopped before the epoch that would have passed the cost
        cap), ``exhausted`` (ended without the target), ``abandoned`` (died, or left before an epoch was
        complete) or ``unmeasured`` (its energy could not be read).
    epochs:
        Complete epochs.
    energy_j, time_s:
        Energy of all GPUs, in joules, and time, in seconds, from the first epoch to the end of the last.
    metric:
        The last metric that was reported; None if there was none.
    power_limit_w:
        The power limit that was chosen, in watts; None if none was.
    """

    ending: Ending
    epochs: int
    energy_j: float
    time_s: float
    metric: float | None = None
    power_limit_w: float | None = None


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One row of the trial log.

    Attributes
    ----------
    number:
        Counts the trials of a job on one kind of hardware, from 0; selects the random numbers.
    batch_size, phase, cap_j:
        As decided; the cap is in joules of cost, infinite where there is none.
    finished_order:
        Counts the trials as they finished, from 1; None while the trial runs.
    max_power_w:
        Highest power limit of all GPUs of the run together, in watts.
    started_at, lease_until:
        Seconds since the epoch.
    result:
        None while the trial runs.
    """

    number: int
    batch_size: int
    phase: Phase
    cap_j: float
    max_power_w: float
    started_at: float
    lease_until: float
    finished_order: int | None = None
    result: TrialResult | None = None

    def cost_j(self, eta: float) -> float:
        """Return the cost of the finished trial, in joules."""
        if self.result is None:
            return math.nan
        preference = Preference(eta=eta, max_power_w=self.max_power_w)
        return preference.cost_j(self.result.energy_j, self.result.time_s)

    def outcome(self, eta: float) -> Outcome:
        """Return what the policy sees of the finished trial."""
        assert self.result is not None
        return Outcome(self.batch_size, self.phase, self.result.ending, self.cost_j(eta), self.cap_j)
