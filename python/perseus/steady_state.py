"""The steady state of a pipeline schedule: what repeats when microbatches are added.

A schedule's orders grow by inserting blocks: with p more microbatches, each rank runs one block more in each of its
steady states (1F1B has one; GPipe has two, all forwards and then all backwards). Numbering the blocks of all ranks
along the dependencies gives *slots*; the solver may repeat a slot of a small pipeline instead of solving a large one
(``cpp/include/perseus/splice.hpp`` states when that is exact, and checks it).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from perseus.dag import PipelineDag

# The small pipeline has this many microbatches a stage, and some more for short pipelines, times the attempt: on
# measured profiles the number of breakpoints stops growing at 2 to 3.5 microbatches a stage.
_MICROBATCHES_PER_STAGE = 4
_MORE_MICROBATCHES = 8


class _Block(NamedTuple):
    """A rank's repeating block in one steady state."""

    start: int  # operation number of the first block's first operation
    length: int  # operations of one block
    blocks: int


@dataclass(frozen=True, kw_only=True, eq=False)
class SteadyState:
    """A small pipeline and how its slots repeat to make a large one.

    Attributes
    ----------
    small:
        The small pipeline, of the same schedule.
    repeats:
        How many more times a slot of each region occurs in the large pipeline.
    slot, place:
        int32, shape (small.num_operations,): each operation's slot, and its place in it (-1 outside the steady states).
    region:
        int32, shape (num_slots,): each slot's region, -1 where it does not repeat.
    """

    small: PipelineDag
    repeats: int
    slot: NDArray[np.int32]
    place: NDArray[np.int32]
    region: NDArray[np.int32]

    @property
    def num_regions(self) -> int:
        """Number of steady states, one after the other."""
        return int(self.region.max()) + 1

    def small_operation(self, slots: NDArray[np.int32]) -> NDArray[np.intp]:
        """Return, for each operation of the large pipeline, the operation of the small one whose duration it has.

        Parameters
        ----------
        slots:
            Shape (num_regions,): the slot of each region that is repeated.
        """
        operations = np.arange(self.small.num_operations)
        repeated = np.isin(self.slot, slots)
        # A rank's operations of one slot stand side by side: runs of repeated ones, inserted again behind each run.
        edges = np.flatnonzero(np.diff(np.concatenate([[False], repeated, [False]]).astype(np.int8)))
        pieces, done = [], 0
        for start, end in edges.reshape(-1, 2).tolist():
            for block in self._single_slots(start, end):
                pieces += [operations[done : block.stop], np.tile(operations[block], self.repeats)]
                done = block.stop
        return np.concatenate([*pieces, operations[done:]])

    def _single_slots(self, start: int, end: int) -> Iterator[slice]:
        """Split a run of operations where the rank or the slot changes."""
        key = np.stack([self.slot[start:end], self.small.rank[start:end]])
        changes = np.flatnonzero((key[:, 1:] != key[:, :-1]).any(axis=0)) + start + 1
        bounds = [start, *changes.tolist(), end]
        yield from (slice(a, b) for a, b in itertools.pairwise(bounds))


def find_steady_state(dag: PipelineDag, attempt: int = 1) -> SteadyState | None:
    """Return a small pipeline from which ``dag`` follows by repetition, or None.

    None if the DAG was not made from a schedule, is not much larger than the small one would be, or its orders do not
    grow by whole blocks.

    Parameters
    ----------
    attempt:
        The small pipeline is made this many times the usual size.
    """
    if dag.schedule is None or dag.num_stages is None or dag.num_microbatches is None:
        return None
    least = attempt * (_MICROBATCHES_PER_STAGE * dag.num_stages + _MORE_MICROBATCHES)
    for period in dict.fromkeys((1, dag.num_ranks)):
        size = least + (dag.num_microbatches - least) % period
        if dag.num_microbatches < 1.5 * size:
            return None
        small, larger = _of_size(dag, size), _of_size(dag, size + period)
        blocks = [
            _growing_blocks(small, larger, rank, period) for rank in range(dag.num_ranks)
        ]  # per rank, its steady states in order
        if not blocks[0] or any(len(b) != len(blocks[0]) for b in blocks):
            continue
        if sum(block.length for b in blocks for block in b) != larger.num_operations - small.num_operations:
            continue
        labels = _label_slots(small, blocks)
        if labels is not None:
            slot, place, region = labels
            repeats = (dag.num_microbatches - size) // period
            return SteadyState(small=small, repeats=repeats, slot=slot, place=place, region=region)
    return None


def _of_size(dag: PipelineDag, num_microbatches: int) -> PipelineDag:
    assert dag.schedule is not None
    assert dag.num_stages is not None
    return type(dag).from_schedule(
        dag.schedule, num_stages=dag.num_stages, num_microbatches=num_microbatches, num_chunks=dag.num_chunks
    )


def _periodic_runs(dag: PipelineDag, rank: int, period: int) -> list[_Block]:
    """Return the maximal runs of a rank's order in which each block is the last one with later microbatches."""
    (here,) = np.nonzero(dag.rank == rank)
    kind = dag.stage[here].astype(np.int64) * len(dag.kinds) + dag.kind_code[here]
    microbatch = dag.microbatch[here]
    runs = []
    for length in range(period, period * len(np.unique(kind)) + 1, period):
        same = (kind[length:] == kind[:-length]) & (microbatch[length:] == microbatch[:-length] + period)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
        for start, end in edges.reshape(-1, 2).tolist():
            blocks = (end - start) // length + 1
            if blocks > 2:
                runs.append(_Block(int(here[0]) + start, length, blocks))
    return sorted(runs)


def _growing_blocks(small: PipelineDag, larger: PipelineDag, rank: int, period: int) -> list[_Block]:
    """Return the runs of a rank that have one block more in the larger pipeline."""
    later = [(run.length, run.blocks) for run in _periodic_runs(larger, rank, period)]
    return [run for run in _periodic_runs(small, rank, period) if (run.length, run.blocks + 1) in later]


def _label_slots(
    dag: PipelineDag, blocks: list[list[_Block]]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]] | None:
    """Number slots so that dependencies lead to the same or the next one; None if no numbering does."""
    num_regions = len(blocks[0])
    block_of = np.full(dag.num_operations, -1, dtype=np.int64)
    region_of = np.full(dag.num_operations, -1, dtype=np.int64)
    place = np.full(dag.num_operations, -1, dtype=np.int32)
    for region in range(num_regions):
        next_place = int(place.max()) + 1
        for rank_blocks in blocks:
            block = rank_blocks[region]
            here = slice(block.start, block.start + block.length * block.blocks)
            offset = np.arange(block.length * block.blocks)
            block_of[here], region_of[here] = offset // block.length, region
            place[here] = next_place + offset % block.length
            next_place += block.length
    slot = np.zeros(dag.num_operations, dtype=np.int32)
    regions = [-1]
    for region in range(num_regions):
        shift = _align_ranks(dag, block_of, region_of == region)
        if shift is None:
            return None
        aligned = block_of + shift[dag.rank]
        ranks = range(dag.num_ranks)
        first = max(int(shift[r]) for r in ranks)
        last = min(int(shift[r]) + blocks[r][region].blocks - 1 for r in ranks)
        if last - first < 2:
            return None
        base = len(regions)  # slot number of the first one that all ranks have
        slot[_at_or_after(dag, blocks, region)] = base - 1
        inside = region_of == region
        slot[inside] = base + np.clip(aligned[inside] - first, -1, last - first + 1)
        slot[_after(dag, blocks, region)] = base + last - first + 1
        regions += [region] * (last - first + 1) + [-1]
    place[np.array(regions)[slot] < 0] = -1
    return slot, place, np.array(regions, dtype=np.int32)


def _at_or_after(dag: PipelineDag, blocks: list[list[_Block]], region: int) -> NDArray[np.bool_]:
    starts = np.array([rank_blocks[region].start for rank_blocks in blocks])
    return np.arange(dag.num_operations) >= starts[dag.rank]


def _after(dag: PipelineDag, blocks: list[list[_Block]], region: int) -> NDArray[np.bool_]:
    ends = np.array([b[region].start + b[region].length * b[region].blocks for b in blocks])
    return np.arange(dag.num_operations) >= ends[dag.rank]


def _align_ranks(dag: PipelineDag, block_of: NDArray[np.int64], inside: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """Return each rank's shift such that dependencies inside a region lead to the same block or the next one."""
    tail, head = dag.edges[:, 0], dag.edges[:, 1]
    within = inside[tail] & inside[head]
    tail, head = tail[within], head[within]
    step = block_of[head] - block_of[tail]
    shift = np.zeros(dag.num_ranks, dtype=np.int64)
    for _ in range(2 * dag.num_ranks + 1):  # Bellman-Ford on the difference constraints
        moved = step + shift[dag.rank[head]] - shift[dag.rank[tail]]
        if ((moved >= 0) & (moved <= 1)).all():
            aligned: NDArray[np.int64] = shift - shift.min()
            return aligned
        early, late = moved < 0, moved > 1
        np.maximum.at(shift, dag.rank[head[early]], (shift[dag.rank[head]] - moved)[early])
        np.maximum.at(shift, dag.rank[tail[late]], (shift[dag.rank[tail]] + moved - 1)[late])
    return None
