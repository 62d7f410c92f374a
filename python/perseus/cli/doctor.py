"""``perseus doctor``: is this machine ready for clock control, and what to do if not."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain
from typing import Annotated

import typer

from perseus.actuator.records import read_lock_records
from perseus.cli.options import JsonOption
from perseus.cli.output import Output
from perseus.device.diagnosis import Finding, diagnose, worst
from perseus.device.errors import DeviceError

_MARKS = {"ok": "ok     ", "warning": "WARNING", "error": "ERROR  "}


def doctor(
    as_json: JsonOption = False,
    seconds: Annotated[float, typer.Option(min=0.5, help="How long to watch each GPU's counter and power.")] = 2.0,
    set_clocks: Annotated[
        bool, typer.Option("--set-clocks/--no-set-clocks", help="Change clocks for a moment to measure the latency.")
    ] = True,
) -> None:
    """Check driver, permissions, energy counter and clocks, and say what to do about each finding.

    Ends with 1 if clock control will not work.
    """
    out = Output(as_json=as_json)
    findings: list[Finding] = []
    for finding in chain(_stale_locks(), diagnose(duration_s=seconds, set_clocks=set_clocks)):
        findings.append(finding)
        _show(out, finding)
    out.show_json({"status": worst(findings), "findings": [asdict(finding) for finding in findings]})
    if worst(findings) == "error":
        raise typer.Exit(1)


def _show(out: Output, finding: Finding) -> None:
    where = f" [{finding.gpu}]" if finding.gpu else ""
    out.show_text(f"{_MARKS[finding.status]} {finding.check}{where}: {finding.found}")
    if finding.remedy and finding.status != "ok":
        out.show_text(f"        what to do: {finding.remedy}")


def _stale_locks() -> list[Finding]:
    try:
        stale = [record for record in read_lock_records() if not record.live]
    except DeviceError as error:
        return [Finding(check="lock records", gpu=None, status="error", found=str(error))]
    return [
        Finding(
            check="lock records",
            gpu=record.uuid,
            status="warning",
            found=f"process {record.trainer_pid} died and left its clocks locked",
            remedy="perseus clocks reset",
        )
        for record in stale
    ]
