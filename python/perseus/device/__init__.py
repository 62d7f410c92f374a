"""GPUs: their energy, power and clocks, through NVML, zeusd or a simulated driver.

>>> from perseus.device import open_gpus
>>> gpu = open_gpus()[0]                                                   # doctest: +SKIP
>>> gpu.energy_j(), gpu.supported_clocks_mhz()[:3]                         # doctest: +SKIP
(81243.0, (1410, 1395, 1380))
"""

from perseus.device.errors import (
    ClockNotHeldWarning,
    DeviceError,
    DeviceWarning,
    EnergyIntegratedWarning,
    GpuBusyError,
    GuardianError,
    MeasurementError,
    MigDeviceError,
    NoPermissionError,
    NvmlError,
    PowerLimitError,
    SimulationError,
    VisibleDevicesError,
    ZeusdError,
)
from perseus.device.opening import open_all_gpus, open_gpus
from perseus.device.protocol import EventReason, Gpu

__all__ = [
    "ClockNotHeldWarning",
    "DeviceError",
    "DeviceWarning",
    "EnergyIntegratedWarning",
    "EventReason",
    "Gpu",
    "GpuBusyError",
    "GuardianError",
    "MeasurementError",
    "MigDeviceError",
    "NoPermissionError",
    "NvmlError",
    "PowerLimitError",
    "SimulationError",
    "VisibleDevicesError",
    "ZeusdError",
    "open_all_gpus",
    "open_gpus",
]
