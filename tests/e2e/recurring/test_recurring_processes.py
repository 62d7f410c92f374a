"""Real processes on one trial log: killed in the middle of a trial, and many at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import perseus
from perseus.recurring import Job
from perseus.recurring.policy import PolicySettings
from perseus.recurring.store import JobKey, JobSettings, TrialStore, next_decision

SOURCE = Path(perseus.__file__).parents[1]
LEASE_S = 1.5

KILLED = """
import sys, time
from perseus.recurring import Job

path, lease_s = sys.argv[1], float(sys.argv[2])
job = Job("asr", batch_sizes=[8, 16, 32], default=16, target=0.9, store=path, gpus=[], lease_s=lease_s)
with job.run() as run:
    for epoch in run.epochs():
        print(run.plan.trial_number, run.batch_size, flush=True)
        time.sleep(60)
"""

WORKER = """
import random, sys, time
from perseus.recurring.policy import PolicySettings
from perseus.recurring.store import JobKey, JobSettings, TrialStore
from perseus.recurring.trial import TrialResult

store, key = TrialStore(sys.argv[1]), JobKey(job="asr", hardware="1 GPU")
policy = PolicySettings(batch_sizes=(8, 16, 32, 64), default=16)
settings = JobSettings(policy=policy, eta=0.5, target=0.9, better="higher", max_epochs=9)
for _ in range(int(sys.argv[2])):
    trial = store.lease(key, settings, max_power_w=250.0, lease_s=60.0)
    time.sleep(random.uniform(0.0, 0.01))
    energy_j = {8: 400.0, 16: 130.0, 32: 100.0, 64: 150.0}[trial.batch_size]
    store.finish(key, trial, TrialResult(ending="reached", epochs=1, energy_j=energy_j, time_s=1.0))
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_after_kill_minus_nine_the_next_run_proceeds(tmp_path: Path) -> None:
    path = tmp_path / "log"
    process = start(KILLED, path, LEASE_S)
    assert process.stdout is not None
    assert process.stdout.readline() == "0 16\n"
    time.sleep(1.5 * LEASE_S)  # a live run keeps its lease however long it takes
    job = Job("asr", batch_sizes=[8, 16, 32], default=16, target=0.9, store=path, gpus=[], lease_s=LEASE_S)
    with job.run() as run:
        beside = job.store.trials(job.store.keys()[0])[run.plan.trial_number or 0]
        assert (beside.phase, beside.batch_size) == ("concurrent", 16)
        run.begin_epoch()
        run.report(1.0)
    process.kill()
    process.wait()
    process.stdout.close()
    time.sleep(1.2 * LEASE_S)
    with job.run() as run:
        again = job.store.trials(job.store.keys()[0])[run.plan.trial_number or 0]
        assert (again.phase, again.batch_size) == ("pruning", 16)
        run.begin_epoch()
        run.report(1.0)
    with job.run() as run:
        assert run.batch_size == 8  # the exploration went on


def test_processes_never_lease_the_same_place(tmp_path: Path) -> None:
    path = tmp_path / "log"
    workers, runs = 6, 12
    processes = [start(WORKER, path, runs) for _ in range(workers)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    store, key = TrialStore(path), JobKey(job="asr", hardware="1 GPU")
    trials = store.trials(key)
    assert [trial.number for trial in trials] == list(range(workers * runs))
    assert sorted(trial.finished_order or 0 for trial in trials) == list(range(1, workers * runs + 1))
    explored = [trial.batch_size for trial in trials if trial.phase == "pruning"]
    assert explored == [16, 8, 32, 64, 32, 16, 8, 64][: len(explored)]
    assert len(explored) >= 4
    policy = PolicySettings(batch_sizes=(8, 16, 32, 64), default=16)
    settings = JobSettings(policy=policy, eta=0.5, target=0.9, better="higher", max_epochs=9)
    assert next_decision(trials, settings).batch_size in (8, 16, 32, 64)
