"""Setting clocks from a training process, without waiting for the driver and without leaving them locked.

>>> from perseus.actuator import Actuator
>>> from perseus.device import open_gpus
>>> with Actuator(open_gpus()[0]) as actuator:                             # doctest: +SKIP
...     actuator.request(1005)

``Actuator.request`` hands the clock to a native thread and returns. A guardian process restores the original clocks and
power limit when the block ends, and when the process ends in any other way, `SIGKILL` included.
"""

from perseus.actuator.control import Actuator, ActuatorStatistics, ClockRecord
from perseus.actuator.guardian import guarded
from perseus.actuator.records import LockRecord, read_lock_records, reset_stale_locks, state_folder

__all__ = [
    "Actuator",
    "ActuatorStatistics",
    "ClockRecord",
    "LockRecord",
    "guarded",
    "read_lock_records",
    "reset_stale_locks",
    "state_folder",
]
