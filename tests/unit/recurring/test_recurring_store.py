import math
import sqlite3
from pathlib import Path

import pytest

from perseus.recurring.errors import StoreError
from perseus.recurring.policy import PolicySettings
from perseus.recurring.power_limits import Measurement
from perseus.recurring.power_profile import PowerPoint
from perseus.recurring.store import JobKey, JobSettings, TrialStore, default_path
from perseus.recurring.trial import Trial, TrialResult

KEY = JobKey(job="job", hardware="1 GPU")
SETTINGS = JobSettings(
    policy=PolicySettings(batch_sizes=(8, 16, 32), default=16, beta=math.inf),
    eta=0.5,
    target=0.9,
    better="higher",
    max_epochs=10,
)


class Wall:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def store(tmp_path: Path, wall: Wall) -> TrialStore:
    return TrialStore(tmp_path / "deep" / "log.sqlite3", now=wall)


def lease(store: TrialStore, key: JobKey = KEY, **options: object) -> Trial:
    return store.lease(key, SETTINGS, max_power_w=250.0, lease_s=60.0, **options)  # type: ignore[arg-type]


def result(ending: str = "reached", energy_j: float = 100.0, **fields: object) -> TrialResult:
    return TrialResult(ending=ending, epochs=3, energy_j=energy_j, time_s=2.0, **fields)  # type: ignore[arg-type]


def test_trials_follow_each_other(store: TrialStore) -> None:
    sizes = []
    for _ in range(4):
        trial = lease(store)
        sizes.append(trial.batch_size)
        store.finish(KEY, trial, result(metric=0.91, power_limit_w=150.0))
    assert sizes == [16, 8, 32, 8]  # all equally cheap: the smallest starts the second round
    trials = store.trials(KEY)
    assert [trial.number for trial in trials] == [0, 1, 2, 3]
    assert [trial.finished_order for trial in trials] == [1, 2, 3, 4]
    assert trials[0].result == result(metric=0.91, power_limit_w=150.0)
    assert trials[0].cost_j(0.5) == 0.5 * 100.0 + 0.5 * 250.0 * 2.0
    assert trials[0].cap_j == math.inf


def test_one_explores_the_others_run_the_best_known(store: TrialStore) -> None:
    assert (lease(store).phase, lease(store).phase, lease(store).batch_size) == ("pruning", "concurrent", 16)


def test_a_dead_trial_is_given_out_again_after_its_lease(store: TrialStore, wall: Wall) -> None:
    dead = lease(store)
    wall.now += 59.0
    assert lease(store).phase == "concurrent"
    wall.now += 2.0
    again = lease(store)
    assert (again.phase, again.batch_size) == ("pruning", dead.batch_size)
    ending = store.trials(KEY)[0].result
    assert ending is not None
    assert ending.ending == "abandoned"


def test_a_lease_that_is_renewed_holds(store: TrialStore, wall: Wall) -> None:
    trial = lease(store)
    for _ in range(5):
        wall.now += 50.0
        store.renew(KEY, trial.number, 60.0)
    assert lease(store).phase == "concurrent"


def test_a_late_result_counts_beside_the_exploration(store: TrialStore, wall: Wall) -> None:
    late = lease(store)
    wall.now += 61.0
    again = lease(store)
    store.finish(KEY, late, result(energy_j=7.0))
    store.finish(KEY, again, result(energy_j=8.0))
    trials = store.trials(KEY)
    assert [trial.phase for trial in trials] == ["pruning", "pruning", "concurrent"]
    assert [t.result.ending for t in trials if t.result] == ["abandoned", "reached", "reached"]
    assert lease(store).batch_size == 8  # only one of them moved the exploration on


def test_finishing_twice_changes_nothing_that_was_entered(store: TrialStore) -> None:
    trial = lease(store)
    store.finish(KEY, trial, result(energy_j=1.0))
    store.finish(KEY, trial, result(energy_j=2.0))
    first = store.trials(KEY)[0].result
    assert first is not None
    assert first.energy_j == 1.0


def test_rows_that_someone_deleted(store: TrialStore) -> None:
    for _ in range(3):
        store.finish(KEY, lease(store), result())
    connection = sqlite3.connect(store.path, isolation_level=None)
    connection.execute("DELETE FROM trials WHERE number = 1")
    connection.close()
    assert lease(store).number == 3


def test_hardware_and_jobs_are_kept_apart(store: TrialStore) -> None:
    lease(store)
    other = JobKey(job="job", hardware="8 GPU")
    assert lease(store, other).phase == "pruning"
    assert lease(store, JobKey(job="other", hardware="1 GPU")).number == 0
    assert store.keys("job") == [KEY, other]
    assert len(store.keys()) == 3


def test_settings_survive(store: TrialStore) -> None:
    lease(store)
    assert store.settings("job") == SETTINGS
    with pytest.raises(StoreError, match="it has job"):
        store.settings("unknown")


def test_unmeasured_energy_is_stored(store: TrialStore) -> None:
    trial = lease(store)
    store.finish(KEY, trial, result("unmeasured", energy_j=math.nan))
    assert lease(store).batch_size == trial.batch_size


def test_measurements(store: TrialStore) -> None:
    low, high = (Measurement(PowerPoint(w, w - 5.0, 2.0), 0.01) for w in (100.0, 250.0))
    for measurement in (low, high, low):
        store.add_measurement(KEY, 16, measurement)
    assert store.measurements(KEY, 16) == [high, low]
    assert store.measurements(KEY, 8) == []


def test_limits_of_dead_runs_are_handed_out_once(store: TrialStore, wall: Wall) -> None:
    lease(store, original_limits_w={"GPU-a": 250.0, "GPU-b": 240.0})
    assert store.take_unrestored_limits_w(["GPU-a"]) == {}  # it lives
    wall.now += 61.0
    lease(store, original_limits_w={"GPU-a": 100.0})  # found the limit that the dead run left behind
    wall.now += 61.0
    assert store.take_unrestored_limits_w(["GPU-c"]) == {}
    assert store.take_unrestored_limits_w(["GPU-a"]) == {"GPU-a": 250.0}
    assert store.take_unrestored_limits_w(["GPU-a"]) == {}


def test_limits_that_were_restored_are_forgotten(store: TrialStore) -> None:
    trial = lease(store, original_limits_w={"GPU-a": 250.0})
    store.finish(KEY, trial, result(), restored=True)
    assert store.take_unrestored_limits_w(["GPU-a"]) == {}
    trial = lease(store, original_limits_w={"GPU-a": 250.0})
    store.finish(KEY, trial, result(), restored=False)
    assert store.take_unrestored_limits_w(["GPU-a"]) == {"GPU-a": 250.0}


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="run a job first"):
        TrialStore(tmp_path / "none").trials(KEY)


def test_a_file_that_is_none_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("this is no database, and long enough to be seen as none" * 100)
    with pytest.raises(StoreError, match="is a file of Perseus"):
        lease(TrialStore(path))


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="choose a writable file"):
        lease(TrialStore(tmp_path / "file" / "log"))


def test_another_version(store: TrialStore) -> None:
    lease(store)
    connection = sqlite3.connect(store.path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for use in (lease, lambda s: s.trials(KEY)):
        with pytest.raises(StoreError, match="version 99"):
            use(store)


def test_default_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PERSEUS_RECURRING_STORE", str(tmp_path / "log"))
    assert default_path() == tmp_path / "log"
    monkeypatch.delenv("PERSEUS_RECURRING_STORE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_path() == tmp_path / "perseus" / "recurring.sqlite3"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_path().parts[-4:] == (".local", "state", "perseus", "recurring.sqlite3")
