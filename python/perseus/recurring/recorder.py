"""Writes to the trial log beside a running job, so that the job never waits for a disk."""

from __future__ import annotations

import logging
import queue
import threading

from perseus.recurring.power_limits import Measurement
from perseus.recurring.store import JobKey, TrialStore
from perseus.recurring.trial import Trial, TrialResult

logger = logging.getLogger("perseus.recurring")

_CLOSE_S = 15.0  # longer than the log waits for another writer


class TrialRecorder:
    """Keeps the lease of one trial, and enters its measurements and its result.

    A thread of its own does the writing while the trial runs.  It dies with the process, whatever kills
    that, and then the lease runs out.  A log that fails is reported once and does not disturb the job.
    """

    def __init__(self, store: TrialStore, key: JobKey, trial: Trial, lease_s: float) -> None:
        self._store = store
        self._key = key
        self._trial = trial
        self._lease_s = lease_s
        self._measurements: queue.SimpleQueue[Measurement | None] = queue.SimpleQueue()
        self._warned = False
        self._thread = threading.Thread(target=self._work, name="perseus-trial-log", daemon=True)
        self._thread.start()

    def add_measurement(self, measurement: Measurement) -> None:
        """Enter what was measured at one power limit, soon."""
        self._measurements.put(measurement)

    def finish(self, result: TrialResult, *, restored: bool) -> None:
        """Enter the result, now."""
        self._measurements.put(None)
        self._thread.join(_CLOSE_S)
        try:
            self._store.finish(self._key, self._trial, result, restored=restored)
        except Exception as error:
            self._warn(error)

    def _work(self) -> None:
        while True:
            try:
                measurement = self._measurements.get(timeout=self._lease_s / 3.0)
            except queue.Empty:
                self._renew()
                continue
            if measurement is None:
                return
            self._enter(measurement)

    def _renew(self) -> None:
        try:
            self._store.renew(self._key, self._trial.number, self._lease_s)
        except Exception as error:
            self._warn(error)

    def _enter(self, measurement: Measurement) -> None:
        try:
            self._store.add_measurement(self._key, self._trial.batch_size, measurement)
        except Exception as error:
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("%s; training goes on, this run may be missing from the log", error)
