"""The load of the soak: processes of the lab and of `client.py` for each gateway, and the counts of their requests."""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from client import HTTP, HTTPS
from soak_site import HERE, KEY, ROUTES, ClusterError, Plane, Running, Soak

TIMEOUT = "15s"
"""A request that takes longer failed. A busy machine alone does not delay a request that long."""
BODY = 200_000
"""The size of a large request body in bytes, more than the gateway can replay."""


@dataclass(frozen=True)
class Kind:
    """A load of the lab: its protocol, the URL, the requests per second, and its options."""

    protocol: str
    url: str
    rate: float
    options: tuple[str, ...] = ()


KINDS = [
    # On a kept-alive connection, requests follow each other so fast that a draining gateway can announce the end of the connection by a response.
    Kind("HTTP/1.1, kept alive", "http://web.soak.test/", 15, ("-c4", "--posts", "20")),
    Kind("HTTP/1.1, new connections", "http://web.soak.test/", 3, ("-c4", "--posts", "20", "--new-connections")),
    Kind("HTTPS, kept alive", "https://web.soak.test/", 8, ("-c3", "--posts", "20")),
    Kind("HTTPS, full handshakes", "https://web.soak.test/", 1.5, ("-c4", "--new-connections")),
    Kind("HTTP/2 in clear text", "http://web.soak.test/", 6, ("-c2", "--h2", "-m4")),
    Kind("HTTP/2 over TLS", "https://web.soak.test/", 6, ("-c2", "--h2", "-m4", "--posts", "20")),
    Kind("gRPC over TLS", "https://grpc.soak.test/soak.Echo/Say", 4, ("-c1", "--h2", "-m4", "--grpc")),
    Kind("large bodies", "http://web.soak.test/?s=300k", 2, ("-c1", "--posts", "50", "--body", "BODY")),
    Kind("slow responses", "http://web.soak.test/?t=1000", 3, ("-c8", "--posts", "20")),
    Kind("API key and rate limit", "http://key.soak.test/", 4, ("-c2", "--header", f"X-API-Key: {KEY}", "--posts", "20")),
    Kind("a route that moves", "http://moved.soak.test/", 4, ("-c2", "--posts", "20")),
    Kind("a policy that changes", "http://policy.soak.test/", 3, ("-c1", "--posts", "20")),
    Kind("HTTPRoute", "http://route.soak.test/", 4, ("-c2", "--posts", "20")),
    Kind("GETs to pods that die", "http://fragile.soak.test/", 8, ("-c4",)),
    Kind("GETs to pods that die, HTTP/2", "http://fragile.soak.test/", 4, ("-c1", "--h2", "-m4")),
]


@dataclass
class Counted:
    """The requests of a protocol at one gateway."""

    protocol: str
    gateway: str
    requests: int
    failures: dict[str, int] = field(default_factory=dict)
    """The failures by reason."""
    times: list[float] = field(default_factory=list)
    """The times of failures since the start of the load, in seconds; with the resolution of the load's intervals."""
    notes: dict[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        return sum(self.failures.values())


class Loads:
    """All loads at all gateways."""

    def __init__(self, soak: Soak, seconds: float, rate: float, leak: bool) -> None:
        """`rate` is a factor for all rates. `leak`: a client opens connections to each gateway that nothing closes, which the soak must find."""
        self.soak = soak
        self.began = time.monotonic()
        """The start of the load."""
        self._began_at = time.time()
        self._lab: list[tuple[Kind, Plane, Running, Path]] = []
        self._clients: list[tuple[Plane, Running, Path]] = []
        body = soak.folder / "body"
        body.write_bytes(b"x" * BODY)
        for gateway in soak.gateways:
            for number, kind in enumerate(KINDS):
                output = soak.folder / f"load/{gateway.name}-{number}.json"
                output.parent.mkdir(exist_ok=True)
                # The soak ends the load; the duration is for a soak that was killed.
                port = ROUTES if "route.soak" in kind.url else HTTPS if kind.url.startswith("https") else HTTP
                argv = [str(soak.programs["sluicegate-lab"]), "load", kind.url, "--connect-to", f"{gateway.address}:{port}", "--threads", "1",
                        "--rate", f"{kind.rate * rate:g}", "--duration", f"{seconds * 2 + 600:.0f}s", "--timeout", TIMEOUT, "--json", str(output),
                        *(["--cacert", str(soak.authority.file)] if kind.url.startswith("https") else []), "--verify", *(str(body) if option == "BODY" else option for option in kind.options)]
                self._lab.append((kind, gateway, soak.popen(argv, soak.logs / f"load/{gateway.name}-{number}.log"), output))
            output = soak.folder / f"load/{gateway.name}-client.json"
            argv = [sys.executable, str(HERE / "client.py"), "--gateway", gateway.address, "--authority", str(soak.authority.file),
                    "--output", str(output), "--rate", f"{rate:g}", *(["--leak"] if leak else [])]
            self._clients.append((gateway, soak.popen(argv, soak.logs / f"load/{gateway.name}-client.log"), output))

    def ended(self) -> list[str]:
        """Returns the loads that have ended too early, with their output."""
        return [running.output()[-1000:] for running in self._running() if not running.running]

    def stop(self) -> list[Counted]:
        """Ends all loads after their outstanding responses, and returns their counts."""
        for _, _, running, _ in self._lab:
            running.send(signal.SIGINT)
        for _, running, _ in self._clients:
            running.send(signal.SIGTERM)
        for running in self._running():
            running.wait(90)
        found = [self._of_lab(kind, gateway, running, output) for kind, gateway, running, output in self._lab]
        for gateway, running, output in self._clients:
            for protocol, counts in read(running, output).items():
                counted = Counted(protocol, gateway.name, counts["requests"], {}, [at - self._began_at for at, _ in counts["recorded"]], counts["notes"])
                for _, reason in counts["recorded"]:
                    counted.failures[reason] = counted.failures.get(reason, 0) + 1
                if unrecorded := counts["failures"] - len(counts["recorded"]):
                    counted.failures["further failures"] = unrecorded
                found.append(counted)
        return found

    def _running(self) -> list[Running]:
        return [running for _, _, running, _ in self._lab] + [running for _, running, _ in self._clients]

    def _of_lab(self, kind: Kind, gateway: Plane, running: Running, output: Path) -> Counted:
        counts = read(running, output)
        times = [interval["at_s"] for interval in counts["intervals"] if interval["errors"]]
        return Counted(kind.protocol, gateway.name, counts["requests"]["sent"], lost(counts), times)


def read(running: Running, output: Path) -> dict[str, Any]:
    if not output.exists():
        raise ClusterError(f"the load {output.stem} failed: {running.output()[-1000:]}")
    counts: dict[str, Any] = json.loads(output.read_text())
    return counts


def lost(counts: dict[str, Any]) -> dict[str, int]:
    """Returns the failures of a load of the lab by reason. A late response is no failure, because a busy machine is late."""
    errors = counts["errors"]
    found = {**errors["kinds"], **errors["wrong"],
             **{f"status {status}": count for status, count in counts["statuses"].items() if not status.startswith("2")}}
    found = {reason: count for reason, count in found.items() if count}
    return found or ({"other": errors["total"]} if errors["total"] else {})
