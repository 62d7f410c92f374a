import math
from dataclasses import replace

import pytest

from perseus.recurring.errors import JobError
from perseus.recurring.policy import (
    FAILURES_TO_RESET,
    Outcome,
    PolicySettings,
    PolicyState,
    advance,
    cap_j,
    decide,
    initial_state,
    replay_log,
)

SETTINGS = PolicySettings(batch_sizes=(8, 16, 32, 64), default=32)
COSTS = {8: 30.0, 16: 10.0, 32: 12.0, 64: 20.0}


def run(
    state: PolicyState, settings: PolicySettings, costs: dict[int, float], trials: int
) -> tuple[list[str], PolicyState]:
    """Run trials that cost as given, infinite for a target out of reach; return what happened."""
    history = []
    for _ in range(trials):
        number = len(history)
        decision = decide(state, settings, number)
        cost = costs[decision.batch_size]
        ending = "reached" if cost <= decision.cap_j and cost < math.inf else "capped"
        if ending == "capped" and decision.cap_j == math.inf:
            ending = "exhausted"
        spent = min(cost, decision.cap_j, 1000.0)
        state = advance(state, settings, Outcome(decision.batch_size, decision.phase, ending, spent, decision.cap_j))
        history.append(f"{decision.batch_size}{'' if ending == 'reached' else 'x'}{decision.phase[0]}")
    return history, state


def test_two_rounds_then_sampling() -> None:
    history, state = run(initial_state(SETTINGS), SETTINGS, COSTS, 12)
    assert history[:4] == ["32p", "16p", "8xp", "64p"]  # 8 costs more than twice the least
    assert history[4:7] == ["16p", "32p", "64p"]  # the second round starts at the cheapest
    assert history[7:] == ["16s"] * 5
    assert state.best_batch_size == 16
    assert cap_j(state, SETTINGS) == 20.0


def test_no_cap_without_a_success() -> None:
    assert decide(initial_state(SETTINGS), SETTINGS, 0).cap_j == math.inf


def test_exhausted_runs_are_failures() -> None:
    history, state = run(initial_state(SETTINGS), SETTINGS, {**COSTS, 8: math.inf}, 12)
    assert "8xp" in history
    assert 8 not in state.reached


def test_default_that_never_works_is_not_given_up() -> None:
    history, state = run(initial_state(SETTINGS), SETTINGS, dict.fromkeys(COSTS, math.inf), 8)
    assert history == ["32xp", "64xp"] * 4
    assert state.resets == 4


def test_while_one_explores_others_take_the_best_known() -> None:
    state = initial_state(SETTINGS)
    assert decide(state, SETTINGS, 0, exploring=True) == (32, "concurrent", math.inf)
    _, state = run(state, SETTINGS, COSTS, 3)
    decision = decide(state, SETTINGS, 3, exploring=True)
    assert decision == (16, "concurrent", 20.0)


def test_concurrent_results_teach_costs_but_not_pruning() -> None:
    _, state = run(initial_state(SETTINGS), SETTINGS, COSTS, 1)
    after = advance(state, SETTINGS, Outcome(32, "concurrent", "reached", 5.0, 24.0))
    assert after.exploration == state.exploration
    assert after.min_cost_j == 5.0
    assert (after.arms[32].observations, after.arms[32].mean_j) == (2, 8.5)


def test_upward_drift_beyond_beta_resets_and_starts_at_the_best() -> None:
    _, state = run(initial_state(SETTINGS), SETTINGS, COSTS, 10)
    history, state = run(state, SETTINGS, {size: 5.0 * cost for size, cost in COSTS.items()}, 12)
    assert [entry[-2:] for entry in history[:FAILURES_TO_RESET]] == ["xs"] * FAILURES_TO_RESET
    assert history[FAILURES_TO_RESET] == "16p"
    assert state.resets == 1
    assert state.min_cost_j == 50.0


def test_min_cost_follows_the_window() -> None:
    settings = PolicySettings(batch_sizes=(8,), default=8, window=3)
    outcomes = [Outcome(8, "sampling", "reached", cost, math.inf) for cost in (1.0, 1.5, 1.6, 1.7)]
    assert replay_log(settings, outcomes).min_cost_j == 1.5


def test_a_failure_costs_the_cap_and_another_run() -> None:
    settings = replace(SETTINGS, window=20)
    _, state = run(initial_state(settings), settings, COSTS, 10)
    failed = advance(state, settings, Outcome(16, "sampling", "capped", 15.0, 20.0))
    assert failed.arms[16].last_costs_j[-1] == 30.0
    failed = advance(state, settings, Outcome(16, "sampling", "exhausted", 4.0, 20.0))
    assert failed.arms[16].last_costs_j[-1] == 14.0


def test_a_run_that_died_teaches_nothing() -> None:
    state = initial_state(SETTINGS)
    after = advance(state, SETTINGS, Outcome(32, "pruning", "abandoned", 0.0))
    assert decide(after, SETTINGS, 1) == decide(state, SETTINGS, 0)


def test_the_third_death_of_a_batch_size_is_a_failure() -> None:
    _, state = run(initial_state(SETTINGS), SETTINGS, COSTS, 1)
    for number in range(3):
        assert decide(state, SETTINGS, number).batch_size == 16
        state = advance(state, SETTINGS, Outcome(16, "pruning", "abandoned", 0.0, 24.0))
    assert decide(state, SETTINGS, 3).batch_size == 64  # 16 has failed: now upwards


def test_a_success_in_between_forgives_deaths() -> None:
    _, state = run(initial_state(SETTINGS), SETTINGS, COSTS, 1)
    dead = Outcome(16, "pruning", "abandoned", 0.0, 24.0)
    for _ in range(4):
        state = advance(state, SETTINGS, dead)
        state = advance(state, SETTINGS, Outcome(32, "concurrent", "reached", 12.0, 24.0))
    assert decide(state, SETTINGS, 9).batch_size == 16


def test_unmeasured_and_foreign_trials_are_ignored() -> None:
    state = initial_state(SETTINGS)
    assert advance(state, SETTINGS, Outcome(32, "pruning", "unmeasured", math.nan)) is state
    assert advance(state, SETTINGS, Outcome(128, "pruning", "reached", 1.0)) is state


def test_a_failure_under_a_cap_since_raised_proves_nothing() -> None:
    _, state = run(initial_state(SETTINGS), SETTINGS, COSTS, 1)
    assert advance(state, SETTINGS, Outcome(16, "pruning", "capped", 10.0, 12.0)) is state


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_sizes": ()}, "one or more sizes"),
        ({"batch_sizes": (0, 8), "default": 8}, "at least 1"),
        ({"default": 7}, "must be one of them"),
        ({"beta": 1.0}, "would stop every run"),
        ({"beta": math.nan}, "would stop every run"),
        ({"window": 1}, "at least 2"),
        ({"window": -2}, "at least 2"),
        ({"seed": -1}, "whole number"),
    ],
)
def test_settings_are_checked(change: dict[str, object], message: str) -> None:
    with pytest.raises(JobError, match=message):
        PolicySettings(**{"batch_sizes": (8, 16), "default": 8, **change})  # type: ignore[arg-type]


def test_settings_sort_batch_sizes() -> None:
    assert PolicySettings(batch_sizes=(16, 8, 16), default=8).batch_sizes == (8, 16)
