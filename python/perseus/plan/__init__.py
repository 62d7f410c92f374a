"""Frequency plans: one profiled knob for each operation, what that costs, and how far from optimal it can be."""

from __future__ import annotations

from perseus.plan.frequency_plan import FrequencyPlan, PlannedOperation
from perseus.plan.making import make_plan, max_clock_plan
from perseus.plan.series import PlanSeries

__all__ = ["FrequencyPlan", "PlanSeries", "PlannedOperation", "make_plan", "max_clock_plan"]
