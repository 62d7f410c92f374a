"""Requests for clocks, from Python down to the driver."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest

from perseus.actuator import Actuator
from perseus.device import EventReason, open_gpus, simulated

Start = Callable[..., simulated.SimulatedMachine]


def test_a_request_reaches_the_gpu_and_is_recorded(start_machine: Start) -> None:
    machine = start_machine()
    before_s = time.monotonic()
    with Actuator(open_gpus()[0]) as actuator:
        actuator.request(1005)
        assert actuator.drain()
        assert machine.gpu(0).locked_mhz == (1005, 1005)
        [record] = actuator.take_records()
        assert record.held
        assert record.requested_mhz == record.achieved_mhz == 1005
        assert before_s <= record.requested_s <= record.applied_s <= time.monotonic()
        assert record.applied_s - record.requested_s >= 0.010
        assert actuator.statistics().latency_s >= 0.010
        assert actuator.take_records() == []
    assert machine.gpu(0).locked_mhz is None


def test_the_latest_request_wins(start_machine: Start) -> None:
    machine = start_machine()
    with Actuator(open_gpus()[0]) as actuator:
        for mhz in range(300, 1350, 15):
            actuator.request(mhz)
        actuator.drain()
        assert machine.gpu(0).locked_mhz == (1335, 1335)
        counts = actuator.statistics()
        assert counts.requests == 70
        assert counts.applied + counts.coalesced == 70
        assert machine.gpu(0).get("set_clock_calls") < 40


def test_short_operations_change_nothing(start_machine: Start) -> None:
    machine = start_machine()
    machine.gpu(0).set(set_clock_latency_s=0.05)
    with Actuator(open_gpus()[0]) as actuator:
        actuator.request(705)
        actuator.drain()
        actuator.request(900, hold_s=0.005)
        actuator.drain()
        assert actuator.statistics().skipped == 1
        assert machine.gpu(0).locked_mhz == (705, 705)


def test_requested_against_achieved(start_machine: Start) -> None:
    machine = start_machine()
    machine.gpu(0).set(cap_mhz=1000)
    with Actuator(open_gpus()[0]) as actuator:
        actuator.request(1200)
        actuator.drain()
        [record] = actuator.take_records()
    assert not record.held
    assert (record.requested_mhz, record.achieved_mhz) == (1200, 990)
    assert EventReason.THERMAL in record.reasons


def test_refusals_end_in_unlocked_clocks_and_never_in_an_exception(start_machine: Start) -> None:
    machine = start_machine()
    with Actuator(open_gpus()[0]) as actuator:
        actuator.request(705)
        actuator.drain()
        machine.gpu(0).fail("nvmlDeviceSetGpuLockedClocks", code=15)
        for mhz in (720, 735, 750, 765):
            actuator.request(mhz)
            actuator.drain()
        counts = actuator.statistics()
        assert counts.gave_up
        assert (counts.failed, counts.last_code) == (3, 15)
        assert [record.code for record in actuator.take_records()] == [0, 15, 15, 15]
        assert machine.gpu(0).locked_mhz is None


def test_many_python_threads(start_machine: Start) -> None:
    machine = start_machine()
    with Actuator(open_gpus()[0]) as actuator:
        threads = [
            threading.Thread(target=lambda: [actuator.request(300 + 15 * i) for i in range(70)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        actuator.request(705)
        actuator.drain()
        assert machine.gpu(0).locked_mhz == (705, 705)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_in_a_forked_child_requests_do_nothing(start_machine: Start) -> None:
    machine = start_machine()
    with Actuator(open_gpus()[0]) as actuator:
        actuator.request(705)
        actuator.drain()
        child = os.fork()
        if child == 0:
            actuator.request(900)
            actuator.drain()
            actuator.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert machine.gpu(0).locked_mhz == (705, 705)
        actuator.request(720)
        actuator.drain()
        assert machine.gpu(0).locked_mhz == (720, 720)
    assert machine.gpu(0).locked_mhz is None


def test_closing_twice_and_requests_after_it_are_harmless(start_machine: Start) -> None:
    machine = start_machine()
    actuator = Actuator(open_gpus()[0])
    actuator.close()
    actuator.close()
    actuator.request(705)
    assert machine.gpu(0).locked_mhz is None
    with Actuator(open_gpus()[0]) as again:
        again.request(705)
        again.drain()
        assert machine.gpu(0).locked_mhz == (705, 705)


def test_a_whole_step_of_requests_follows_the_plan(start_machine: Start) -> None:
    """Operations of 40 ms, each at its own clock, requested at the end of the one before."""
    machine = start_machine()
    kernel = simulated.Kernel(work_s=0.03)
    clocks = [1410, 900, 1200, 705, 1050]
    with Actuator(open_gpus()[0]) as actuator:
        for mhz in clocks:
            actuator.request(mhz)
            machine.gpu(0).run(kernel)
        actuator.drain()
        asked = [record.requested_mhz for record in actuator.take_records()]
    assert asked[-1] == 1050
    assert [mhz for mhz in clocks if mhz in asked] == asked
