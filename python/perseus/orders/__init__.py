"""Orders: what each rank of a pipeline runs, and in which sequence; pure functions of the sizes.

One module per family of schedules (`gpipe`, `one_f_one_b`), each naming its source; `registry` maps names
to them; `dependencies` derives the data dependencies of any set of operations, whatever the schedule.
"""

from perseus.orders.dependencies import data_edges, implied_by_program_order, program_edges
from perseus.orders.kinds import KINDS, LETTERS, kind_name, ordered_kinds
from perseus.orders.registry import SCHEDULES, find_schedule
from perseus.orders.schedule import MAX_OPERATIONS, Schedule, ScheduleSizes
from perseus.orders.table import (
    MAX_MICROBATCH,
    MAX_STAGE,
    NO_MICROBATCH,
    OperationLookup,
    OperationTable,
    RankOrder,
)

__all__ = [
    "KINDS",
    "LETTERS",
    "MAX_MICROBATCH",
    "MAX_OPERATIONS",
    "MAX_STAGE",
    "NO_MICROBATCH",
    "SCHEDULES",
    "OperationLookup",
    "OperationTable",
    "RankOrder",
    "Schedule",
    "ScheduleSizes",
    "data_edges",
    "find_schedule",
    "implied_by_program_order",
    "kind_name",
    "ordered_kinds",
    "program_edges",
]
