"""The exact iteration time-energy frontier of a pipeline.

The only module that crosses into the native core; one crossing solves the whole frontier.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from perseus import _native
from perseus.errors import SolveError
from perseus.frontier import Frontier, finite_time_s
from perseus.steady_state import SteadyState, find_steady_state

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perseus.dag import PipelineDag
    from perseus.profiles import Profiles

MaxFlow = Literal["push_relabel", "augment"]

# Splicing is tried from a small pipeline, then from one of twice its size, before the whole one is solved.
_SPLICE_ATTEMPTS = (1, 2)


class SolveProgress(NamedTuple):
    """How far a solve has come; passed to the ``progress`` callback a few times a second."""

    phases: int
    """Breakpoints found so far."""
    time_s: float
    """Iteration time reached, falling from ``longest_s`` to ``shortest_s``."""
    longest_s: float
    shortest_s: float

    @property
    def fraction(self) -> float:
        """Share of the iteration-time range that is solved, 0 to 1."""
        span_s = self.longest_s - self.shortest_s
        return 1.0 if span_s <= 0.0 else (self.longest_s - self.time_s) / span_s


class _Curves(NamedTuple):
    """The distinct curves of a DAG, flattened, and each operation's curve."""

    offsets: NDArray[np.int64]
    times_s: NDArray[np.float64]
    energies_j: NDArray[np.float64]
    curve_of: NDArray[np.int32]


def _collect_curves(dag: PipelineDag, profiles: Profiles) -> _Curves:
    measured = np.isnan(dag.fixed_time_s)
    num_kinds = max(len(dag.kinds), 1)
    key = dag.stage.astype(np.int64) * num_kinds + dag.kind_code
    distinct, inverse = np.unique(key[measured], return_inverse=True)
    curve_of = np.full(dag.num_operations, -1, dtype=np.int32)
    curve_of[measured] = inverse.ravel()
    curves = [profiles.curve(int(k // num_kinds), dag.kinds[int(k % num_kinds)]) for k in distinct]
    offsets = np.zeros(len(curves) + 1, dtype=np.int64)
    np.cumsum([len(curve.times_s) for curve in curves], out=offsets[1:])
    empty = np.empty(0)
    return _Curves(
        offsets,
        np.concatenate([empty, *(curve.times_s for curve in curves)]),
        np.concatenate([empty, *(curve.effective_energies_j for curve in curves)]),
        curve_of,
    )


def _max_flow_method(name: str) -> _native.MaxFlowMethod:
    methods = _native.MaxFlowMethod.__members__
    if name not in methods:
        raise SolveError(f"max_flow={name!r} is unknown; choose one of {', '.join(map(repr, methods))}.")
    return methods[name]


class _Settings(NamedTuple):
    """How to solve."""

    max_flow: _native.MaxFlowMethod
    certify: bool
    stop_at_s: float
    progress: Callable[[int, float, float, float], object] | None


def _solve(
    dag: PipelineDag, profiles: Profiles, settings: _Settings, steady: SteadyState | None
) -> _native.TradeoffSolution:
    """Cross into the native core once, for ``dag`` itself or with the slots of its steady state repeated."""
    curves = _collect_curves(dag, profiles)
    none = np.empty(0, dtype=np.int32)
    return _native.solve_tradeoff(
        curves.offsets,
        curves.times_s,
        curves.energies_j,
        curves.curve_of,
        np.nan_to_num(dag.fixed_time_s),
        np.ascontiguousarray(dag.edges[:, 0]),
        np.ascontiguousarray(dag.edges[:, 1]),
        dag.latency_s,
        max_flow=settings.max_flow,
        certify=settings.certify,
        progress=settings.progress,
        slot=none if steady is None else steady.slot,
        place=none if steady is None else steady.place,
        region=none if steady is None else steady.region,
        num_regions=0 if steady is None else steady.num_regions,
        repeats=0 if steady is None else steady.repeats,
        stop_at_s=settings.stop_at_s,
    )


def _solve_spliced(
    dag: PipelineDag, profiles: Profiles, settings: _Settings
) -> tuple[_native.TradeoffSolution, SteadyState] | None:
    """Solve a small pipeline and repeat its steady state; None where the schedule or the profile does not allow it."""
    for attempt in _SPLICE_ATTEMPTS:
        steady = find_steady_state(dag, attempt)
        if steady is None:
            return None
        solution = _solve(steady.small, profiles, settings, steady)
        if solution.status != _native.SolveStatus.not_spliceable:
            return solution, steady
    return None


def _solve_any(
    dag: PipelineDag, profiles: Profiles, settings: _Settings, splice: bool
) -> tuple[_native.TradeoffSolution, SteadyState | None]:
    """Solve spliced if possible, else whole; raises `SolveError` if the solver could not finish."""
    spliced = _solve_spliced(dag, profiles, settings) if splice else None
    solution, steady = spliced or (_solve(dag, profiles, settings, None), None)
    if solution.status not in (_native.SolveStatus.complete, _native.SolveStatus.stopped):
        reason = _native.describe_status(solution.status)
        raise SolveError(f"The frontier could not be solved: {reason}.")
    return solution, steady


def _statistics(solution: _native.TradeoffSolution, steady: SteadyState | None) -> dict[str, Any]:
    return {
        "phases": solution.phases,
        "rounds": solution.rounds,
        "certified": solution.certificates == len(solution.times_s),
        "spliced_from_microbatches": None if steady is None else steady.small.num_microbatches,
        "nodes": solution.nodes,
        "arcs": solution.arcs,
        "time_quantum_s": 10.0**-solution.time_quantum_exponent,
        "slope_unit_w": solution.slope_unit_w,
        "flow_bits": solution.flow_bits,
        "duration_changes": solution.duration_changes,
        "memory_bytes": solution.memory_bytes,
    }


def solve_frontier(
    dag: PipelineDag,
    profiles: Profiles,
    *,
    max_flow: MaxFlow = "augment",
    certify: bool = True,
    splice: bool = True,
    progress: Callable[[SolveProgress], object] | None = None,
) -> Frontier:
    """Compute every breakpoint of the least energy E(T) over all iteration times T.

    Parameters
    ----------
    dag:
        Operations and their dependencies.
    profiles:
        Measured time and energy of each (stage, kind) in ``dag``, and the blocking power.
    max_flow:
        How the minimum cut of each step is found: ``"augment"`` (level-graph augmentation) or ``"push_relabel"``.
        Both give the same frontier.
    certify:
        Prove each breakpoint optimal while solving (primal feasibility, complementary slackness, conservation and
        energy, in exact integers).
    splice:
        Solve a pipeline made from a schedule with many microbatches from a small one whose steady state repeats,
        where that is exact, and the whole one where it is not. The result is the same.
    progress:
        Called a few times a second with a `SolveProgress`. Exceptions from it, and Ctrl-C, stop the solve.

    Returns
    -------
    Frontier
        Immutable; answers every iteration time without solving again.

    Raises
    ------
    ProfileError
        A (stage, kind) of the DAG is not in ``profiles``, or a rank's stages differ in blocking power.
    SolveError
        The magnitudes do not fit the solver's integers, or a certificate failed (a defect: please report it).

    Notes
    -----
    Iterative minimum cut on the critical DAG (Phillips & Dessouky 1977; Chung et al., SOSP'24, section 4), with the
    capacities taken from the piecewise-linear curves, so that each step reaches the next breakpoint exactly. See
    ``docs/method.md``.
    """
    report = None if progress is None else lambda *state: progress(SolveProgress(*state))
    settings = _Settings(_max_flow_method(max_flow), certify, 0.0, report)
    started_s = time.perf_counter()
    solution, steady = _solve_any(dag, profiles, settings, splice)
    statistics = _statistics(solution, steady) | {
        "max_flow": max_flow,
        "solve_time_s": time.perf_counter() - started_s,
    }
    return Frontier(dag=dag, profiles=profiles, solution=solution, steady=steady, statistics=statistics)


@dataclass(frozen=True, kw_only=True, eq=False)
class Optimum:
    """The least energy of one iteration time.

    Attributes
    ----------
    time_s:
        The iteration time asked for, seconds.
    energy_j:
        Least energy of the whole pipeline until then, joules.
    durations_s:
        (num_operations,) optimal durations, seconds, in ``dag.operations`` order.
    """

    time_s: float
    energy_j: float
    durations_s: NDArray[np.float64]


def solve_at(dag: PipelineDag, profiles: Profiles, time_s: float, *, certify: bool = True) -> Optimum:
    """Compute the least energy of one iteration time, without the rest of the frontier.

    The frontier is walked from its long end to ``time_s`` only. For several times, `solve_frontier` is the faster.

    Parameters
    ----------
    dag, profiles, certify:
        As for `solve_frontier`.
    time_s:
        Iteration time, seconds.

    Raises
    ------
    InfeasibleTimeError
        ``time_s`` is below the shortest iteration time, which the error gives.
    PlanError
        ``time_s`` is not a finite number.
    """
    time_s = finite_time_s(time_s, "time_s")
    settings = _Settings(_max_flow_method("augment"), certify, time_s, None)
    solution, steady = _solve_any(dag, profiles, settings, splice=True)
    walked = Frontier(dag=dag, profiles=profiles, solution=solution, steady=steady, statistics={})
    return Optimum(
        time_s=time_s,
        energy_j=walked.energy_at(time_s),
        durations_s=walked.durations_at(time_s),
    )
