"""Trainers for the tests of the guardian: programs that lock clocks and then end in some way.

``trainer_main.py MODE GPU`` prints "ready" when its GPU is locked and its power limit changed, and then does what MODE
says.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from perseus.actuator import Actuator
from perseus.device import open_gpus


def wait_for_ever() -> None:
    while True:
        time.sleep(60)


def main(mode: str, index: int) -> None:
    actuator = Actuator(open_gpus()[index])
    actuator.request(705)
    actuator.drain()
    actuator.set_power_limit_w(250)
    if mode == "fork" and os.fork() == 0:
        actuator.request(900)  # does nothing here: the thread is the parent's
        wait_for_ever()
    print("ready", flush=True)
    if mode == "exception":
        raise RuntimeError("training failed")
    if mode == "exit":
        return
    if mode == "abort":
        os.abort()
    if mode == "os_exit":
        os._exit(3)
    if mode == "terminate_group":
        os.killpg(0, signal.SIGTERM)
    wait_for_ever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
