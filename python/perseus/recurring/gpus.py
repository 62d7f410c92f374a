"""The GPUs of this process, as far as a recurring job needs them, made safe for the training path.

A training loop must not stop because a power counter did.  The first fault of a GPU is logged, once, the
original power limits are restored as far as possible, and from then on nothing is measured or set.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

logger = logging.getLogger("perseus.recurring")


class PowerGpu(Protocol):
    """What is needed of a GPU; `perseus.device` provides it, and so may a test."""

    @property
    def uuid(self) -> str:
        """Identity of the physical GPU."""

    def energy_j(self) -> float:
        """Return the reading of the energy counter, in joules."""

    def power_limit_w(self) -> float:
        """Return the power limit in force, in watts."""

    def power_limit_range_w(self) -> tuple[float, float]:
        """Return the lowest and the highest power limit that can be set, in watts."""

    def set_power_limit_w(self, limit_w: float) -> None:
        """Set the power limit, in watts."""


def own_gpus() -> list[PowerGpu]:
    """Return the GPUs that this process trains on; none, with a line in the log, if there is no driver.

    A rank of torch.distributed trains on its current CUDA device alone; any other process on all that
    are visible to it.
    """
    try:
        visible: Sequence[PowerGpu] = importlib.import_module("perseus.device").open_gpus()
    except Exception as error:  # whatever the driver answers, training goes on
        logger.warning("no GPU can be measured (%s): the cost of a run is its time alone", error)
        return []
    index = _rank_device(len(visible))
    return list(visible) if index is None else [visible[index]]


def _rank_device(count: int) -> int | None:
    """Return the index of the one GPU of a distributed rank, or None when all are this process's."""
    torch = sys.modules.get("torch")
    if torch is None or not _is_distributed(torch):
        return None
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        index = int(torch.cuda.current_device())
    else:
        index = int(os.environ.get("LOCAL_RANK", "0"))
    return index if index < count else None


def _is_distributed(torch: object) -> bool:
    distributed = getattr(torch, "distributed", None)
    return bool(
        distributed is not None
        and distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


def synchronize() -> None:
    """Wait until the GPU has done what was asked of it, when torch uses one; else return at once."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


class GpuGroup:
    """The GPUs of one process, read and set together.

    Parameters
    ----------
    gpus:
        The GPUs; may be empty.
    guard:
        Whether a guardian process shall restore the power limits if this process is killed.  Where there
        can be none, `restore` is all there is.

    Attributes
    ----------
    ranges_w:
        Lowest and highest power limit, in watts, by UUID.
    measurable, settable:
        Whether energy can still be read and power limits can still be set.
    """

    def __init__(self, gpus: Iterable[PowerGpu], *, guard: bool = False) -> None:
        gpus = list(gpus)
        self._pid = os.getpid()
        self._guardians = _start_guardians(gpus) if guard else contextlib.ExitStack()
        self.measurable = self.settable = True
        self.ranges_w: dict[str, tuple[float, float]] = {}
        self._gpus: dict[str, PowerGpu] = {}
        self._originals_w: dict[str, float] = {}
        self._changed = False
        self._said_unrestored = False
        try:
            self._gpus = {gpu.uuid: gpu for gpu in gpus}
            self.ranges_w = {uuid: gpu.power_limit_range_w() for uuid, gpu in self._gpus.items()}
            self._originals_w = {uuid: gpu.power_limit_w() for uuid, gpu in self._gpus.items()}
        except Exception as error:
            logger.warning("the power limits cannot be read (%s): the cost of a run is its time alone", error)
            self._gpus, self.ranges_w, self._originals_w = {}, {}, {}

    @property
    def originals_w(self) -> dict[str, float]:
        """Power limits to be restored, in watts, by UUID."""
        return dict(self._originals_w)

    def correct_originals_w(self, limits_w: Mapping[str, float]) -> None:
        """Say to what power limits, in watts, `restore` must return, where a killed run left its own."""
        for uuid in self._originals_w.keys() & limits_w.keys():
            self._changed |= self._originals_w[uuid] != limits_w[uuid]
            self._originals_w[uuid] = limits_w[uuid]

    def energies_j(self) -> dict[str, float]:
        """Return the energy counters, in joules, by UUID; NaN once one has failed."""
        if self.measurable:
            try:
                return {uuid: gpu.energy_j() for uuid, gpu in self._gpus.items()}
            except Exception as error:
                self.measurable = False
                logger.warning("the energy cannot be read (%s); this run stays unmeasured", error)
        return dict.fromkeys(self._gpus, math.nan)

    def counter_resets(self) -> int:
        """Return how often counters were seen to begin anew; energy across that is not known."""
        return sum(int(getattr(gpu, "counter_resets", 0)) for gpu in self._gpus.values())

    def set_limit_w(self, limit_w: float) -> bool:
        """Set the power limit of every GPU, each within its range; return whether that worked."""
        if not self.settable or not self._gpus:
            return False
        self._changed = True
        try:
            for uuid, gpu in self._gpus.items():
                lowest, highest = self.ranges_w[uuid]
                gpu.set_power_limit_w(min(max(limit_w, lowest), highest))
        except Exception as error:
            self.settable = False
            logger.warning("the power limit %g W cannot be set (%s); it is left alone", limit_w, error)
            self.restore()
            return False
        return True

    def restore(self) -> bool:
        """Set every power limit back to what it was; never raises.  Return whether all were."""
        if not self._changed:
            return True
        restored = True
        for uuid, gpu in self._gpus.items():
            try:
                if gpu.power_limit_w() != self._originals_w[uuid]:
                    gpu.set_power_limit_w(self._originals_w[uuid])
            except Exception as error:
                restored = False
                level = logging.DEBUG if self._said_unrestored else logging.WARNING
                logger.log(level, "the power limit of GPU %s could not be restored: %s", uuid, error)
        self._said_unrestored |= not restored
        self._changed = not restored  # what failed is tried again at the end
        return restored

    def close(self) -> bool:
        """Restore, and let the guardians go; never raises.  Return whether every limit was restored."""
        if os.getpid() != self._pid:
            return True  # a fork inherited what is not its own
        restored = self.restore()
        try:
            self._guardians.close()
        except Exception as error:
            logger.warning("a guardian could not restore its GPU: %s", error)
        return restored


def _start_guardians(gpus: Iterable[PowerGpu]) -> contextlib.ExitStack:
    """Return the guardians of those GPUs that the device layer can guard."""
    guardians = contextlib.ExitStack()
    try:
        guarded = importlib.import_module("perseus.actuator").guarded
        address = importlib.import_module("perseus.device.native").native_address
    except Exception as error:
        logger.debug("there are no guardians here: %s", error)
        return guardians
    for gpu in gpus:
        try:
            if address(gpu) is not None:
                guardians.enter_context(guarded(gpu))
        except Exception as error:  # another process of this job may guard it, or a clock actuator of this one
            logger.info("GPU %s stays without a guardian: %s", gpu.uuid, error)
    return guardians


def limits_between_w(ranges_w: Iterable[tuple[float, float]], spacing_w: float = 25.0) -> tuple[float, ...]:
    """Return the power limits to measure, descending: the highest, and the multiples of ``spacing_w`` below.

    None is outside the range of any GPU; without a GPU there is none.
    """
    ranges = list(ranges_w)
    if not ranges:
        return ()
    lowest = max(low for low, _ in ranges)
    highest = min(high for _, high in ranges)
    first = math.ceil(lowest / spacing_w)
    last = math.ceil(highest / spacing_w) - 1
    return (highest, *(spacing_w * k for k in range(last, first - 1, -1)))
