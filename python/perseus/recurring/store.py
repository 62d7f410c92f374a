"""The trial log: an SQLite file with one table of trials and one of power profiles.

A trial is *leased*: its row is written when it starts, with a time until which it counts as running, and
the run renews that time while it lives.  A run that dies stops renewing, and whoever leases next after
that time marks it abandoned and gives its place out again.  Deciding and leasing is one write
transaction, so no two processes can get the same place.

A connection lives for one operation, so forks and threads need no care.  The file must be on a file
system with working locks; of network file systems, ask your administrator.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perseus.recurring.errors import StoreError
from perseus.recurring.policy import Decision, PolicySettings, decide, replay_log
from perseus.recurring.power_limits import Measurement
from perseus.recurring.power_profile import PowerPoint
from perseus.recurring.trial import Trial, TrialResult

SCHEMA_VERSION = 1
_BUSY_S = 10.0  # how long to wait for another writer before giving up

_SCHEMA = """
CREATE TABLE trials (
    job TEXT NOT NULL, hardware TEXT NOT NULL, number INTEGER NOT NULL,
    batch_size INTEGER NOT NULL, phase TEXT NOT NULL, cap_j REAL, max_power_w REAL NOT NULL,
    started_at REAL NOT NULL, lease_until REAL NOT NULL,
    finished_order INTEGER, ending TEXT, epochs INTEGER, energy_j REAL, time_s REAL,
    metric REAL, power_limit_w REAL, original_limits_w TEXT,
    PRIMARY KEY (job, hardware, number)
);
CREATE TABLE power_profiles (
    job TEXT NOT NULL, hardware TEXT NOT NULL, batch_size INTEGER NOT NULL, limit_w REAL NOT NULL,
    average_power_w REAL NOT NULL, rate_per_s REAL NOT NULL, half_width REAL NOT NULL,
    PRIMARY KEY (job, hardware, batch_size, limit_w)
);
CREATE TABLE jobs (job TEXT PRIMARY KEY, settings TEXT NOT NULL);
"""
_OF_KEY = "job = ? AND hardware = ?"
_TRIAL_COLUMNS = (
    "number, batch_size, phase, cap_j, max_power_w, started_at, lease_until, "
    "finished_order, ending, epochs, energy_j, time_s, metric, power_limit_w"
)


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """All settings of a job; kept in the log so that it can be shown without its program.

    Parameters
    ----------
    policy:
        The rules of exploration.
    eta:
        Weight of energy against time.
    target, better:
        The metric to reach, and which direction is better: ``lower`` or ``higher``.
    max_epochs:
        A run that has not reached the target by then has failed.
    """

    policy: PolicySettings
    eta: float
    target: float
    better: str
    max_epochs: int

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> JobSettings:
        """Return the settings that `to_json` wrote."""
        values = json.loads(text)
        policy = values.pop("policy")
        return cls(policy=PolicySettings(**{**policy, "batch_sizes": tuple(policy["batch_sizes"])}), **values)


@dataclass(frozen=True, kw_only=True)
class JobKey:
    """A job on one kind of hardware; what was learned on one kind is not used on another."""

    job: str
    hardware: str


def default_path() -> Path:
    """Return the usual place: ``$PERSEUS_RECURRING_STORE``, or below the user's state directory."""
    chosen = os.environ.get("PERSEUS_RECURRING_STORE")
    if chosen:
        return Path(chosen)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "perseus" / "recurring.sqlite3"


class TrialStore:
    """The trial log in one file.

    Parameters
    ----------
    path:
        The file; it and its directory are made when missing.
    now:
        Gives the time in seconds since the epoch.

    Raises
    ------
    StoreError
        From every method, when the file cannot be opened, locked in time, read or written.
    """

    def __init__(self, path: str | os.PathLike[str], *, now: Callable[[], float] = time.time) -> None:
        self.path = Path(path).expanduser()
        self._now = now

    def lease(
        self,
        key: JobKey,
        settings: JobSettings,
        *,
        max_power_w: float,
        lease_s: float,
        original_limits_w: Mapping[str, float] | None = None,
    ) -> Trial:
        """Decide the next trial and enter it as running."""
        with self._writing() as connection:
            now = self._now()
            connection.execute(
                "INSERT INTO jobs VALUES (?, ?) ON CONFLICT (job) DO UPDATE SET settings = excluded.settings",
                (key.job, settings.to_json()),
            )
            _expire(connection, key, now)
            trials = _trials(connection, key)
            number = _next_number(trials)
            decision = next_decision(trials, settings)
            connection.execute(
                "INSERT INTO trials (job, hardware, number, batch_size, phase, cap_j, max_power_w,"
                " started_at, lease_until, original_limits_w) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(key.job, key.hardware, number, decision.batch_size, decision.phase),
                    *(_finite(decision.cap_j), max_power_w, now, now + lease_s),
                    json.dumps(dict(original_limits_w)) if original_limits_w else None,
                ),
            )
            return Trial(
                number=number,
                batch_size=decision.batch_size,
                phase=decision.phase,
                cap_j=decision.cap_j,
                max_power_w=max_power_w,
                started_at=now,
                lease_until=now + lease_s,
            )

    def renew(self, key: JobKey, number: int, lease_s: float) -> None:
        """Let a running trial count as running for ``lease_s`` more seconds from now."""
        with self._writing() as connection:
            connection.execute(
                f"UPDATE trials SET lease_until = ? WHERE {_OF_KEY} AND number = ? AND ending IS NULL",
                (self._now() + lease_s, key.job, key.hardware, number),
            )

    def finish(self, key: JobKey, trial: Trial, result: TrialResult, *, restored: bool = True) -> None:
        """Enter the result of a trial.

        A trial whose lease has run out meanwhile, and was marked abandoned, enters as a further one that
        ran beside the others: what it measured counts, its place in the exploration is another's by now.
        """
        with self._writing() as connection:
            late = not _enter(connection, key, trial.number, result)
            if late:
                number = _next_number(_trials(connection, key))
                connection.execute(
                    "INSERT INTO trials (job, hardware, number, batch_size, phase, cap_j, max_power_w,"
                    " started_at, lease_until) VALUES (?, ?, ?, ?, 'concurrent', ?, ?, ?, ?)",
                    (
                        *(key.job, key.hardware, number, trial.batch_size, _finite(trial.cap_j)),
                        *(trial.max_power_w, trial.started_at, self._now()),
                    ),
                )
                _enter(connection, key, number, result)
            if restored:
                connection.execute(
                    f"UPDATE trials SET original_limits_w = NULL WHERE {_OF_KEY} AND number = ?",
                    (key.job, key.hardware, trial.number),
                )

    def trials(self, key: JobKey) -> list[Trial]:
        """Return all trials, by number."""
        with self._reading() as connection:
            return _trials(connection, key)

    def keys(self, job: str | None = None) -> list[JobKey]:
        """Return what has been run: every job, or only the one named, per kind of hardware."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT DISTINCT job, hardware FROM trials WHERE ? IS NULL OR job = ? ORDER BY job, hardware",
                (job, job),
            )
            return [JobKey(job=row[0], hardware=row[1]) for row in rows]

    def settings(self, job: str) -> JobSettings:
        """Return the settings with which ``job`` was run last."""
        with self._reading() as connection:
            row = connection.execute("SELECT settings FROM jobs WHERE job = ?", (job,)).fetchone()
            known = [name for (name,) in connection.execute("SELECT job FROM jobs ORDER BY job")]
        if row is None:
            raise StoreError(f"{self.path} has no job {job!r}; it has {', '.join(known) or 'none yet'}")
        return JobSettings.from_json(row[0])

    def add_measurement(self, key: JobKey, batch_size: int, measurement: Measurement) -> None:
        """Keep what was measured at one power limit; a newer measurement replaces an older one."""
        point = measurement.point
        with self._writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO power_profiles VALUES (?, ?, ?, ?, ?, ?, ?)",
                (key.job, key.hardware, batch_size, *point, measurement.half_width),
            )

    def measurements(self, key: JobKey, batch_size: int) -> list[Measurement]:
        """Return what was measured at one batch size, the highest power limit first."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT limit_w, average_power_w, rate_per_s, half_width FROM power_profiles"
                " WHERE job = ? AND hardware = ? AND batch_size = ? ORDER BY limit_w DESC",
                (key.job, key.hardware, batch_size),
            )
            return [Measurement(PowerPoint(*row[:3]), row[3]) for row in rows]

    def take_unrestored_limits_w(self, uuids: list[str]) -> dict[str, float]:
        """Return, once, the power limits that dead runs should have restored on these GPUs, by UUID.

        Only runs whose lease is over are asked: the first of them knows what the limit was before.
        """
        found: dict[str, float] = {}
        with self._writing() as connection:
            rows = connection.execute(
                "SELECT rowid, original_limits_w FROM trials WHERE original_limits_w IS NOT NULL"
                " AND (ending IS NOT NULL OR lease_until < ?) ORDER BY started_at",
                (self._now(),),
            ).fetchall()
            for rowid, text in rows:
                limits: dict[str, float] = json.loads(text)
                mine = {uuid: limit for uuid, limit in limits.items() if uuid in uuids}
                if mine:
                    found = {**mine, **found}
                    connection.execute("UPDATE trials SET original_limits_w = NULL WHERE rowid = ?", (rowid,))
        return found

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                _make_schema(connection, self.path)
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        if not self.path.exists():
            raise StoreError(f"there is no trial log {self.path}; run a job first, or name another file")
        with self._connection() as connection:
            _check_version(connection, self.path)
            yield connection

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"the trial log {self.path} cannot be opened ({error}); choose a writable file") from error
        try:
            yield connection
        except sqlite3.Error as error:
            raise StoreError(
                f"the trial log {self.path} failed ({error}); check its disk and that it is a file of Perseus"
            ) from error
        finally:
            connection.close()


def next_decision(trials: list[Trial], settings: JobSettings) -> Decision:
    """Return the trial that follows a log: the pure function on which everything rests."""
    finished = sorted(
        (trial for trial in trials if trial.finished_order is not None), key=lambda t: t.finished_order or 0
    )
    state = replay_log(settings.policy, (trial.outcome(settings.eta) for trial in finished))
    exploring = any(trial.result is None and trial.phase != "concurrent" for trial in trials)
    return decide(state, settings.policy, _next_number(trials), exploring=exploring)


def _next_number(trials: list[Trial]) -> int:
    """Return the number of the next trial; not their count, should someone have deleted rows."""
    return trials[-1].number + 1 if trials else 0


def _make_schema(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    _check_version(connection, path)


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"the trial log {path} has version {version}, this Perseus reads {SCHEMA_VERSION}; "
            "use the Perseus that wrote it, or another file"
        )


def _expire(connection: sqlite3.Connection, key: JobKey, now: float) -> None:
    """Mark the trials abandoned whose lease is over."""
    rows = connection.execute(
        f"SELECT number FROM trials WHERE {_OF_KEY} AND ending IS NULL AND lease_until < ? ORDER BY number",
        (key.job, key.hardware, now),
    ).fetchall()
    for (number,) in rows:
        _enter(connection, key, number, TrialResult(ending="abandoned", epochs=0, energy_j=0.0, time_s=0.0))


def _enter(connection: sqlite3.Connection, key: JobKey, number: int, result: TrialResult) -> bool:
    """Write a result into the row of a running trial; return False if it is not running any more."""
    cursor = connection.execute(
        "UPDATE trials SET ending = ?, epochs = ?, energy_j = ?, time_s = ?, metric = ?, power_limit_w = ?,"
        f" finished_order = (SELECT coalesce(max(finished_order), 0) + 1 FROM trials WHERE {_OF_KEY})"
        f" WHERE {_OF_KEY} AND number = ? AND ending IS NULL",
        (
            *(result.ending, result.epochs, result.energy_j, result.time_s, _finite(result.metric)),
            *(result.power_limit_w, key.job, key.hardware, key.job, key.hardware, number),
        ),
    )
    return cursor.rowcount == 1


def _trials(connection: sqlite3.Connection, key: JobKey) -> list[Trial]:
    rows = connection.execute(
        f"SELECT {_TRIAL_COLUMNS} FROM trials WHERE job = ? AND hardware = ? ORDER BY number",
        (key.job, key.hardware),
    )
    return [_trial(row) for row in rows]


def _trial(row: tuple[Any, ...]) -> Trial:
    number, batch_size, phase, cap, max_power_w, started_at, lease_until, order, ending, *rest = row
    result = None
    if ending is not None:
        epochs, energy_j, time_s, metric, power_limit_w = rest
        result = TrialResult(
            ending=ending,
            epochs=epochs,
            energy_j=math.nan if energy_j is None else energy_j,
            time_s=time_s,
            metric=metric,
            power_limit_w=power_limit_w,
        )
    return Trial(
        number=number,
        batch_size=batch_size,
        phase=phase,
        cap_j=math.inf if cap is None else cap,
        max_power_w=max_power_w,
        started_at=started_at,
        lease_until=lease_until,
        finished_order=order,
        result=result,
    )


def _finite(value: float | None) -> float | None:
    """Return a value for the database: what is not finite is stored as nothing."""
    return value if value is not None and math.isfinite(value) else None
