"""A simulated NVIDIA driver, for trying and testing without a GPU.

It is a library with the real one's name (``libnvidia-ml.so.1``), so every NVML program, ``pynvml`` included, runs on
it. Its state is a file that all processes of a machine share. It models clocks, power, energy counter, throttling,
latency and noise, and answers with any error on demand.

A whole program on it, from a shell::

    perseus simulate --gpu a100 --count 4 -- python train.py

Inside a test::

    with simulated.start("a100", count=2, time_scale=0) as machine:     # virtual time: nothing waits
        gpu = open_gpus()[0]
        machine.gpu(0).run(simulated.Kernel(work_s=0.05))
"""

from perseus.device.simulated.kernel import Kernel
from perseus.device.simulated.machine import (
    MODELS,
    STATE_VARIABLE,
    SettingCall,
    SimulatedGpu,
    SimulatedMachine,
    attach,
    child_environment,
    create_state,
    library_path,
    start,
)
from perseus.device.simulated.virtual_time import SimulatedInstruments

__all__ = [
    "MODELS",
    "STATE_VARIABLE",
    "Kernel",
    "SettingCall",
    "SimulatedGpu",
    "SimulatedInstruments",
    "SimulatedMachine",
    "attach",
    "child_environment",
    "create_state",
    "library_path",
    "start",
]
