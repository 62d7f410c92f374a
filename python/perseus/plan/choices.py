"""What each operation of a pipeline can choose from, flattened into arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perseus.dag import PipelineDag
    from perseus.profiles import Profiles


@dataclass(frozen=True, kw_only=True, eq=False)
class ChoiceTable:
    """The choices of all menus; operations that can choose the same share a menu.

    Attributes
    ----------
    offsets:
        int64, (menus + 1,): menu m holds the entries offsets[m] to offsets[m + 1].
    menu_of:
        int32, (num_operations,): each operation's menu.
    times_s, energies_j, effective_energies_j:
        Per entry; effective is energy minus blocking power times time.
    knobs:
        Per entry: the knobs' values; NaN or "" for operations of fixed time.
    """

    offsets: NDArray[np.int64]
    menu_of: NDArray[np.int32]
    times_s: NDArray[np.float64]
    energies_j: NDArray[np.float64]
    effective_energies_j: NDArray[np.float64]
    knobs: dict[str, NDArray[Any]]

    def entries(self, choices: NDArray[np.int32] | int) -> NDArray[np.int64]:
        """Return the entry of each operation, given its index within its menu."""
        entries: NDArray[np.int64] = self.offsets[self.menu_of] + choices
        return entries


RowsOf = Callable[[int, str], "NDArray[np.intp]"]


def collect_choices(
    dag: PipelineDag, profiles: Profiles, blocking_power_w: NDArray[np.float64], rows_of: RowsOf
) -> ChoiceTable:
    """Return the choices of the operations of a pipeline.

    Parameters
    ----------
    blocking_power_w:
        Of each rank, shape (num_ranks,).
    rows_of:
        Gives for a stage and kind the rows of its profile that its operations choose from, by time.

    Raises
    ------
    ProfileError
        The profile lacks a stage and kind of the pipeline.
    """
    fixed = ~np.isnan(dag.fixed_time_s)
    menu_of = np.empty(dag.num_operations, dtype=np.int32)
    keys, inverse = np.unique(_stage_and_kind(dag)[~fixed], return_inverse=True)
    menu_of[~fixed] = inverse.ravel()
    fixed_menus, fixed_inverse = _fixed_menus(dag, fixed, blocking_power_w)
    menu_of[fixed] = len(keys) + fixed_inverse

    stages_and_kinds = [(int(key // len(dag.kinds)), dag.kinds[int(key % len(dag.kinds))]) for key in keys]
    rows = [rows_of(stage, kind) for stage, kind in stages_and_kinds]
    parts = [profiles[key] for key in stages_and_kinds]
    powers_w = np.repeat([profiles.blocking_power_w[stage] for stage, _ in stages_and_kinds], [len(r) for r in rows])
    times_s = np.concatenate([*(p.times_s[r] for p, r in zip(parts, rows, strict=True)), fixed_menus[0]])
    energies_j = np.concatenate([*(p.energies_j[r] for p, r in zip(parts, rows, strict=True)), fixed_menus[1]])
    num_fixed = fixed_menus.shape[1]
    return ChoiceTable(
        offsets=np.concatenate(([0], np.cumsum([*(len(r) for r in rows), *[1] * num_fixed]))).astype(np.int64),
        menu_of=menu_of,
        times_s=times_s,
        energies_j=energies_j,
        effective_energies_j=energies_j - np.concatenate((powers_w, fixed_menus[2])) * times_s,
        knobs={
            name: _with_blanks([p.knobs[name][r] for p, r in zip(parts, rows, strict=True)], num_fixed)
            for name in profiles.knob_names
        },
    )


def _stage_and_kind(dag: PipelineDag) -> NDArray[np.int64]:
    """Return one number for each operation's stage and kind."""
    key: NDArray[np.int64] = dag.stage.astype(np.int64) * len(dag.kinds) + dag.kind_code
    return key


def _fixed_menus(
    dag: PipelineDag, fixed: NDArray[np.bool_], blocking_power_w: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the distinct (time, energy, blocking power) of fixed operations as columns, and each one's column."""
    costs = np.stack((dag.fixed_time_s[fixed], dag.fixed_energy_j[fixed], blocking_power_w[dag.rank[fixed]]))
    distinct, inverse = np.unique(costs, axis=1, return_inverse=True)
    return distinct, inverse.ravel()


def _with_blanks(parts: list[NDArray[Any]], num_blanks: int) -> NDArray[Any]:
    """Join the values of a knob and add blanks: NaN to numbers, "" to text."""
    if all(part.dtype.kind == "f" for part in parts):
        return np.concatenate([*parts, np.full(num_blanks, np.nan)])
    return np.concatenate([*(part.astype(object) for part in parts), np.full(num_blanks, "", dtype=object)])
