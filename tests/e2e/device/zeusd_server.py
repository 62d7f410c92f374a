"""A server that speaks zeusd's routes over a Unix socket and sets (simulated) GPUs through the real ``pynvml``."""

from __future__ import annotations

import json
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pynvml

Handler = Callable[[int, dict[str, str]], None]
ROUTES: dict[str, Handler] = {
    "/gpu/set_gpu_locked_clocks": lambda gpu, query: pynvml.nvmlDeviceSetGpuLockedClocks(
        pynvml.nvmlDeviceGetHandleByIndex(gpu), int(query["min_clock_mhz"]), int(query["max_clock_mhz"])
    ),
    "/gpu/reset_gpu_locked_clocks": lambda gpu, query: pynvml.nvmlDeviceResetGpuLockedClocks(
        pynvml.nvmlDeviceGetHandleByIndex(gpu)
    ),
    "/gpu/set_power_limit": lambda gpu, query: pynvml.nvmlDeviceSetPowerManagementLimit(
        pynvml.nvmlDeviceGetHandleByIndex(gpu), int(query["power_limit_mw"])
    ),
}
STATUS_OF_CODE = {pynvml.NVML_ERROR_NO_PERMISSION: 403, pynvml.NVML_ERROR_INVALID_ARGUMENT: 400}


class ZeusdServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Requests)
        self.path = path
        self.requests: list[str] = []
        self.old_discovery = False
        self.hidden: set[int] = set()
        self.token: str | None = None
        self.control = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that died before its answer is what the tests do on purpose; anything else is shown."""
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            super().handle_error(request, client_address)

    def discovery(self) -> dict[str, object]:
        indices = [i for i in range(pynvml.nvmlDeviceGetCount()) if i not in self.hidden]
        if self.old_discovery:
            return {"gpu_ids": indices, "cpu_ids": []}
        # The daemon's numbers need not be ours: it counts from the other end here.
        gpus = []
        for i in indices:
            info = pynvml.nvmlDeviceGetPciInfo(pynvml.nvmlDeviceGetHandleByIndex(i))
            address = f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"
            gpus.append({"id": self.number_of(i), "name": "GPU", "pci_address": address})
        return {"gpus": gpus, "enabled_api_groups": ["gpu-control", "gpu-read"], "auth_required": False}

    def number_of(self, index: int) -> int:
        return index if self.old_discovery else pynvml.nvmlDeviceGetCount() - 1 - index


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ZeusdServer

    def do_GET(self) -> None:
        self.server.requests.append(f"GET {self.path}")
        self._answer(200, self.server.discovery()) if self.path == "/discover" else self._answer(404, {})

    def do_POST(self) -> None:
        self.server.requests.append(f"POST {self.path}")
        url = urlparse(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        route = ROUTES.get(url.path)
        if self.server.token is not None and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            return self._answer(401, {"error": "invalid token"})
        if route is None or not self.server.control:
            return self._answer(404, {"error": "no such route"})
        if "gpu_ids" not in query or query.get("block") not in ("true", "false"):
            return self._answer(400, {"error": "gpu_ids and block are required"})
        return self._set(route, query)

    def _set(self, route: Handler, query: dict[str, str]) -> None:
        try:
            for number in map(int, query["gpu_ids"].split(",")):
                route(self.server.number_of(number), query)  # counting from the other end is its own inverse
        except pynvml.NVMLError as error:
            return self._answer(STATUS_OF_CODE.get(error.value, 500), {"errors": {query["gpu_ids"]: str(error)}})
        return self._answer(200, None)

    def _answer(self, status: int, document: object) -> None:
        body = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *arguments: object) -> None:
        return


@contextmanager
def serve(path: Path) -> Iterator[ZeusdServer]:
    pynvml.nvmlInit()
    with ZeusdServer(path) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
