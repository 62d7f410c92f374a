"""Perseus: the exact time-energy frontier of a training pipeline, and the GPU clocks that reach it.

>>> import perseus
>>> profiles = perseus.read_profiles(perseus.example_profile_path(), blocking_power_w=75.0)
>>> dag = perseus.PipelineDag.from_schedule("1f1b", num_stages=4, num_microbatches=8)
>>> frontier = perseus.solve_frontier(dag, profiles)
>>> plan = frontier.plan_at(frontier.min_time_s)

Names are loaded on first use, so that importing a part costs only that part.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# name -> module that defines it; the public surface, held by tests/unit/test_public_api.py
_EXPORTS = {
    "Curve": "curves",
    "DagError": "errors",
    "FrequencyPlan": "plan",
    "Frontier": "frontier",
    "InfeasibleTimeError": "errors",
    "MissingExtraError": "errors",
    "Operation": "dag",
    "OperationProfile": "profiles",
    "Optimum": "solve",
    "PerseusError": "errors",
    "PipelineDag": "dag",
    "PlanError": "errors",
    "PlanSeries": "plan",
    "ProfileError": "errors",
    "Profiles": "profiles",
    "ScheduleError": "errors",
    "SolveError": "errors",
    "Simulation": "simulation",
    "example_profile_path": "profiles",
    "max_clock_plan": "plan",
    "read_profiles": "profiles",
    "simulate": "simulation",
    "solve_at": "solve",
    "solve_frontier": "solve",
}

# parts with a public surface of their own, loaded as `perseus.NAME` on first use
_PARTS = ("baselines", "device", "recurring")

if TYPE_CHECKING:
    from perseus import baselines as baselines
    from perseus import device as device
    from perseus import recurring as recurring
    from perseus.curves import Curve as Curve
    from perseus.dag import Operation as Operation
    from perseus.dag import PipelineDag as PipelineDag
    from perseus.errors import DagError as DagError
    from perseus.errors import InfeasibleTimeError as InfeasibleTimeError
    from perseus.errors import MissingExtraError as MissingExtraError
    from perseus.errors import PerseusError as PerseusError
    from perseus.errors import PlanError as PlanError
    from perseus.errors import ProfileError as ProfileError
    from perseus.errors import ScheduleError as ScheduleError
    from perseus.errors import SolveError as SolveError
    from perseus.frontier import Frontier as Frontier
    from perseus.plan import FrequencyPlan as FrequencyPlan
    from perseus.plan import PlanSeries as PlanSeries
    from perseus.plan import max_clock_plan as max_clock_plan
    from perseus.profiles import OperationProfile as OperationProfile
    from perseus.profiles import Profiles as Profiles
    from perseus.profiles import example_profile_path as example_profile_path
    from perseus.profiles import read_profiles as read_profiles
    from perseus.simulation import Simulation as Simulation
    from perseus.simulation import simulate as simulate
    from perseus.solve import Optimum as Optimum
    from perseus.solve import solve_at as solve_at
    from perseus.solve import solve_frontier as solve_frontier

__all__ = ["__version__", *sorted(_EXPORTS)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    """Load a public name from its module on first use (PEP 562)."""
    if name in _PARTS:
        return importlib.import_module(f"perseus.{name}")
    if name not in _EXPORTS:
        raise AttributeError(f"module 'perseus' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"perseus.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS, *_PARTS})
