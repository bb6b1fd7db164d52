"""Samples of the running processes."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from soak_site import API_SERVER_PORT, Plane, Soak
from verdict import Sample

GAUGES = {
    "connections": "sluicegate_connections_open", "requests in flight": "sluicegate_requests_in_flight",
    "requests in flight at upstreams": "sluicegate_upstream_requests_in_flight", "TCP connections and UDP flows": "sluicegate_layer4_connections_open",
    "UDP clients": "sluicegate_udp_flows", "compressions": "sluicegate_compressions_in_flight",
}
"""The gauges that are 0 without a load."""
CLOSE_WAIT = "08"


def sample(plane: Plane, at: float) -> Sample | None:
    """Returns the values of the current process, or None if the process has ended."""
    pid = plane.pid
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        values = {"memory": float(field(status, "VmRSS")) * 1024, "threads": float(field(status, "Threads")), "descriptors": float(len(os.listdir(f"/proc/{pid}/fd")))}
        values["pools"] = pools(plane)
        values["other descriptors"] = values["descriptors"] - values["pools"] - sockets(pid).to_api_server
    except (OSError, TypeError):
        return None
    metrics = plane.metrics()
    values |= {name: metrics[metric] for name, metric in GAUGES.items() if metric in metrics}
    return Sample(at, plane.name, values)


def pools(plane: Plane) -> float:
    """Returns the number of idle connections to endpoints."""
    status, body, _ = plane.ask("/upstreams")
    return float(sum(endpoint["idle"] for upstream in json.loads(body) for endpoint in upstream["endpoints"])) if status == 200 else 0.0


def field(status: str, name: str) -> str:
    found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    if not found:
        raise TypeError(f"no {name}")
    return found[1]


@dataclass(frozen=True)
class Sockets:
    """The TCP sockets of a process."""

    half_closed: int
    """The sockets that the peer has closed and the process has not."""
    to_api_server: int


def sockets(pid: int) -> Sockets:
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(entry))
        except OSError:
            continue
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    own = [row for row in rows if f"socket:[{row[9]}]" in inodes]
    return Sockets(sum(row[3] == CLOSE_WAIT for row in own), sum(int(row[2].partition(":")[2], 16) == API_SERVER_PORT for row in own))


class Sampler:
    """Samples all planes at an interval, in a thread."""

    def __init__(self, soak: Soak, began: float, interval: float) -> None:
        self.samples: list[Sample] = []
        self._soak, self._began, self._interval = soak, began, interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            for plane in self._soak.planes:
                if found := sample(plane, time.monotonic() - self._began):
                    self.samples.append(found)
