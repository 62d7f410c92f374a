"""What a request for a clock costs the caller: the native actuator against a process queue and a Python thread.

    python benchmarks/actuator_request.py [--requests 2000] [--json]

All three are asked for clocks on a simulated GPU whose driver takes 10 ms to set one: faster than that, and at the pace
of a training, whose caller computes between two requests. Times are of the call alone, in microseconds. The program
ends with 1 if the native actuator takes more than 2 us at the median, more than an empty call.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import queue
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue

from perseus.actuator import Actuator
from perseus.device import Gpu, open_gpus, simulated

Request = Callable[[int], None]
BAR_US = 2.0
CLOCKS_MHZ = (900, 1005, 1110, 1200)
# Name, requests as a share of those asked for, and their distance: faster than the driver; at the pace of a training.
CASES = (("every 0.5 ms", 1.0, 0.0005), ("every 20 ms", 0.05, 0.020))


def set_from_queue(uuid: str, wishes: Queue[int | None]) -> None:
    """The child process of the first rival: set each clock that comes."""
    gpu = next(gpu for gpu in open_gpus() if gpu.uuid == uuid)
    while (mhz := wishes.get()) is not None:
        gpu.lock_clocks_mhz(mhz, mhz)


@contextmanager
def empty_call(gpu: Gpu) -> Iterator[Request]:
    """What calling and timing cost by themselves: at the end it is taken off."""
    yield gpu.uuid.__eq__


@contextmanager
def native(gpu: Gpu) -> Iterator[Request]:
    with Actuator(gpu) as actuator:
        yield actuator.request


@contextmanager
def process_queue(gpu: Gpu) -> Iterator[Request]:
    context = multiprocessing.get_context("spawn")
    wishes: Queue[int | None] = context.Queue()
    child = context.Process(target=set_from_queue, args=(gpu.uuid, wishes))
    child.start()
    wishes.put(900)
    time.sleep(1.0)  # the child has opened the driver
    try:
        yield wishes.put
    finally:
        child.kill()  # what still waits in the queue would take minutes
        child.join()
        wishes.cancel_join_thread()


@contextmanager
def python_thread(gpu: Gpu) -> Iterator[Request]:
    wishes: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    stop = threading.Event()

    def work() -> None:
        while (mhz := wishes.get()) is not None and not stop.is_set():
            gpu.lock_clocks_mhz(mhz, mhz)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield wishes.put
    finally:
        stop.set()
        wishes.put(None)
        thread.join()


def compute_until(time_ns: int) -> None:
    """Keep the caller's core busy, as a training step does."""
    while time.perf_counter_ns() < time_ns:
        pass


def measure(request: Request, count: int, pause_s: float) -> list[float]:
    """Return the time of each of `count` requests in us, `pause_s` apart."""
    times_us = []
    for i in range(count):
        mhz = CLOCKS_MHZ[i % len(CLOCKS_MHZ)]
        start_ns = time.perf_counter_ns()
        request(mhz)
        times_us.append((time.perf_counter_ns() - start_ns) / 1e3)
        compute_until(start_ns + int(pause_s * 1e9))
    return times_us


def summarize(times_us: list[float]) -> dict[str, float]:
    ordered = sorted(times_us)
    return {
        "median_us": round(statistics.median(ordered), 3),
        "p90_us": round(ordered[int(0.90 * len(ordered))], 3),
        "p99_us": round(ordered[int(0.99 * len(ordered))], 3),
    }


def run(requests: int) -> dict[str, object]:
    results: dict[str, object] = {}
    rivals = {
        "empty call": empty_call,
        "native actuator": native,
        "multiprocessing.Queue.put": process_queue,
        "Python thread": python_thread,
    }
    for name, rival in rivals.items():
        for case, share, pause_s in CASES:
            with rival(open_gpus()[0]) as request:
                measure(request, 20, 0.0)
                time.sleep(0.3)
                results[f"{name}, {case}"] = summarize(measure(request, int(share * requests), pause_s))
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "requests": requests,
        "results": results,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if simulated.STATE_VARIABLE not in os.environ:
        return restart_on_simulated_gpus()
    report = run(arguments.requests)
    show(report, as_json=arguments.json)
    results = report["results"]
    assert isinstance(results, dict)
    costs_us = [
        results[f"native actuator, {case}"]["median_us"] - results[f"empty call, {case}"]["median_us"]
        for case, *_ in CASES
    ]
    return 0 if max(costs_us) <= BAR_US else 1


def restart_on_simulated_gpus() -> int:
    """Run this program again where all its processes find the simulated driver."""
    with tempfile.TemporaryDirectory() as folder:
        simulated.create_state(f"{folder}/machine")
        environment = simulated.child_environment(f"{folder}/machine", os.environ)
        environment["PERSEUS_STATE_DIR"] = folder
        return os.spawnve(os.P_WAIT, sys.executable, [sys.executable, *sys.argv], environment)


def show(report: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report, indent=2))
        return
    print(f"Python {report['python']}, {report['machine']}, {report['cores']} cores, {report['requests']} requests")
    results = report["results"]
    assert isinstance(results, dict)
    for name, figures in results.items():
        print(f"{name:42s} " + "  ".join(f"{key[:-3]} {value:7.2f} us" for key, value in figures.items()))


if __name__ == "__main__":
    raise SystemExit(main())
