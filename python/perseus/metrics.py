"""Prometheus metrics of clock control: one set of values a GPU, labelled by its UUID.

>>> from perseus.metrics import GpuMetrics
>>> metrics = GpuMetrics()                                                 # doctest: +SKIP
>>> metrics.add(actuator, plan="7b3f1c")                                   # doctest: +SKIP
>>> metrics.serve(9400)                                                    # doctest: +SKIP

Values are read when they are scraped, so that nothing happens in the training's own time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from perseus.device.errors import DeviceError
from perseus.errors import MissingExtraError

if TYPE_CHECKING:
    from perseus.actuator import Actuator

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
except ImportError as error:
    raise MissingExtraError(
        "metrics need the package prometheus-client; install it with: pip install 'perseus-energy[metrics]'"
    ) from error

_LABEL = "gpu_uuid"


class GpuMetrics:
    """A collector of the GPUs that this process controls.

    Parameters
    ----------
    registry:
        Where to register; None: an own registry, which `serve` offers.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = registry or CollectorRegistry()
        self._lock = threading.Lock()
        self._actuators: dict[str, Actuator] = {}
        self._plans: dict[str, str] = {}
        self._registry.register(self)

    @property
    def registry(self) -> CollectorRegistry:
        """Where the metrics are registered."""
        return self._registry

    def add(self, actuator: Actuator, *, plan: str = "none") -> None:
        """Offer the values of an actuator's GPU.

        Parameters
        ----------
        actuator:
            What controls the GPU.
        plan:
            Name of the plan in force.
        """
        with self._lock:
            self._actuators[actuator.gpu.uuid] = actuator
            self._plans[actuator.gpu.uuid] = plan

    def set_plan(self, gpu_uuid: str, plan: str) -> None:
        """Say that another plan is in force on a GPU."""
        with self._lock:
            self._plans[gpu_uuid] = plan

    def remove(self, gpu_uuid: str) -> None:
        """Offer a GPU's values no longer."""
        with self._lock:
            self._actuators.pop(gpu_uuid, None)
            self._plans.pop(gpu_uuid, None)

    def serve(self, port: int, address: str = "127.0.0.1") -> Any:
        """Offer the metrics over HTTP; returns the server and its thread."""
        return start_http_server(port, addr=address, registry=self._registry)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: reading GPUs only to register would be waste."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Read all GPUs. One that fails is left out and counted as not up."""
        with self._lock:
            actuators, plans = dict(self._actuators), dict(self._plans)
        up = GaugeMetricFamily("perseus_gpu_up", "Whether the GPU could be read.", labels=[_LABEL])
        in_force = GaugeMetricFamily("perseus_plan_in_force", "1 for the plan in force.", labels=[_LABEL, "plan"])
        families = _Families()
        for uuid, actuator in actuators.items():
            try:
                families.read(uuid, actuator)
            except DeviceError:
                up.add_metric([uuid], 0)
            else:
                up.add_metric([uuid], 1)
            in_force.add_metric([uuid, plans[uuid]], 1)
        return [up, in_force, *families.all()]


class _Families:
    """The metrics that are numbers of a GPU."""

    def __init__(self) -> None:
        labels = [_LABEL]
        self._energy = CounterMetricFamily("perseus_gpu_energy_joules", "Energy used by the GPU.", labels=labels)
        self._power = GaugeMetricFamily("perseus_gpu_power_watts", "Present power.", labels=labels)
        self._requested = GaugeMetricFamily(
            "perseus_gpu_requested_megahertz", "Core clock requested last; 0: none yet.", labels=labels
        )
        self._achieved = GaugeMetricFamily("perseus_gpu_achieved_megahertz", "Present core clock.", labels=labels)
        self._missed = CounterMetricFamily(
            "perseus_gpu_missed_deadlines", "Clocks that came after their operation's end.", labels=labels
        )
        self._failed = CounterMetricFamily(
            "perseus_gpu_failed_requests", "Clocks refused by the driver.", labels=labels
        )

    def read(self, uuid: str, actuator: Actuator) -> None:
        """Add a GPU's values, or none of them if it fails."""
        gpu, counts = actuator.gpu, actuator.statistics()
        energy_j, power_w, clock_mhz = gpu.energy_j(), gpu.power_w(), gpu.achieved_clock_mhz()
        self._energy.add_metric([uuid], energy_j)
        self._power.add_metric([uuid], power_w)
        self._requested.add_metric([uuid], counts.requested_mhz)
        self._achieved.add_metric([uuid], clock_mhz)
        self._missed.add_metric([uuid], counts.missed_deadlines)
        self._failed.add_metric([uuid], counts.failed)

    def all(self) -> list[Metric]:
        """Return the metrics."""
        return [self._energy, self._power, self._requested, self._achieved, self._missed, self._failed]
