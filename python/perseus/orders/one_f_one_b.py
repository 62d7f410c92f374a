"""1F1B: after a short warm-up, one forward and one backward in turn.

Sources: PipeDream-Flush in Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021;
as run by Megatron-LM in Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters",
SC 2021. Stage s has at most min(M, S - s) microbatches in flight, whatever M is.
"""

from __future__ import annotations

import numpy as np

from perseus.orders.schedule import Schedule, ScheduleSizes, ascending_order
from perseus.orders.table import RankOrder


def one_f_one_b_orders(sizes: ScheduleSizes) -> list[RankOrder]:
    """Return each rank's order: w = min(M, S - s) forwards, then B, F in turn, then the last w backwards."""
    return [_order_of_stage(stage, sizes) for stage in range(sizes.num_stages)]


def _order_of_stage(stage: int, sizes: ScheduleSizes) -> RankOrder:
    length = 2 * sizes.num_microbatches
    warm_up = min(sizes.num_microbatches, sizes.num_stages - stage)
    is_forward = np.zeros(length, dtype=np.bool_)
    is_forward[:warm_up] = True
    is_forward[warm_up + 1 : length - warm_up : 2] = True
    return ascending_order(is_forward, stage)


ONE_F_ONE_B = Schedule(
    name="1f1b",
    source="PipeDream-Flush (ICML 2021), Megatron-LM (SC 2021)",
    kinds=("forward", "backward"),
    rank_orders=one_f_one_b_orders,
    num_operations=lambda sizes: 2 * sizes.num_stages * sizes.num_microbatches,
)
