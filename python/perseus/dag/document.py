"""The JSON form of a pipeline: versioned, complete, checked when it is read."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perseus.dag.content import ArrayContent, Content, Edges, FixedCosts, ScheduleContent, checked_content
from perseus.dag.from_orders import checked_amount, checked_seconds
from perseus.errors import DagError
from perseus.orders.notation import NameIndex, OperationName, table_of_names
from perseus.orders.registry import find_schedule
from perseus.orders.table import MAX_MICROBATCH, MAX_STAGE, NO_MICROBATCH

FORMAT: Final = "perseus-pipeline-dag"
VERSION: Final = 1

_HEAD_KEYS: Final = frozenset({"format", "version"})
_SCHEDULE_KEYS: Final = _HEAD_KEYS | {"schedule", "num_stages", "num_microbatches", "num_chunks"}
_ARRAY_KEYS: Final = _HEAD_KEYS | {
    "kinds",
    "kind_code",
    "stage",
    "microbatch",
    "rank",
    "predecessor",
    "successor",
    "latency_s",
    "fixed",
    "labels",
}


def write_content(content: Content) -> dict[str, object]:
    """Return the pipeline as values that `json` can write, without NaN."""
    head: dict[str, object] = {"format": FORMAT, "version": VERSION}
    if isinstance(content, ScheduleContent):
        sizes = content.sizes
        return {
            **head,
            "schedule": content.schedule.name,
            "num_stages": sizes.num_stages,
            "num_microbatches": sizes.num_microbatches,
            "num_chunks": sizes.num_chunks,
        }
    table, (pairs, latency_s), fixed = content.table, content.edges, content.fixed
    fixed_rows = np.flatnonzero(~np.isnan(fixed.time_s))
    return {
        **head,
        "kinds": list(table.kinds),
        "kind_code": table.kind_code.tolist(),
        "stage": table.stage.tolist(),
        "microbatch": table.microbatch.tolist(),
        "rank": table.rank.tolist(),
        "predecessor": pairs[:, 0].tolist(),
        "successor": pairs[:, 1].tolist(),
        # Most pipelines have none: one number then stands for all edges.
        "latency_s": latency_s.tolist() if latency_s.any() else 0.0,
        "fixed": {
            "operation": fixed_rows.tolist(),
            "time_s": fixed.time_s[fixed_rows].tolist(),
            "energy_j": fixed.energy_j[fixed_rows].tolist(),
        },
        "labels": _written_labels(content.labels),
    }


def read_content(data: object) -> Content:
    """Return the pipeline of `PipelineDag.from_dict`, which documents the errors."""
    if not isinstance(data, Mapping):
        raise DagError(f"the pipeline is of type {type(data).__name__}; it must be a mapping made by to_dict()")
    if data.get("format") != FORMAT:
        raise DagError(f"the format is {data.get('format')!r}; a pipeline's is {FORMAT!r}: is it another file?")
    if type(data.get("version")) is not int or data["version"] != VERSION:
        raise DagError(
            f"the version is {data.get('version')!r}, this release reads {VERSION}; use the release that wrote it"
        )
    if "schedule" in data:
        return _read_schedule(data)
    return _read_arrays(data)


def _check_keys(data: Mapping[str, object], keys: frozenset[str]) -> None:
    for problem, names in (("lacks", keys - data.keys()), ("has the unknown", data.keys() - keys)):
        if names:
            listed = ", ".join(sorted(map(str, names)))
            raise DagError(f"the pipeline {problem} {listed}; write it anew with to_dict()")


def _read_schedule(data: Mapping[str, object]) -> ScheduleContent:
    _check_keys(data, _SCHEDULE_KEYS)
    schedule = find_schedule(data["schedule"])  # type: ignore[arg-type]
    sizes: tuple[Any, Any, Any] = data["num_stages"], data["num_microbatches"], data["num_chunks"]
    return ScheduleContent(schedule, schedule.sizes(*sizes))


def _read_arrays(data: Mapping[str, object]) -> ArrayContent:
    _check_keys(data, _ARRAY_KEYS)
    kinds = _list(data, "kinds")
    if not kinds or not all(isinstance(kind, str) and kind for kind in kinds):
        raise DagError(f"kinds is {kinds!r}; it must hold at least one name")
    codes = _integers(data, "kind_code", 0, len(kinds) - 1)
    size = codes.size
    if not size:
        raise DagError("kind_code is empty; a pipeline has at least one operation")
    stages = _integers(data, "stage", 0, MAX_STAGE, size)
    microbatches = _integers(data, "microbatch", NO_MICROBATCH, MAX_MICROBATCH, size)
    ranks = _integers(data, "rank", 0, size - 1, size)
    if np.unique(ranks).size != ranks.max() + 1:
        raise DagError(f"rank lacks some of 0 to {ranks.max()}; ranks are numbered from 0 without gaps")
    names = [
        OperationName(str(kinds[code]), stage, microbatch)
        for code, stage, microbatch in zip(codes.tolist(), stages.tolist(), microbatches.tolist(), strict=True)
    ]
    NameIndex(names, lambda row: f"operation {row}")
    return checked_content(
        table_of_names(names, ranks.tolist()),
        _read_edges(data, size),
        _read_fixed(data, size),
        labels=_read_labels(data, size),
    )


def _read_edges(data: Mapping[str, object], size: int) -> Edges:
    predecessors = _integers(data, "predecessor", 0, size - 1)
    successors = _integers(data, "successor", 0, size - 1, predecessors.size)
    if isinstance(data["latency_s"], list):
        latencies = [checked_seconds(f"latency_s[{i}]", value) for i, value in enumerate(data["latency_s"])]
    else:
        latencies = [checked_seconds("latency_s", data["latency_s"])] * predecessors.size
    _check_length("latency_s", len(latencies), predecessors.size)
    return Edges(np.column_stack((predecessors, successors)), np.array(latencies, dtype=np.float64))


def _read_fixed(data: Mapping[str, object], size: int) -> FixedCosts:
    part = data["fixed"]
    if not isinstance(part, Mapping):
        raise DagError(f"fixed is {part!r}; it must be a mapping of operation, time_s and energy_j")
    _check_keys(part, frozenset({"operation", "time_s", "energy_j"}))
    rows = _integers(part, "operation", 0, size - 1)
    times, energies = _list(part, "time_s"), _list(part, "energy_j")
    _check_length("fixed time_s", len(times), rows.size)
    _check_length("fixed energy_j", len(energies), rows.size)
    fixed = FixedCosts.none(size)
    fixed.time_s[rows] = [checked_seconds("a fixed time_s", value) for value in times]
    fixed.energy_j[rows] = [
        checked_amount("a fixed energy_j", value, "a finite number of joules, at least 0") for value in energies
    ]
    return fixed


def _list(data: Mapping[str, object], key: str) -> Sequence[object]:
    values = data[key]
    if not isinstance(values, list):
        raise DagError(f"{key} is of type {type(values).__name__}; it must be a list")
    return values


def _integers(
    data: Mapping[str, object], key: str, low: int, high: int, length: int | None = None
) -> NDArray[np.int32]:
    values = _list(data, key)
    if length is not None:
        _check_length(key, len(values), length)
    for place, value in enumerate(values):
        if type(value) is not int or not low <= value <= high:
            raise DagError(f"{key}[{place}] is {value!r}; it must be an integer from {low} to {high}")
    return np.array(values, dtype=np.int32)


def _check_length(key: str, found: int, expected: int) -> None:
    if found != expected:
        raise DagError(f"{key} has {found} values where {expected} belong; write the pipeline anew with to_dict()")


# -- labels: JSON has no tuples, so a tuple is written as a list and read back as a tuple ------------------


def _written_labels(labels: tuple[Hashable, ...] | None) -> list[object] | None:
    if labels is None or not all(map(_is_writable, labels)):
        return None
    return [_written_label(label) for label in labels]


def _is_writable(label: object) -> bool:
    if type(label) is tuple:
        return all(map(_is_writable, label))
    return label is None or type(label) in (str, int, bool) or (type(label) is float and np.isfinite(label))


def _written_label(label: object) -> object:
    return [_written_label(member) for member in label] if isinstance(label, tuple) else label


def _read_labels(data: Mapping[str, object], size: int) -> tuple[Hashable, ...] | None:
    if data["labels"] is None:
        return None
    labels = _list(data, "labels")
    _check_length("labels", len(labels), size)
    read = tuple(_read_label(label) for label in labels)
    if len(set(read)) < size:
        raise DagError("some labels occur twice; each operation has its own label, or labels is null")
    return read


def _read_label(label: object) -> Hashable:
    if isinstance(label, list):
        return tuple(_read_label(member) for member in label)
    if not isinstance(label, Hashable):
        raise DagError(f"a label is {label!r}; labels are text, numbers, null, or lists of them")
    return label
