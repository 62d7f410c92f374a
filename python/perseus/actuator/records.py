"""The records of GPUs whose settings are changed, in files that outlive their writers.

The guardian writes a record before the first change and empties the file when everything is restored. It holds the
file's lock (`flock`) as long as it lives. So a record whose lock is free is *stale*: trainer and guardian both died, as
when a container is killed, and the settings are still changed.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perseus.device.errors import DeviceError
from perseus.device.nvml import NvmlGpu
from perseus.device.protocol import Gpu
from perseus.device.simulated.machine import STATE_VARIABLE as SIMULATED_STATE_VARIABLE
from perseus.device.zeusd import ZeusdGpu

STATE_VARIABLE = "PERSEUS_STATE_DIR"
_SUFFIX = ".lock"


@dataclass(frozen=True, kw_only=True)
class LockRecord:
    """A GPU whose settings a process changed.

    Attributes
    ----------
    uuid:
        The GPU.
    trainer_pid, guardian_pid:
        Who changed it, and who is to restore it.
    live:
        Whether the guardian lives. If not, the record is stale.
    original_clocks_mhz:
        The lock to put back; None: unlock.
    original_limit_w:
        The power limit to put back; None when it isn't known.
    zeusd_socket:
        The daemon that the settings went through; None: NVML itself.
    error:
        Why restoring failed, if it did.
    path:
        The record's file.
    """

    uuid: str
    trainer_pid: int
    guardian_pid: int
    live: bool
    original_clocks_mhz: tuple[int, int] | None
    original_limit_w: float | None
    zeusd_socket: str | None
    error: str | None
    path: Path


def state_folder() -> Path:
    """Return the folder of the records, made if need be.

    It is ``PERSEUS_STATE_DIR`` if that is set, beside the state file of a simulated machine if there is one,
    ``/run/perseus`` for root, else ``$XDG_RUNTIME_DIR/perseus``, else a folder of this user in the temporary folder. In
    a container, let it be a folder of the host: the record must outlive the container.
    """
    folder = _choose_folder()
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise DeviceError(
            f"the folder {folder} for lock records can't be made ({error}); set {STATE_VARIABLE} to one that can"
        ) from error
    if folder.stat().st_uid not in (os.geteuid(), 0):
        raise DeviceError(f"the folder {folder} for lock records belongs to another user; set {STATE_VARIABLE}")
    return folder


def _choose_folder() -> Path:
    if chosen := os.environ.get(STATE_VARIABLE):
        return Path(chosen)
    if machine := os.environ.get(SIMULATED_STATE_VARIABLE):  # two simulated machines have the same UUIDs
        return Path(f"{machine}.locks")
    if os.geteuid() == 0 and Path("/run").is_dir():
        return Path("/run/perseus")
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "perseus"
    return Path(tempfile.gettempdir()) / f"perseus-{os.geteuid()}"


def record_path(uuid: str) -> Path:
    """Return the record file of a GPU."""
    return state_folder() / f"{uuid}{_SUFFIX}"


def read_lock_records() -> list[LockRecord]:
    """Return the records of all GPUs whose settings are changed, live and stale, by UUID."""
    records = [_read(path) for path in sorted(state_folder().glob(f"*{_SUFFIX}"))]
    return [record for record in records if record is not None]


def reset_stale_locks() -> list[LockRecord]:
    """Restore the settings that dead processes left changed; return what was restored.

    A GPU whose settings can't be restored keeps its record, and the error is raised after the others were tried.
    """
    done: list[LockRecord] = []
    failures: list[DeviceError] = []
    for record in read_lock_records():
        try:
            if not record.live and _restore_stale(record):
                done.append(record)
        except DeviceError as error:
            failures.append(error)
    if failures:
        raise failures[0]
    return done


def restore(gpu: Gpu, clocks_mhz: tuple[int, int] | None, limit_w: float | None) -> None:
    """Put back clocks (None: unlock them) and power limit (None: leave it)."""
    if clocks_mhz is None:
        gpu.reset_clocks()
    else:
        gpu.lock_clocks_mhz(*clocks_mhz)
    if limit_w is not None and gpu.power_limit_w() != limit_w:
        gpu.set_power_limit_w(limit_w)


def _restore_stale(record: LockRecord) -> bool:
    with _held(record.path) as file:
        text = os.pread(file, 4096, 0).decode(errors="replace") if file is not None else ""
        if file is None or not text:  # a new owner came, or another process restored it
            return False
        if _of_this_boot(text):
            gpu = ZeusdGpu(record.uuid, record.zeusd_socket) if record.zeusd_socket else NvmlGpu(record.uuid)
            restore(gpu, record.original_clocks_mhz, record.original_limit_w)
        os.ftruncate(file, 0)
        return True


@contextmanager
def _held(path: Path) -> Iterator[int | None]:
    """Hold a record's lock; None when another process does."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file
    except BlockingIOError:
        yield None
    finally:
        os.close(file)


def _read(path: Path) -> LockRecord | None:
    try:
        with _held(path) as file:
            live = file is None
            text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    if not text or not _of_this_boot(text):
        return None
    return _parse(text, path, live)


def _fields(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _of_this_boot(text: str) -> bool:
    """Whether a record is of this boot: settings end with a reboot."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return True
    return _fields(text).get("boot_id") in (None, "", boot_id)


def _parse(text: str, path: Path, live: bool) -> LockRecord:
    fields = _fields(text)

    def number(key: str) -> int:
        value = fields.get(key, "")
        return int(value) if value.lstrip("-").isdecimal() else 0

    return LockRecord(
        uuid=fields.get("uuid") or path.name.removesuffix(_SUFFIX),
        trainer_pid=number("trainer_pid"),
        guardian_pid=number("guardian_pid"),
        live=live,
        original_clocks_mhz=(number("original_min_mhz"), number("original_max_mhz"))
        if number("original_max_mhz")
        else None,
        original_limit_w=number("original_limit_mw") / 1000.0 or None,
        zeusd_socket=fields.get("zeusd_socket") or None,
        error=fields.get("error") or None,
        path=path,
    )
