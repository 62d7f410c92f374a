"""The solution file that Zeus's pipeline frequency server reads (its ``PointSolution`` scheduler).

A Python file named ``*.py`` that is one expression: a list with one list for each rank, of pairs of the instruction's
name and its clock in MHz, in program order. Comments follow it. Operations of fixed time have no clock to set, so they
are left out: do not announce them to Zeus's client.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perseus.errors import PlanError
from perseus.plan.files import replace_text

if TYPE_CHECKING:
    from perseus.plan.frequency_plan import FrequencyPlan


def write_zeus_solution(plan: FrequencyPlan, path: str | os.PathLike[str]) -> None:
    """Write the solution file of a plan; `FrequencyPlan.to_zeus` documents the errors."""
    if Path(path).suffix != ".py":
        raise PlanError(f"the path is {os.fspath(path)!r}; Zeus reads only names that end in .py: add it")
    ranks = _instructions_of_ranks(plan)
    lines = ["[", *(f"{instructions!r}," for instructions in ranks), "]"]
    lines += [f"# Iteration time: {plan.time_s!r} s", f"# Energy of the pipeline until then: {plan.energy_j!r} J"]
    replace_text(path, "\n".join(lines) + "\n")


def _instructions_of_ranks(plan: FrequencyPlan) -> list[list[tuple[str, int]]]:
    """Return for each rank the names and clocks of its operations, in program order."""
    dag, frequencies = plan.dag, plan.frequencies_mhz
    wrong = np.flatnonzero(np.isfinite(frequencies) & (frequencies != np.rint(frequencies)))
    if wrong.size:
        raise PlanError(
            f"operation {wrong[0]} runs at {frequencies[wrong[0]]} MHz; Zeus sets whole numbers of MHz: profile those"
        )
    ranks: list[list[tuple[str, int]]] = [[] for _ in range(dag.num_ranks)]
    order = plan.program_order()
    order = order[np.isfinite(frequencies[order])]
    columns = (dag.rank[order], dag.kind_code[order], frequencies[order])
    for rank, code, frequency in zip(*(column.tolist() for column in columns), strict=True):
        ranks[rank].append((dag.kinds[code], int(frequency)))
    return ranks
