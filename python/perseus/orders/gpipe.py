"""GPipe: every forward of the iteration, then every backward.

Source: Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism",
NeurIPS 2019. The paper draws the backwards from the last microbatch down; trainers (torch's
``ScheduleGPipe``) run them from the first one up, and so does this order. All M microbatches are in flight
at once on every stage.
"""

from __future__ import annotations

import numpy as np

from perseus.orders.schedule import Schedule, ScheduleSizes, ascending_order
from perseus.orders.table import RankOrder


def gpipe_orders(sizes: ScheduleSizes) -> list[RankOrder]:
    """Return each rank's order: F(0) ... F(M-1), B(0) ... B(M-1)."""
    is_forward = np.arange(2 * sizes.num_microbatches) < sizes.num_microbatches
    return [ascending_order(is_forward, stage) for stage in range(sizes.num_stages)]


GPIPE = Schedule(
    name="gpipe",
    source="GPipe (NeurIPS 2019), backwards in the order of torch's ScheduleGPipe",
    kinds=("forward", "backward"),
    rank_orders=gpipe_orders,
    num_operations=lambda sizes: 2 * sizes.num_stages * sizes.num_microbatches,
)
