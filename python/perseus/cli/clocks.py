"""``perseus clocks``: who locks which clocks, and how to free them."""

from __future__ import annotations

from typing import Annotated

import typer

from perseus.actuator.records import LockRecord, read_lock_records, reset_stale_locks
from perseus.cli.options import JsonOption
from perseus.cli.output import Output
from perseus.device.errors import DeviceError
from perseus.device.opening import open_all_gpus
from perseus.device.protocol import Gpu

clocks = typer.Typer(help="Show or reset the clocks and power limits of this machine's GPUs.", no_args_is_help=True)


@clocks.command()
def show(as_json: JsonOption = False) -> None:
    """Show each GPU's clock, power limit, and who controls them."""
    records = {record.uuid: record for record in read_lock_records()}
    rows = [_describe(gpu, records.get(gpu.uuid)) for gpu in open_all_gpus()]
    out = Output(as_json=as_json)
    for row in rows:
        for line in _lines(row):
            out.show_text(line)
    out.show_json({"gpus": rows})


@clocks.command()
def reset(
    as_json: JsonOption = False,
    force: Annotated[bool, typer.Option("--force", help="Also reset GPUs that a live process controls.")] = False,
) -> None:
    """Restore what dead processes left, and unlock the clocks of all GPUs that no live process controls.

    Power limits are put back where a record tells the original; otherwise they are left as they are.
    """
    failures: dict[str, str] = {}
    try:
        restored = {record.uuid for record in reset_stale_locks()}
    except DeviceError as error:
        restored, failures = set(), {"stale records": str(error)}
    owners = {record.uuid: record.trainer_pid for record in read_lock_records() if record.live}
    rows = [_reset(gpu, owners.get(gpu.uuid), gpu.uuid in restored, force) for gpu in open_all_gpus("auto")]
    out = Output(as_json=as_json)
    for row in rows:
        out.show_text(f"GPU {row['index']} ({row['uuid']}): {row['outcome']}")
    for what, text in failures.items():
        out.show_text(f"{what}: {text}")
    out.show_json({"gpus": rows, "failures": failures})
    if failures or any(row["failed"] for row in rows):
        raise typer.Exit(1)


def _describe(gpu: Gpu, record: LockRecord | None) -> dict[str, object]:
    low_w, high_w = gpu.power_limit_range_w()
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "clock_mhz": gpu.achieved_clock_mhz(),
        "highest_clock_mhz": gpu.supported_clocks_mhz()[0],
        "lowest_clock_mhz": gpu.supported_clocks_mhz()[-1],
        "event_reasons": gpu.event_reasons().describe(),
        "power_limit_w": gpu.power_limit_w(),
        "lowest_limit_w": low_w,
        "highest_limit_w": high_w,
        "controlled_by_pid": record.trainer_pid if record is not None else None,
        "control": "free" if record is None else "live" if record.live else "stale",
        "error": record.error if record is not None else None,
    }


def _lines(row: dict[str, object]) -> list[str]:
    control = str(row["control"])
    if row["controlled_by_pid"]:
        control += f", process {row['controlled_by_pid']}"
    if row["control"] == "stale":
        control += " is dead: run perseus clocks reset"
    if row["error"]:
        control += f" (restoring failed: {row['error']})"
    return [
        f"GPU {row['index']}  {row['name']}  {row['uuid']}",
        f"  clock        {row['clock_mhz']} MHz of {row['lowest_clock_mhz']} to {row['highest_clock_mhz']} MHz "
        f"({row['event_reasons']})",
        f"  power limit  {row['power_limit_w']:g} W of {row['lowest_limit_w']:g} to {row['highest_limit_w']:g} W",
        f"  control      {control}",
    ]


def _reset(gpu: Gpu, owner_pid: int | None, was_stale: bool, force: bool) -> dict[str, object]:
    outcome, failed = "unlocked", False
    if was_stale:
        outcome = "restored what a dead process left"
    elif owner_pid is not None and not force:
        outcome = f"left alone: process {owner_pid} controls it (--force resets it all the same)"
    else:
        try:
            gpu.reset_clocks()
        except DeviceError as error:
            outcome, failed = str(error), True
    return {"index": gpu.index, "uuid": gpu.uuid, "outcome": outcome, "failed": failed}
