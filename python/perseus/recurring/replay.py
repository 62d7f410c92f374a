"""Replay of recurring jobs against measured traces, with the policy of the live path.

A *recurrence* is one need for a trained model.  It is served by one trial, and by further ones while they
miss the target.  What a trial costs is looked up in the traces: one of the recorded training runs of its
batch size is drawn for the number of epochs, and the power trace gives the time and power of an epoch.
The first trial of a batch size spends its first epoch on measuring every power limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus.recurring.cost import Preference
from perseus.recurring.policy import (
    Decision,
    Ending,
    Outcome,
    Phase,
    PolicySettings,
    advance,
    decide,
    initial_state,
)
from perseus.recurring.trace import Trace

MAX_TRIES = 20


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """How to replay.

    Parameters
    ----------
    eta, beta, window:
        As for a live job.
    recurrences:
        How often the job recurs; None takes twice the number of batch sizes times power limits.
    """

    eta: float = 0.5
    beta: float = 2.0
    window: int = 0
    recurrences: int | None = None


class ReplayedTrial(NamedTuple):
    """One trial of a replay; energies and costs in joules, time in seconds, limit in watts."""

    recurrence: int
    batch_size: int
    limit_w: float
    phase: Phase
    ending: Ending
    energy_j: float
    time_s: float
    cost_j: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """The history of one job under one seed.

    Attributes
    ----------
    trials:
        In order.
    resets:
        How many drifts the policy found.
    aborted_at:
        The recurrence that missed its target in all tries, which ended the replay; None if none did.
    """

    trials: list[ReplayedTrial]
    resets: int
    aborted_at: int | None

    @property
    def cost_j(self) -> float:
        """Cost of everything, retries and measurements included, in joules."""
        return math.fsum(trial.cost_j for trial in self.trials)

    def configurations(self) -> list[tuple[int, float]]:
        """Return, per recurrence, the batch size and power limit (W) that served it in the end."""
        last = {trial.recurrence: (trial.batch_size, trial.limit_w) for trial in self.trials}
        return [last[recurrence] for recurrence in sorted(last)]


class _Configuration(NamedTuple):
    """A batch size at the power limit that its measurements imply."""

    limit_w: float
    epochs_to_target: tuple[float, ...]
    epoch_time_s: float
    epoch_energy_j: float
    epoch_cost_j: float
    profiling_time_s: float  # of a first epoch that is divided among all power limits
    profiling_energy_j: float


def _configurations(trace: Trace, preference: Preference) -> dict[int, _Configuration]:
    return {size: _configuration(trace, size, preference) for size in trace.batch_sizes}


def _configuration(trace: Trace, batch_size: int, preference: Preference) -> _Configuration:
    measured = trace.batch_sizes[batch_size]
    chosen = measured.cheapest_index(preference)
    energies_j = measured.epoch_times_s * measured.average_powers_w
    time_s, energy_j = float(measured.epoch_times_s[chosen]), float(energies_j[chosen])
    return _Configuration(
        limit_w=float(measured.limits_w[chosen]),
        epochs_to_target=tuple(measured.epochs_to_target.tolist()),
        epoch_time_s=time_s,
        epoch_energy_j=energy_j,
        epoch_cost_j=preference.cost_j(energy_j, time_s),
        profiling_time_s=float(measured.epoch_times_s.mean()),
        profiling_energy_j=float(energies_j.mean()),
    )


def default_recurrences(trace: Trace) -> int:
    """Return the number of recurrences of the published evaluation: 2 * batch sizes * power limits."""
    return 2 * len(trace.batch_sizes) * trace.num_power_limits


def replay(trace: Trace, settings: ReplaySettings, seed: int, *, drift: tuple[int, Trace] | None = None) -> Replay:
    """Replay one job under one seed.

    Parameters
    ----------
    trace:
        What was measured.
    settings:
        The rules.
    seed:
        Selects the job's random stream and, independently, the training runs that are drawn.
    drift:
        The recurrence from which another trace of the same job holds, such as one with a harder target,
        and that trace.
    """
    policy = PolicySettings(
        batch_sizes=tuple(trace.batch_sizes),
        default=trace.default,
        beta=settings.beta,
        window=settings.window,
        seed=seed,
    )
    world = _World(trace, settings, seed, drift)
    state = initial_state(policy)
    recurrences = settings.recurrences or default_recurrences(trace)
    trials: list[ReplayedTrial] = []
    for recurrence in range(recurrences):
        for _ in range(MAX_TRIES):
            decision = decide(state, policy, len(trials))
            trial = world.run(recurrence, decision)
            trials.append(trial)
            outcome = Outcome(trial.batch_size, trial.phase, trial.ending, trial.cost_j, decision.cap_j)
            state = advance(state, policy, outcome)
            if trial.ending == "reached":
                break
        else:
            return Replay(trials=trials, resets=state.resets, aborted_at=recurrence)
    return Replay(trials=trials, resets=state.resets, aborted_at=None)


class _World:
    """Answers what a trial would have cost."""

    def __init__(self, trace: Trace, settings: ReplaySettings, seed: int, drift: tuple[int, Trace] | None) -> None:
        self._preference = Preference(eta=settings.eta, max_power_w=trace.max_power_w)
        self._max_epochs = trace.job.max_epochs
        self._configurations = _configurations(trace, self._preference)
        self._drift = drift
        self._profiled: set[int] = set()
        # the traces' randomness is apart from the policy's, which comes from (seed, trial number)
        self._random = np.random.default_rng([seed, 0x7ACE]).random(4096).tolist()
        self._drawn = 0

    def run(self, recurrence: int, decision: Decision) -> ReplayedTrial:
        if self._drift is not None and recurrence >= self._drift[0]:
            self._configurations = _configurations(self._drift[1], self._preference)
            self._drift = None
        chosen = self._configurations[decision.batch_size]
        epochs_to_target = self._draw(chosen.epochs_to_target)
        allowed = self._max_epochs
        if decision.cap_j < allowed * chosen.epoch_cost_j:
            allowed = int(decision.cap_j / chosen.epoch_cost_j)  # stops before the epoch that would pass it
        reached = epochs_to_target <= allowed
        epochs = epochs_to_target if reached else allowed
        ending: Ending = "reached" if reached else "capped" if allowed < self._max_epochs else "exhausted"
        time_s, energy_j = epochs * chosen.epoch_time_s, epochs * chosen.epoch_energy_j
        if epochs and decision.batch_size not in self._profiled:
            self._profiled.add(decision.batch_size)
            time_s += chosen.profiling_time_s - chosen.epoch_time_s
            energy_j += chosen.profiling_energy_j - chosen.epoch_energy_j
        return ReplayedTrial(
            recurrence,
            decision.batch_size,
            chosen.limit_w,
            decision.phase,
            ending,
            energy_j,
            time_s,
            self._preference.cost_j(energy_j, time_s),
        )

    def _draw(self, epochs: tuple[float, ...]) -> float:
        number = self._random[self._drawn % len(self._random)]
        self._drawn += 1
        return epochs[int(number * len(epochs))]


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A batch size, a power limit in W, and their expected energy (J), time (s) and cost (J) to target."""

    batch_size: int
    limit_w: float
    energy_j: float
    time_s: float
    cost_j: float


def expected(trace: Trace, batch_size: int, limit_w: float, eta: float) -> Configuration:
    """Return what a configuration needs on average; infinite if some run misses the target."""
    measured = trace.batch_sizes[batch_size]
    index = int(np.flatnonzero(measured.limits_w == limit_w)[0])
    time_s = measured.mean_epochs(trace.job.max_epochs) * float(measured.epoch_times_s[index])
    energy_j = time_s * float(measured.average_powers_w[index])
    preference = Preference(eta=eta, max_power_w=trace.max_power_w)
    cost_j = preference.cost_j(energy_j, time_s) if math.isfinite(time_s) else math.inf
    return Configuration(batch_size=batch_size, limit_w=limit_w, energy_j=energy_j, time_s=time_s, cost_j=cost_j)


def default_configuration(trace: Trace, eta: float) -> Configuration:
    """Return what the job does without Zeus: its default batch size at the highest power limit."""
    return expected(trace, trace.default, float(trace.batch_sizes[trace.default].limits_w[-1]), eta)


def best_configuration(trace: Trace, eta: float) -> Configuration:
    """Return the configuration of least expected cost, by looking at every one."""
    return min(_every_configuration(trace, eta), key=lambda configuration: configuration.cost_j)


@dataclass(frozen=True, kw_only=True, eq=False)
class Summary:
    """One job on one GPU over all seeds.  Ratios are against the default configuration.

    Attributes
    ----------
    trace, default, best:
        What was replayed, its default and its best configuration.
    last_cost_ratio, last_energy_ratio, last_time_ratio:
        Expected cost, energy and time of the configurations of the last five recurrences, per seed.
    whole_cost_ratio:
        Cost of the whole run, exploration included, against running the default every time; per seed.
    resets, aborted:
        Drifts found, and whether a recurrence ran out of tries; per seed.
    mean_energy_j:
        Energy of the whole run, exploration included, in joules, mean over the seeds.
    """

    trace: Trace
    default: Configuration
    best: Configuration
    last_cost_ratio: NDArray[np.float64]
    last_energy_ratio: NDArray[np.float64]
    last_time_ratio: NDArray[np.float64]
    whole_cost_ratio: NDArray[np.float64]
    resets: NDArray[np.int64]
    aborted: NDArray[np.bool_]
    mean_energy_j: float

    @property
    def optimality(self) -> float:
        """Mean cost of the last five configurations against the optimum; 1 is optimal."""
        return float(self.last_cost_ratio.mean()) * self.default.cost_j / self.best.cost_j

    @property
    def energy_saving(self) -> float:
        """Fraction of the default's energy that the last five configurations save."""
        return 1.0 - float(self.last_energy_ratio.mean())


def summarize(trace: Trace, settings: ReplaySettings, replays: list[Replay]) -> Summary:
    """Return the summary of ``replays``, one per seed."""
    default = default_configuration(trace, settings.eta)
    lasts = [_last_five(trace, settings.eta, item) for item in replays]
    count = settings.recurrences or default_recurrences(trace)
    return Summary(
        trace=trace,
        default=default,
        best=best_configuration(trace, settings.eta),
        last_cost_ratio=np.array([np.mean([c.cost_j for c in last]) / default.cost_j for last in lasts]),
        last_energy_ratio=np.array([np.mean([c.energy_j for c in last]) / default.energy_j for last in lasts]),
        last_time_ratio=np.array([np.mean([c.time_s for c in last]) / default.time_s for last in lasts]),
        whole_cost_ratio=np.array([item.cost_j / (count * default.cost_j) for item in replays]),
        resets=np.array([item.resets for item in replays]),
        aborted=np.array([item.aborted_at is not None for item in replays]),
        mean_energy_j=float(np.mean([sum(t.energy_j for t in item.trials) for item in replays])),
    )


def _last_five(trace: Trace, eta: float, item: Replay) -> list[Configuration]:
    return [expected(trace, size, limit_w, eta) for size, limit_w in item.configurations()[-5:]]


class Potential(NamedTuple):
    """What the best energy is of the default energy, when only some knobs may be turned; and that optimum."""

    batch_size_only: float
    power_limit_only: float
    both: float
    best: Configuration


def potential(trace: Trace) -> Potential:
    """Return how much energy could be saved at all, whatever the time (the paper's figure 1)."""
    eta = 1.0
    default = default_configuration(trace, eta)
    every = list(_every_configuration(trace, eta))
    best = min(every, key=lambda c: c.energy_j)
    return Potential(
        batch_size_only=min(c.energy_j for c in every if c.limit_w == default.limit_w) / default.energy_j,
        power_limit_only=min(c.energy_j for c in every if c.batch_size == trace.default) / default.energy_j,
        both=best.energy_j / default.energy_j,
        best=best,
    )


def _every_configuration(trace: Trace, eta: float) -> Iterator[Configuration]:
    for size, measured in trace.batch_sizes.items():
        for limit_w in measured.limits_w.tolist():
            yield expected(trace, size, limit_w, eta)
