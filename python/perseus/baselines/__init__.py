"""What others do, as plans: highest clocks, one clock for all, one for each stage, EnvPipe, and Perseus as published.

All give a `FrequencyPlan` from the same profile and the same timetable, so their times and energies compare with those
of `Frontier.plan_at` directly. ``docs/plans.md`` says how each was read.
"""

from __future__ import annotations

from perseus.baselines.envpipe import envpipe
from perseus.baselines.fixed_step import fixed_step_perseus
from perseus.baselines.zeus import zeus_global, zeus_global_plans, zeus_per_stage, zeus_per_stage_plans
from perseus.plan import max_clock_plan

__all__ = [
    "envpipe",
    "fixed_step_perseus",
    "max_clock_plan",
    "zeus_global",
    "zeus_global_plans",
    "zeus_per_stage",
    "zeus_per_stage_plans",
]
