"""From the log of past trials to the next trial: a pure function, shared by the live job and the replay.

    state = replay_log(settings, finished trials, in the order in which they finished)
    decision = decide(state, settings, trial_number, exploring=...)

`advance` folds one finished trial into the state, `decide` reads it.  Nothing else is remembered
anywhere, and the random numbers come from (seed, trial number), so the same log gives the same decision
on any machine.  The rules, from Zeus (NSDI'23) unless marked:

exploration
    Two rounds of pruning (`perseus.recurring.pruning`), then Thompson sampling among the survivors
    (`perseus.recurring.bandit`).
cost cap
    A run may cost at most ``beta`` times the least cost with which a run reached the target.  (Ours: the
    least cost among the last ``window`` trials, so that the cap follows a drift.)
failures
    A run that did not reach its target is never counted as a success.  (Ours: it counts as what it
    proved to cost at least, the cap or what it spent, plus the least known cost, because the job must
    be run again.)
drift (ours)
    When several runs outside pruning miss the target one after the other, or a round of pruning keeps
    nothing, the job has changed: what was learned is dropped, the cap is lifted, and pruning starts over
    from the batch size that was best.  A job is never given up.
concurrent runs
    While one run explores, further ones use the best known batch size.
lost runs (ours)
    A run that died says nothing and its place is given out again; after three deaths in a row of the same
    batch size they count as a failure of that batch size, which may well not fit into memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from perseus.recurring import pruning
from perseus.recurring.bandit import Arm, choose, observe
from perseus.recurring.errors import JobError

Phase = Literal["pruning", "sampling", "concurrent"]
Ending = Literal["reached", "capped", "exhausted", "abandoned", "unmeasured"]

FAILURES_TO_RESET = 3
ABANDONED_TO_FAIL = 3
_MAX_SEED = 2**63 - 1
_NO_ARM = Arm()


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """What a user decides about the exploration of one job.

    Parameters
    ----------
    batch_sizes:
        The candidates; stored ascending.
    default:
        The batch size that is known to work, one of the candidates.
    beta:
        A run may cost at most this many times the least known cost; infinity never stops a run early.
    window:
        How many trials count, the last ones; 0 counts all.  10 follows a drifting job.
    seed:
        Seed of the job's random stream, from 0 to 2**63 - 1.
    """

    batch_sizes: tuple[int, ...]
    default: int
    beta: float = 2.0
    window: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = tuple(sorted({int(size) for size in self.batch_sizes}))
        object.__setattr__(self, "batch_sizes", sizes)
        if not sizes or sizes[0] < 1:
            raise JobError(f"batch_sizes is {list(sizes)}; give one or more sizes, each at least 1")
        if self.default not in sizes:
            raise JobError(
                f"default is {self.default} but batch_sizes is {list(sizes)}; the default must be one of them"
            )
        if not self.beta > 1.0:
            raise JobError(f"beta is {self.beta}; a cap below the least known cost would stop every run")
        if self.window < 0 or self.window == 1:
            raise JobError(f"window is {self.window}; give 0 to count all trials, or at least 2")
        if not 0 <= self.seed <= _MAX_SEED:
            raise JobError(f"seed is {self.seed}; give a whole number from 0 to 2**63 - 1")


class Outcome(NamedTuple):
    """A finished trial, as far as the policy looks at it.

    Attributes
    ----------
    batch_size, phase:
        As decided when it started.
    ending:
        ``reached`` the target, ``capped`` (stopped at the cost cap), ``exhausted`` (all epochs, no
        target), ``abandoned`` (died, or was interrupted), or ``unmeasured`` (its energy is unknown).
    cost_j:
        What it cost, in joules.
    cap_j:
        The cost cap under which it ran, in joules; may be infinite.
    """

    batch_size: int
    phase: Phase
    ending: Ending
    cost_j: float
    cap_j: float = math.inf


class Decision(NamedTuple):
    """The next trial: its batch size, why it was chosen, and its cost cap in joules."""

    batch_size: int
    phase: Phase
    cap_j: float


class PolicyState(NamedTuple):
    """All that the trial log implies.  Immutable; `advance` returns the next one.

    Attributes
    ----------
    exploration:
        State of the pruning; its candidates are the bandit's arms once it has finished.
    arms:
        Costs seen per batch size since the last reset.
    reached:
        Batch sizes that reached the target since the last reset.
    recent_costs_j:
        Costs of the last ``window`` trials since the last reset, infinite for a failure; of all trials
        only the least when there is no window.
    failures:
        Consecutive failures outside pruning.
    abandoned:
        Batch size of the last trials that died, and how many in a row.
    resets:
        How many times a drift has been found.
    """

    exploration: pruning.Pruning
    arms: Mapping[int, Arm]
    reached: frozenset[int]
    recent_costs_j: tuple[float, ...]
    failures: int = 0
    abandoned: tuple[int, int] = (0, 0)
    resets: int = 0

    @property
    def min_cost_j(self) -> float:
        """Least cost with which the target was reached, in joules; infinite if there is none."""
        return min(self.recent_costs_j, default=math.inf)

    @property
    def best_batch_size(self) -> int:
        """The batch size of least mean cost; where exploration began while none has reached the target."""
        return min(
            (size for size in self.arms if size in self.reached),
            key=lambda size: self.arms[size].mean_j,
            default=self.exploration.start,
        )


def initial_state(settings: PolicySettings) -> PolicyState:
    """Return the state of a job that has never run."""
    return _fresh_state(settings, settings.default, resets=0)


def cap_j(state: PolicyState, settings: PolicySettings) -> float:
    """Return the cost that the next run must not pass, in joules; a run that cost nothing caps nothing."""
    least = state.min_cost_j
    return settings.beta * least if least > 0.0 else math.inf


def decide(state: PolicyState, settings: PolicySettings, trial_number: int, *, exploring: bool = False) -> Decision:
    """Return the next trial.

    Parameters
    ----------
    state, settings:
        What is known, and the rules.
    trial_number:
        Number of the trial to decide; selects its random numbers.
    exploring:
        Whether a trial that explores is running now.
    """
    cap = cap_j(state, settings)
    if exploring:
        return Decision(state.best_batch_size, "concurrent", cap)
    if state.exploration.pending is not None:
        return Decision(state.exploration.pending, "pruning", cap)
    sizes = state.exploration.candidates
    index = choose([state.arms.get(size, _NO_ARM) for size in sizes], settings.seed, trial_number)
    return Decision(sizes[index], "sampling", cap)


def replay_log(settings: PolicySettings, outcomes: Iterable[Outcome]) -> PolicyState:
    """Return the state after ``outcomes``, which come in the order in which they finished."""
    state = initial_state(settings)
    for outcome in outcomes:
        state = advance(state, settings, outcome)
    return state


def advance(state: PolicyState, settings: PolicySettings, outcome: Outcome) -> PolicyState:
    """Return the state after one more finished trial."""
    if outcome.batch_size not in settings.batch_sizes or outcome.ending == "unmeasured":
        return state  # tried under earlier settings of the job, or without a cost to learn from
    if outcome.ending == "abandoned":
        state, outcome = _count_abandoned(state, outcome)
        if outcome.ending == "abandoned":
            return state
    elif outcome.ending == "capped" and outcome.cap_j < cap_j(state, settings) * (1.0 - 1e-9):
        return state  # it was stopped by a cap that has been raised since, and proves nothing
    return _learn(state._replace(abandoned=(0, 0)), settings, outcome)


def _count_abandoned(state: PolicyState, outcome: Outcome) -> tuple[PolicyState, Outcome]:
    """Count the death of a run; the third in a row of a batch size becomes a failure."""
    size, count = state.abandoned
    count = count + 1 if size == outcome.batch_size else 1
    if count < ABANDONED_TO_FAIL:
        return state._replace(abandoned=(outcome.batch_size, count)), outcome
    return state, outcome._replace(ending="capped" if math.isfinite(outcome.cap_j) else "exhausted")


def _learn(state: PolicyState, settings: PolicySettings, outcome: Outcome) -> PolicyState:
    """Fold in a success or a failure."""
    size, reached = outcome.batch_size, outcome.ending == "reached"
    arm = observe(state.arms.get(size, _NO_ARM), _observed_cost_j(state, outcome), settings.window)
    exploration, failures = state.exploration, state.failures
    if outcome.phase == "pruning":
        if size == exploration.pending:
            exploration = pruning.advance(exploration, reached=reached, cost_j=outcome.cost_j)
    else:
        failures = 0 if reached else failures + 1
    state = state._replace(
        exploration=exploration,
        arms={**state.arms, size: arm},
        reached=state.reached | {size} if reached else state.reached,
        recent_costs_j=_remember(state.recent_costs_j, outcome.cost_j if reached else math.inf, settings.window),
        failures=failures,
    )
    if failures >= FAILURES_TO_RESET or not exploration.candidates:
        return _fresh_state(settings, _restart_from(state, settings), resets=state.resets + 1)
    return state


def _observed_cost_j(state: PolicyState, outcome: Outcome) -> float:
    """Return what a trial counts as: its cost, or after a failure also that of running again."""
    if outcome.ending == "reached":
        return outcome.cost_j
    spent = outcome.cap_j if outcome.ending == "capped" and math.isfinite(outcome.cap_j) else outcome.cost_j
    again = state.min_cost_j
    return spent + again if math.isfinite(again) else spent


def _remember(costs_j: tuple[float, ...], cost_j: float, window: int) -> tuple[float, ...]:
    if window:
        return (*costs_j, cost_j)[-window:]
    return (min(*costs_j, cost_j),) if costs_j else (cost_j,)


def _restart_from(state: PolicyState, settings: PolicySettings) -> int:
    """Return where to explore after a reset: the best so far, or the default if none works."""
    return state.best_batch_size if state.reached else settings.default


def _fresh_state(settings: PolicySettings, start: int, resets: int) -> PolicyState:
    return PolicyState(
        exploration=pruning.begin(settings.batch_sizes, start),
        arms={},
        reached=frozenset(),
        recent_costs_j=(),
        resets=resets,
    )
