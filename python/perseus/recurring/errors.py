"""What can be wrong with a recurring job, its store, its traces or the way it is used.

``RecurringError``
 ├── ``JobError``     settings of a job that contradict each other or the stored job
 ├── ``RunError``     a run used out of order, such as a report outside an epoch
 ├── ``StoreError``   a trial log that cannot be opened, read or written
 └── ``TraceError``   traces that are missing, or lack what a replay needs
"""

from __future__ import annotations

from perseus.errors import PerseusError


class RecurringError(PerseusError):
    """Base class of the errors of recurring jobs."""


class JobError(RecurringError, ValueError):
    """The settings of a job break a rule."""


class RunError(RecurringError, RuntimeError):
    """A run was used out of order."""


class StoreError(RecurringError, RuntimeError):
    """The trial log cannot be opened, read or written."""


class TraceError(RecurringError, ValueError):
    """The traces are missing or lack what a replay needs."""
