"""One run: backends, a gateway, a load over TLS, and changes of pods."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from harness import Cluster, ClusterError, wait_until
from harness.addresses import node_address
from harness.paths import PROJECT
from images import standard

from .gateways import Gateway

HOST = "app.example.com"
REPLICAS = 5
SERVED = "app"
ASIDE = "aside"
"""Pods like the backends, without requests. Their starts and ends show the effect of the machine on the load."""


@dataclass(frozen=True)
class Load:
    """The options of the load."""

    rate: int
    connections: int
    seconds: int


@dataclass(frozen=True)
class Outcome:
    """The counts of the load."""

    gateway: str
    run: str
    nth: int
    changes: int
    """The number of changes of pods."""
    load: dict[str, Any]

    @property
    def errors(self) -> dict[str, int]:
        errors = self.load["errors"]
        found = {name: errors[name] for name in ["connect", "timeout", "read", "write", "not_2xx"]}
        return found | {"wrong": sum(errors["wrong"].values()), "unsent": self.load["requests"]["unsent"] or 0}

    def percentile(self, which: str) -> float:
        """The latency in milliseconds."""
        return float(self.load["latency"]["percentiles_us"][which]) / 1000


def program() -> Path:
    """Returns the optimised build of the lab. A debug build would measure its own slowness."""
    lab = PROJECT / "target/local/sluicegate-lab"
    if not lab.exists():
        raise ClusterError("sluicegate-lab is not built: make build")
    return lab


def deploy(cluster: Cluster, folder: Path) -> None:
    """Deploys the backends of the study, which exit at once on SIGTERM, and their Secret."""
    cluster.import_image(standard.backend(program()))
    key, certificate = folder / "tls.key", folder / "tls.crt"
    cluster.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", f"/CN={HOST}", "-addext",
                 f"subjectAltName=DNS:{HOST}", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", str(key), "-out", str(certificate)])
    cluster.apply(cluster.kubectl("create", "secret", "tls", "app-secret", f"--cert={certificate}", f"--key={key}",
                                  "--dry-run=client", "--output=yaml"))
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 3}
    container = {"name": "app", "image": standard.BACKEND, "ports": [{"name": "http", "containerPort": 9000}],
                 "args": ["backend", "--listen", "0.0.0.0:9000", "--exit", "at-once", "--quiet"], "readinessProbe": probe,
                 "resources": {"requests": {"cpu": "50m"}}}
    for name in (SERVED, ASIDE):
        labels = {"app": name}
        cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
            "replicas": REPLICAS, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}})
    cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "app"}, "spec": {
        "selector": {"app": SERVED}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}})
    settle(cluster)


@contextmanager
def deployed(cluster: Cluster, gateway: Gateway, certificate: Path) -> Iterator[None]:
    """Deploys the gateway for the duration of the body, which begins when the gateway serves the backends."""
    backend = {"service": {"name": "app", "port": {"name": "http"}}}
    cluster.apply({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "app"}, "spec": {
        "ingressClassName": gateway.ingress_class, "tls": [{"hosts": [HOST], "secretName": "app-secret"}],
        "rules": [{"host": HOST, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]}})
    gateway.up(cluster)
    try:
        ask = ["curl", "--silent", "--fail", "--max-time", "2", "--cacert", str(certificate), "--resolve",
               f"{HOST}:443:{node_address(1)}", f"https://{HOST}/"]
        wait_until(lambda: cluster.run(ask, check=False).returncode == 0, f"{gateway.name} to serve", 30, 0.1)
        yield
    finally:
        gateway.down(cluster)


def nothing(_cluster: Cluster, _deployment: str, end: Event) -> int:
    """The static run: five pods without changes."""
    end.wait()
    return 0


def scale(cluster: Cluster, deployment: str, end: Event) -> int:
    """The dynamic run of the study."""
    changes = 0
    while True:
        for replicas, seconds in [(5, 12), (7, 10)]:
            cluster.kubectl("scale", f"deployment/{deployment}", f"--replicas={replicas}")
            if end.wait(seconds):
                return changes
            changes += 1


def restart(cluster: Cluster, deployment: str, end: Event) -> int:
    """A rolling restart every ten seconds."""
    changes = 0
    while not end.wait(10):
        cluster.kubectl("rollout", "restart", f"deployment/{deployment}")
        changes += 1
    return changes


RUNS: dict[str, tuple[Callable[[Cluster, str, Event], int], str]] = {
    "static": (nothing, SERVED), "scale": (scale, SERVED), "restart": (restart, SERVED),
    "scale-aside": (scale, ASIDE), "restart-aside": (restart, ASIDE),
}
"""The changes of each run, and their Deployment."""
OF_THE_STUDY = ("static", "scale", "restart")


def go_before(pid: int) -> None:
    """Raises the priority of the load, because a late request would count as latency of the gateway. If the kernel groups processes by
    session, niceness applies only within the group, and the group has its own niceness (sched(7))."""
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists():
        group.write_text("-15")


def settle(cluster: Cluster) -> None:
    """Reverts the last change, and waits until all its effects have ended, including terminating pods."""
    for name in (SERVED, ASIDE):
        cluster.kubectl("scale", f"deployment/{name}", f"--replicas={REPLICAS}")
        cluster.kubectl("rollout", "status", f"deployment/{name}", "--timeout=60s")
    wait_until(lambda: len(cluster.json("get", "pods")["items"]) == 2 * REPLICAS, "old pods to be gone", 60, 0.2)


def measure(cluster: Cluster, gateway: Gateway, run: str, nth: int, load: Load, folder: Path) -> Outcome:
    """Runs the load while the pods change."""
    settle(cluster)
    told = folder / f"{gateway.name}-{run}-{nth}.json"
    command = [str(program()), "load", "-t1", f"-c{load.connections}", f"-d{load.seconds}s", f"-R{load.rate}", "--json", str(told), "--verify",
               "--cacert", str(folder / "tls.crt"), "--connect-to", f"{node_address(1)}:443", f"https://{HOST}/"]
    running = cluster.popen(["nice", "--adjustment=-15", *command], name=told.stem)
    go_before(running.process.pid)
    end = Event()
    change, deployment = RUNS[run]
    with ThreadPoolExecutor() as pool:
        changes = pool.submit(change, cluster, deployment, end)
        try:
            code = running.wait(load.seconds + load.connections * 0.01 + 60)
        finally:
            end.set()
    if code:
        raise ClusterError(f"the load ended with {code}: {running.output()[-2000:]}")
    # A run with failed changes would look like a run without changes.
    return Outcome(gateway.name, run, nth, changes.result(), json.loads(told.read_text()))
