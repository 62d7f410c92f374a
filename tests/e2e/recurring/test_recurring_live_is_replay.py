"""What a live log decides is what the replay decided, trial by trial."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perseus.recurring.policy import PolicySettings
from perseus.recurring.replay import ReplaySettings, replay
from perseus.recurring.store import JobKey, JobSettings, TrialStore
from perseus.recurring.trace import TRACED_JOBS, read_trace
from perseus.recurring.trial import TrialResult

TRACES = Path(os.environ.get("PERSEUS_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data")) / "nsdi23"


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"the Zeus traces are not at {TRACES}; set PERSEUS_SHARED_DATA")
@pytest.mark.parametrize("name", ["NeuMF", "ResNet-50"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_log_fed_with_the_replay_decides_alike(name: str, seed: int, tmp_path: Path) -> None:
    (job,) = (job for job in TRACED_JOBS if job.name == name)
    trace = read_trace(TRACES, "v100", job)
    replayed = replay(trace, ReplaySettings(window=10, recurrences=40), seed)
    policy = PolicySettings(batch_sizes=tuple(trace.batch_sizes), default=trace.default, window=10, seed=seed)
    settings = JobSettings(policy=policy, eta=0.5, target=job.target, better="higher", max_epochs=job.max_epochs)
    store, key = TrialStore(tmp_path / "log"), JobKey(job=name, hardware="1 GPU")
    for expected in replayed.trials:
        leased = store.lease(key, settings, max_power_w=trace.max_power_w, lease_s=60.0)
        assert (leased.batch_size, leased.phase) == (expected.batch_size, expected.phase)
        result = TrialResult(ending=expected.ending, epochs=1, energy_j=expected.energy_j, time_s=expected.time_s)
        store.finish(key, leased, result)
