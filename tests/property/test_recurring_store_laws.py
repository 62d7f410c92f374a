"""The trial log under any interleaving of leases, results, deaths and late results."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from perseus.recurring.policy import PolicySettings, decide, replay_log
from perseus.recurring.store import JobKey, JobSettings, TrialStore
from perseus.recurring.trial import Trial, TrialResult

KEY = JobKey(job="job", hardware="1 GPU")
SETTINGS = JobSettings(
    policy=PolicySettings(batch_sizes=(8, 16, 32), default=16), eta=0.5, target=0.9, better="higher", max_epochs=9
)
LEASE_S = 10.0

actions = st.lists(
    st.tuples(st.sampled_from(["lease", "lease", "finish", "renew", "wait", "die"]), st.integers(0, 5)), max_size=30
)


@given(actions=actions)
@settings(max_examples=60, deadline=None)
def test_one_explorer_at_a_time_and_decisions_follow_from_the_log(actions: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        now = 0.0
        store = TrialStore(Path(directory) / "log", now=lambda: now)
        mine: list[Trial] = []  # runs that still live, whatever the log thinks of them
        for action, index in actions:
            if action == "lease":
                before = store.trials(KEY) if store.path.exists() else []
                trial = store.lease(KEY, SETTINGS, max_power_w=250.0, lease_s=LEASE_S)
                assert trial.number == len(before)
                check_decision(store, trial, now)
                mine.append(trial)
            elif action == "wait":
                now += float(index)
            elif mine:
                trial = mine[index % len(mine)]
                if action == "renew":
                    store.renew(KEY, trial.number, LEASE_S)
                else:
                    mine.remove(trial)
                    if action == "finish":
                        energy_j = 100.0 + abs(trial.batch_size - 16) + 50.0 * index
                        ending = "reached" if index < 4 else "capped"
                        result = TrialResult(ending=ending, epochs=3, energy_j=energy_j, time_s=1.0)
                        store.finish(KEY, trial, result)


def check_decision(store: TrialStore, leased: Trial, now: float) -> None:
    """The lease is what the pure function says of the rest of the log, and nobody else explores."""
    others = [trial for trial in store.trials(KEY) if trial.number != leased.number]
    exploring = [t for t in others if t.result is None and t.phase != "concurrent"]
    assert all(trial.lease_until >= now for trial in exploring)
    assert len(exploring) <= 1
    assert (leased.phase == "concurrent") == bool(exploring)
    finished = sorted((t for t in others if t.finished_order), key=lambda t: t.finished_order or 0)
    state = replay_log(SETTINGS.policy, [t.outcome(SETTINGS.eta) for t in finished])
    decision = decide(state, SETTINGS.policy, leased.number, exploring=bool(exploring))
    assert (leased.batch_size, leased.phase, leased.cap_j) == decision
