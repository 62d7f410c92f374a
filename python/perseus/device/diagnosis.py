"""What can be wrong on a machine before a training controls its clocks, and what to do about it."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from perseus.device import nvml, zeusd
from perseus.device.counter import CounterChange, Instruments, RealInstruments
from perseus.device.errors import DeviceError, NoPermissionError, NotSupportedError, has_sys_admin
from perseus.device.integrated import PowerIntegrator
from perseus.device.opening import open_all_gpus, open_gpus
from perseus.device.protocol import Gpu

Status = Literal["ok", "warning", "error"]
_COUNTER_BAR = 0.10
_POWER_POLL_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    check:
        What was looked at.
    gpu:
        UUID of the GPU; None for the machine.
    status:
        ``"ok"``, ``"warning"`` (work goes on, less well) or ``"error"`` (clock control will not work).
    found:
        What was found.
    remedy:
        What to do about it; empty when nothing needs to be done.
    value:
        The measured number, if the check measures one.
    unit:
        Its unit.
    """

    check: str
    gpu: str | None
    status: Status
    found: str
    remedy: str = ""
    value: float | None = None
    unit: str = ""


def diagnose(
    *, duration_s: float = 2.0, set_clocks: bool = True, instruments: Instruments | None = None
) -> Iterator[Finding]:
    """Look at everything and yield the findings as they come.

    Parameters
    ----------
    duration_s:
        How long to watch each GPU's counter and power.
    set_clocks:
        Whether the clocks of GPUs may be changed for a moment, to measure how long that takes.
    instruments:
        Time and pollers; None: real time.
    """
    instruments = instruments or RealInstruments()
    try:
        yield Finding(check="driver", gpu=None, status="ok", found=f"driver {nvml.driver_version()}")
    except DeviceError as error:
        yield _failure("driver", None, error)
        return
    yield _visible_devices()
    yield from _daemon()
    try:
        gpus = open_all_gpus("nvml" if zeusd.socket_from_environment() is None else "auto")
    except DeviceError as error:
        yield _failure("GPUs", None, error)
        return
    for gpu in gpus:
        yield from _diagnose_gpu(gpu, duration_s, set_clocks, instruments)


def _failure(check: str, gpu: str | None, error: DeviceError) -> Finding:
    remedy = getattr(error, "remedy", "")
    return Finding(check=check, gpu=gpu, status="error", found=str(error), remedy=remedy)


def _visible_devices() -> Finding:
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        visible = open_gpus("nvml")
    except DeviceError as error:
        return _failure("CUDA_VISIBLE_DEVICES", None, error)
    numbers = ", ".join(f"cuda:{i} is GPU {gpu.index}" for i, gpu in enumerate(visible)) or "no GPU is visible"
    return Finding(
        check="CUDA_VISIBLE_DEVICES",
        gpu=None,
        status="ok" if visible else "warning",
        found=f"{'not set' if value is None else repr(value)}: {numbers}",
        remedy="" if visible else "unset CUDA_VISIBLE_DEVICES, or name a GPU of nvidia-smi -L in it",
    )


def _daemon() -> Iterator[Finding]:
    socket_path = zeusd.socket_from_environment()
    if socket_path is None:
        return
    try:
        zeusd.ZeusdClient(socket_path, os.environ.get("ZEUSD_TOKEN")).discover()
    except DeviceError as error:
        yield _failure("zeusd", None, error)
    else:
        yield Finding(check="zeusd", gpu=None, status="ok", found=f"answers at {socket_path}")


def _diagnose_gpu(gpu: Gpu, duration_s: float, set_clocks: bool, instruments: Instruments) -> Iterator[Finding]:
    try:
        permission = _permission(gpu)
        yield permission
        yield _persistence(gpu)
        yield from _counter(gpu, duration_s, instruments)
        if set_clocks and permission.status == "ok":
            yield _latency(gpu, instruments)
    except DeviceError as error:
        yield _failure("GPU", gpu.uuid, error)


def _permission(gpu: Gpu) -> Finding:
    """Set the power limit to what it is: that needs the same right as clocks, and changes nothing."""
    who = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    how = "through zeusd" if isinstance(gpu, zeusd.ZeusdGpu) else f"as {who}"
    try:
        gpu.set_power_limit_w(gpu.power_limit_w())
    except NoPermissionError as error:
        return Finding(check="permission", gpu=gpu.uuid, status="error", found=str(error), remedy=error.remedy)
    except NotSupportedError:
        able = os.geteuid() == 0 or has_sys_admin()
        return Finding(
            check="permission",
            gpu=gpu.uuid,
            status="ok" if able else "warning",
            found=f"the power limit can't be set here, so the right to set clocks wasn't tried ({how})",
        )
    return Finding(check="permission", gpu=gpu.uuid, status="ok", found=f"settings can be changed {how}")


def _persistence(gpu: Gpu) -> Finding:
    try:
        on = nvml.persistence_mode(gpu)
    except NotSupportedError:
        return Finding(check="persistence", gpu=gpu.uuid, status="ok", found="not offered by this GPU")
    if on:
        return Finding(check="persistence", gpu=gpu.uuid, status="ok", found="persistence mode is on")
    return Finding(
        check="persistence",
        gpu=gpu.uuid,
        status="warning",
        found="persistence mode is off: settings vanish when the GPU's last program ends, and starts are slow",
        remedy="nvidia-smi -pm 1, or run nvidia-persistenced",
    )


def _counter(gpu: Gpu, duration_s: float, instruments: Instruments) -> Iterator[Finding]:
    if not gpu.has_energy_counter:
        yield Finding(
            check="energy counter",
            gpu=gpu.uuid,
            status="warning",
            found="this GPU has no energy counter; energy is integrated from power readings",
            remedy="measure operations of at least a second, or use a Volta or newer GPU",
        )
        return
    changes, powers = _watch(gpu, duration_s, instruments)
    if len(changes) < 3:
        yield Finding(
            check="counter update period",
            gpu=gpu.uuid,
            status="error",
            found=f"the energy counter changed {len(changes)} times in {duration_s:g} s",
            remedy="restart the driver; until then profiles can't be measured",
        )
        return
    yield _period(gpu, changes)
    yield _agreement(gpu, changes, powers)


def _watch(
    gpu: Gpu, duration_s: float, instruments: Instruments
) -> tuple[list[CounterChange], list[tuple[float, float]]]:
    """Return the counter's changes and the power readings (time, power) of the same time."""
    powers = [(instruments.now_s(), gpu.power_w())]
    with closing(instruments.watch_counter(gpu)) as watch:
        until_s = instruments.now_s() + duration_s
        while instruments.now_s() < until_s:
            instruments.sleep_s(_POWER_POLL_S)
            powers.append((instruments.now_s(), gpu.power_w()))
        return watch.take_changes(), powers


def _period(gpu: Gpu, changes: list[CounterChange]) -> Finding:
    gaps_s = [b.time_s - a.time_s for a, b in pairwise(changes)]
    period_s = statistics.median(gaps_s)
    slow = period_s > 0.2
    return Finding(
        check="counter update period",
        gpu=gpu.uuid,
        status="warning" if slow else "ok",
        found=f"the energy counter changes every {period_s * 1e3:.0f} ms",
        remedy="give a sweep more time for each point (perseus profile --max-seconds)" if slow else "",
        value=period_s,
        unit="s",
    )


def _agreement(gpu: Gpu, changes: list[CounterChange], powers: list[tuple[float, float]]) -> Finding:
    """Compare counter and power over the time between the first and the last change."""
    first, last = changes[0], changes[-1]
    integrator = PowerIntegrator(first.time_s, powers[0][1])
    for time_s, power_w in powers:
        if time_s <= last.time_s:
            integrator.add(time_s, power_w)
    integrated_j = integrator.energy_j(last.time_s)
    ratio = (last.energy_j - first.energy_j) / integrated_j if integrated_j > 0 else float("inf")
    agree = abs(ratio - 1.0) <= _COUNTER_BAR
    return Finding(
        check="counter against power",
        gpu=gpu.uuid,
        status="ok" if agree else "warning",
        found=f"the energy counter shows {ratio:.3f} times the integrated power",
        remedy=""
        if agree
        else "repeat on a GPU in a steady state; if it stays, trust neither for absolute values and update the driver",
        value=ratio,
        unit="",
    )


def _latency(gpu: Gpu, instruments: Instruments) -> Finding:
    """Measure how long a change of clock takes until it reads back. The clocks are as before at the end."""
    from perseus.actuator.guardian import guarded

    supported = gpu.supported_clocks_mhz()
    targets = [supported[0], supported[len(supported) // 2]] * 3
    taken_s = []
    with guarded(gpu):
        for mhz in targets:
            start_s = instruments.now_s()
            gpu.lock_clocks_mhz(mhz, mhz)
            while gpu.achieved_clock_mhz() != mhz and instruments.now_s() - start_s < 0.5:
                instruments.sleep_s(0.0005)
            taken_s.append(instruments.now_s() - start_s)
    median_s = statistics.median(taken_s)
    slow = median_s > 0.1
    return Finding(
        check="set-clock latency",
        gpu=gpu.uuid,
        status="warning" if slow else "ok",
        found=f"a new clock is in effect after {median_s * 1e3:.1f} ms",
        remedy="operations shorter than this keep the clock of their neighbour; close other programs that poll NVML"
        if slow
        else "",
        value=median_s,
        unit="s",
    )


def worst(findings: list[Finding]) -> Status:
    """Return the worst status among the findings."""
    order: tuple[Status, ...] = ("error", "warning", "ok")
    return next((status for status in order if any(f.status == status for f in findings)), "ok")
