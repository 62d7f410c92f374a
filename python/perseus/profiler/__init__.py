"""Measuring how long operations take and how much energy they use at each clock.

Two forms. `sweep` runs operations, given as callables, at one clock after the other. `InTrainingProfiler` measures a
training that runs anyway: it sets one clock for an iteration, is told which operation ran when, and finds each kind's
energy by regression.

Both divide time at the changes of the energy counter, because only the energy between two of those belongs to a known
span.
"""

from perseus.profiler.in_training import InTrainingProfiler
from perseus.profiler.knobs import ClockKnob, PowerLimitKnob
from perseus.profiler.measured import MeasuredPoint, MeasuredProfile, merge_profiles
from perseus.profiler.sweep import Precision, SweepProgress, measure_blocking_power_w, sweep

__all__ = [
    "ClockKnob",
    "InTrainingProfiler",
    "MeasuredPoint",
    "MeasuredProfile",
    "PowerLimitKnob",
    "Precision",
    "SweepProgress",
    "measure_blocking_power_w",
    "merge_profiles",
    "sweep",
]
