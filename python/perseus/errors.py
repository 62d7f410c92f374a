"""Every exception that Perseus raises, in one tree.

Each message says what was found, the rule that it breaks, and the remedy.

``PerseusError``
 ├── ``ProfileError``          a profile that cannot be read or used
 ├── ``DagError``              operations, orders or edges that make no pipeline
 │    └── ``ScheduleError``    a schedule name or its sizes
 ├── ``SolveError``            the solver could not finish
 ├── ``InfeasibleTimeError``   an iteration time below the shortest possible
 ├── ``PlanError``             a plan, or a plan file, that cannot be used
 ├── ``MissingExtraError``     an optional dependency is not installed
 ├── ``DeviceError``           a GPU, its driver or its settings: `perseus.device.errors`
 └── ``RecurringError``        a recurring job, its log or its traces: `perseus.recurring.errors`
"""

from __future__ import annotations


class PerseusError(Exception):
    """Base class of all errors raised by Perseus."""


class ProfileError(PerseusError, ValueError):
    """A profile cannot be read, or its measurements break a rule."""


class DagError(PerseusError, ValueError):
    """Operations, orders or edges do not form a valid pipeline."""


class ScheduleError(DagError):
    """A pipeline schedule's name is unknown or its sizes do not fit it."""


class SolveError(PerseusError, RuntimeError):
    """The solver could not finish; the message gives its status."""


class InfeasibleTimeError(PerseusError, ValueError):
    """The requested iteration time is below the shortest possible one.

    Attributes
    ----------
    min_time_s:
        The shortest iteration time of the pipeline, in seconds.
    """

    def __init__(self, message: str, min_time_s: float) -> None:
        super().__init__(message)
        self.min_time_s = min_time_s

    def __reduce__(self) -> tuple[type[InfeasibleTimeError], tuple[str, float]]:
        return type(self), (str(self), self.min_time_s)


class PlanError(PerseusError, ValueError):
    """A plan or a plan file cannot be used."""


class MissingExtraError(PerseusError, ImportError):
    """An optional dependency is missing; the message gives the install command."""
