"""Kill trainers at random moments and measure how long their clocks stay locked. Prints one JSON document.

``kill_trainers.py STATE_FILE KILLS SEED``. Trainers are forked from this process, which never opened NVML itself,
several at a time on different GPUs, each in its own process group. Times count from the kernel's notice of the
trainer's death.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
from typing import Any, NamedTuple

from perseus.actuator import Actuator, read_lock_records
from perseus.device import open_gpus, simulated

GPUS = 4
POLL_S = 0.001
PATIENCE_S = 60.0


class Trainer(NamedTuple):
    gpu: int
    pid: int
    process: int  # descriptor
    ready: int  # descriptor


def train(gpu: int, seed: int, ready: int) -> None:
    """Never return: ask for random clocks, change the power limit now and then."""
    os.setsid()
    draw = random.Random(seed)
    actuator = Actuator(open_gpus()[gpu])
    actuator.request(705)
    os.write(ready, b"r")
    while True:
        actuator.request(draw.randrange(210, 1411, 15))
        if draw.random() < 0.1:
            actuator.set_power_limit_w(draw.randrange(100, 400))
        time.sleep(draw.random() * 0.01)


def start_trainer(gpu: int, seed: int) -> Trainer:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            train(gpu, seed, writing)
        finally:
            os._exit(99)
    os.close(writing)
    return Trainer(gpu, pid, os.pidfd_open(pid), reading)


def kill(trainer: Trainer, draw: random.Random) -> dict[str, Any]:
    """Kill a trainer, sometimes before it is ready; return when it was dead and whether it held a lock."""
    early = draw.random() < 0.15
    if not early:
        select.select([trainer.ready], [], [], PATIENCE_S)
    time.sleep(draw.random() * 0.03)
    whole_group = draw.random() < 0.5 and not early  # early, it may not have a group yet
    send = os.killpg if whole_group else os.kill
    send(trainer.pid, signal.SIGKILL)
    select.select([trainer.process], [], [], PATIENCE_S)
    dead_s = time.monotonic()
    locked = not restored(simulated.SimulatedGpu(trainer.gpu))
    os.waitpid(trainer.pid, 0)
    os.close(trainer.process)
    os.close(trainer.ready)
    return {"gpu": trainer.gpu, "early": early, "group": whole_group, "dead_s": dead_s, "locked": locked}


def restored(gpu: simulated.SimulatedGpu) -> bool:
    return gpu.locked_mhz is None and gpu.get("pending_changes") == 0 and gpu.get("power_limit_w") == 400


def await_restored(kills: list[dict[str, Any]]) -> float:
    """Poll until all GPUs are restored; note when. Returns the longest pause of this loop: the machine's own noise."""
    waiting, last_s, longest_pause_s = list(kills), time.monotonic(), 0.0
    while waiting and last_s - kills[0]["dead_s"] < PATIENCE_S:
        now_s = time.monotonic()
        longest_pause_s, last_s = max(longest_pause_s, now_s - last_s), now_s
        for killed in [k for k in waiting if restored(simulated.SimulatedGpu(k["gpu"]))]:
            killed["restore_s"] = now_s - killed["dead_s"]
            waiting.remove(killed)
        time.sleep(POLL_S)
    return longest_pause_s


def main(path: str, kills: int, seed: int) -> None:
    simulated.attach(path)
    draw = random.Random(seed)
    results: list[dict[str, Any]] = []
    longest_pause_s = 0.0
    while len(results) < kills:
        trainers = [start_trainer(gpu, draw.randrange(1 << 30)) for gpu in range(min(GPUS, kills - len(results)))]
        killed = [kill(trainer, draw) for trainer in trainers]
        longest_pause_s = max(longest_pause_s, await_restored(killed))
        results += killed
    time.sleep(0.2)  # a guardian that does anything more would be seen
    left = [gpu for gpu in range(GPUS) if not restored(simulated.SimulatedGpu(gpu))]
    records = [record.uuid for record in read_lock_records()]
    print(json.dumps({"kills": results, "left": left, "records": records, "longest_pause_s": longest_pause_s}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
