from collections.abc import Callable
from enum import Enum

from numpy import float64, int32, int64
from numpy.typing import NDArray

class MaxFlowMethod(Enum):
    push_relabel = ...
    augment = ...

class SolveStatus(Enum):
    complete = ...
    stopped = ...
    interrupted = ...
    cyclic = ...
    out_of_range = ...
    not_spliceable = ...
    certificate_failed = ...

class TradeoffSolution:
    status: SolveStatus
    times_s: NDArray[float64]
    energies_j: NDArray[float64]
    slopes_w: NDArray[float64]
    repeated_slots: NDArray[int32]
    time_quantum_exponent: int
    slope_unit_w: float
    flow_bits: int
    phases: int
    rounds: int
    certificates: int
    nodes: int
    arcs: int
    duration_changes: int
    memory_bytes: int
    def durations_s(self, index: int, share: float) -> NDArray[float64]: ...

def describe_status(status: SolveStatus) -> str: ...
def solve_tradeoff(
    curve_offsets: NDArray[int64],
    curve_times_s: NDArray[float64],
    curve_energies_j: NDArray[float64],
    curve_of: NDArray[int32],
    fixed_time_s: NDArray[float64],
    predecessor: NDArray[int32],
    successor: NDArray[int32],
    latency_s: NDArray[float64],
    *,
    max_flow: MaxFlowMethod,
    certify: bool,
    progress: Callable[[int, float, float, float], object] | None,
    slot: NDArray[int32] = ...,
    place: NDArray[int32] = ...,
    region: NDArray[int32] = ...,
    num_regions: int = 0,
    repeats: int = 0,
    stop_at_s: float = 0.0,
) -> TradeoffSolution: ...

class RoundingStatus(Enum):
    complete = ...
    deadline_too_short = ...
    cyclic = ...
    invalid = ...

class SplicedPart(Enum):
    beginning = ...
    end = ...

class RoundedPlan:
    status: RoundingStatus
    choices: NDArray[int32]
    start_times_s: NDArray[float64]
    makespan_s: float
    rounded_energy_j: float
    reclaimed_energy_j: float
    energy_j: float
    exchanges: int

class RoundingOptions:
    def __init__(self, *, carry: bool, reclaim_effort: int, exchange_effort: int, chain_effort: int) -> None: ...

class PlanSpace:
    status: RoundingStatus
    def __init__(
        self,
        menu_offsets: NDArray[int64],
        choice_times_s: NDArray[float64],
        choice_energies_j: NDArray[float64],
        menu_of: NDArray[int32],
        predecessor: NDArray[int32],
        successor: NDArray[int32],
        latency_s: NDArray[float64],
    ) -> None: ...
    def round(self, planned_s: NDArray[float64], deadline_s: float, options: RoundingOptions) -> RoundedPlan: ...
    def splice(
        self,
        base: NDArray[int32],
        other: NDArray[int32],
        part: SplicedPart,
        deadline_s: float,
        options: RoundingOptions,
    ) -> RoundedPlan: ...
    def improve(self, choices: NDArray[int32], deadline_s: float, options: RoundingOptions) -> RoundedPlan: ...
