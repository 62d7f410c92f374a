"""Energy of a pipeline until a time: what the operations use, and what the GPUs draw while they wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perseus.errors import ProfileError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perseus.dag import PipelineDag
    from perseus.profiles import Profiles


def rank_powers_w(dag: PipelineDag, profiles: Profiles) -> NDArray[np.float64]:
    """Blocking power of each rank's GPU in W, shape (num_ranks,).

    Raises
    ------
    ProfileError
        A stage has no blocking power, or a rank holds stages that differ in it.
    """
    powers_w = np.empty(dag.num_ranks)
    for rank in range(dag.num_ranks):
        stages = dag.stages_of_rank(rank)
        powers_w[rank] = _stage_power_w(profiles, stages[0])
        for stage in stages[1:]:
            power_w = _stage_power_w(profiles, stage)
            if power_w != powers_w[rank]:
                raise ProfileError(
                    f"rank {rank} holds stages of different blocking power: {powers_w[rank]:g} W for stage "
                    f"{stages[0]}, {power_w:g} W for stage {stage}; the stages of one rank run on one GPU: give them "
                    "the same blocking power"
                )
    return powers_w


def _stage_power_w(profiles: Profiles, stage: int) -> float:
    if stage not in profiles.blocking_power_w:
        known = ", ".join(map(str, sorted(profiles.blocking_power_w)))
        raise ProfileError(
            f"stage {stage} of the pipeline has no blocking power; the profile gives it for the stages {known}: "
            "add it to blocking_power_w"
        )
    return profiles.blocking_power_w[stage]


def energy_until_j(
    dag: PipelineDag,
    durations_s: NDArray[np.float64],
    energies_j: NDArray[np.float64],
    blocking_power_w: NDArray[np.float64],
    until_s: float,
) -> float:
    """Energy of the whole pipeline until a time, in J: all operations, and blocking for the rest of each rank's time.

    Parameters
    ----------
    durations_s, energies_j:
        Of each operation, shape (num_operations,).
    blocking_power_w:
        Of each rank, shape (num_ranks,).
    until_s:
        When the iteration is over for every rank, in seconds.
    """
    busy_s = np.bincount(dag.rank, weights=durations_s, minlength=dag.num_ranks)
    return float(energies_j.sum() + blocking_power_w @ (until_s - busy_s))
