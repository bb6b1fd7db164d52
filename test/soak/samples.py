"""Samples of the running processes."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path

from soak_site import Plane, Soak
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
    except (OSError, TypeError):
        return None
    metrics = plane.metrics()
    values |= {name: metrics[metric] for name, metric in GAUGES.items() if metric in metrics}
    return Sample(at, plane.name, values)


def field(status: str, name: str) -> str:
    found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    if not found:
        raise TypeError(f"no {name}")
    return found[1]


def half_closed(pid: int) -> int:
    """Returns the number of sockets of a process that its peer has closed and the process has not."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(entry))
        except OSError:
            continue
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(row[3] == CLOSE_WAIT and f"socket:[{row[9]}]" in inodes for row in rows)


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
