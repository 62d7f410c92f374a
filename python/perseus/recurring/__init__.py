"""Jobs that run again and again find their batch size and power limit while they run (Zeus, NSDI'23).

>>> from perseus.recurring import Job
>>> job = Job("nightly", batch_sizes=[32, 64, 128], default=64, target=0.9)  # doctest: +SKIP
>>> with job.run() as run:  # doctest: +SKIP
...     loader = make_loader(run.batch_size)
...     for epoch in run.epochs():
...         for batch in run.steps(loader):
...             train(batch)
...         run.report(accuracy())
>>> run.result.reached  # doctest: +SKIP
True
"""

from perseus.recurring.callbacks import lightning_callback, transformers_callback
from perseus.recurring.errors import JobError, RecurringError, RunError, StoreError, TraceError
from perseus.recurring.global_power_limit import GlobalPowerLimit
from perseus.recurring.job import Job
from perseus.recurring.power_limits import SweepTiming
from perseus.recurring.run import Run, RunResult

__all__ = [
    "GlobalPowerLimit",
    "Job",
    "JobError",
    "RecurringError",
    "Run",
    "RunError",
    "RunResult",
    "StoreError",
    "SweepTiming",
    "TraceError",
    "lightning_callback",
    "transformers_callback",
]
