"""The cluster of the soak: its objects, its pods and its gateways. All processes run in the network namespace of the cluster."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cluster"))

from harness import Api, ApiError, Cluster, ClusterError, Running, wait_until  # noqa: E402
from harness.addresses import API_SERVER, API_SERVER_PORT  # noqa: E402
from harness.api import path as path_of  # noqa: E402
from harness.network import BRIDGE  # noqa: E402
from harness.paths import PROJECT  # noqa: E402
from tests.gateway import Authority  # noqa: E402
from tests.policies import VERSION, policy  # noqa: E402
from tests.process import (  # noqa: E402
    CLUSTER_WIDE, HOME, NAMESPACED, WRITE, Manifest, Site, ingress, install_gateway_api, lease_rules, metadata, secret,
)

import client  # noqa: E402
import pod  # noqa: E402

T = TypeVar("T")

NAMESPACE = "soak"
GROUP = "gateway.networking.k8s.io"
ADMIN = 9901
ROUTES = 7080
"""The port of the HTTP listener of the Gateway."""
KEY = "a-long-and-random-key-of-the-soak"

GRACE = 5.0
"""The time in seconds from the deletion of a pod to its SIGTERM, as a preStop hook of 5 s."""
PATIENCE = 120.0
"""The timeout in seconds of each wait for a change. No test measures these waits."""

SHUTDOWN = ["--shutdown-grace", "2s", "--shutdown-idle", "3s", "--shutdown-timeout", "20s"]
"""Sessions of the load are shorter than the timeout."""
ENDPOINTS = ["--pool-idle-timeout", "20s", "--udp-idle-timeout", "10s"]
"""Idle connections and UDP clients end soon, so that the end of the soak can show that none is left."""


class Gate:
    """The API server. Changes that need it hold the gate together; an outage holds the gate alone."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._holders, self._waiting, self._closed = 0, 0, False

    @contextmanager
    def open(self) -> Iterator[None]:
        with self._condition:
            self._condition.wait_for(lambda: not self._closed and not self._waiting)
            self._holders += 1
        try:
            yield
        finally:
            with self._condition:
                self._holders -= 1
                self._condition.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        with self._condition:
            self._waiting += 1
            self._condition.wait_for(lambda: not self._closed and not self._holders)
            self._waiting -= 1
            self._closed = True
        try:
            yield
        finally:
            with self._condition:
                self._closed = False
                self._condition.notify_all()


class Plane:
    """A gateway, a control plane or a data plane: the current process, and the processes that it replaced."""

    def __init__(self, soak: "Soak", name: str, address: str, argv: list[str], port: int = ADMIN) -> None:
        self.soak, self.name, self.address, self.argv, self.port = soak, name, address, argv, port
        self.running: Running | None = None
        self.generation = 0
        self.logs: list[Path] = []

    def start(self) -> Running:
        """Starts a process, which becomes the current process."""
        self.generation += 1
        log = self.soak.logs / f"{self.name}-{self.generation}.log"
        self.logs.append(log)
        self.running = self.soak.popen(self.argv, log)
        return self.running

    @property
    def pid(self) -> int:
        assert self.running
        return self.running.process.pid

    def ask(self, path: str, host: str = "localhost", port: int = 0, headers: dict[str, str] | None = None) -> tuple[int, str, http.client.HTTPMessage]:
        """Sends a request over a new connection. Without a response, the status is 0."""
        connection = http.client.HTTPConnection(self.address, port or self.port, timeout=15)
        try:
            with self.soak.cluster.namespace.inside():
                connection.connect()
            connection.request("GET", path, headers={"Host": host, "Connection": "close", **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace"), response.headers
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error), http.client.HTTPMessage()
        finally:
            connection.close()

    def metrics(self) -> dict[str, float]:
        """Returns the sum of each metric over all labels; nothing if the plane does not respond."""
        sums: dict[str, float] = {}
        for name, value in re.findall(r"^(\w+)(?:\{.*\})? (\S+)$", self.ask("/metrics")[1], re.MULTILINE):
            sums[name] = sums.get(name, 0) + float(value)
        return sums

    def await_ready(self) -> None:
        def ready() -> bool:
            if self.running is None or not self.running.running:
                raise ClusterError(f"{self.name} ended: {self.logs[-1].read_text(errors='replace')[-2000:]}")
            return self.ask("/readyz")[0] == 200

        wait_until(ready, f"{self.name} to be ready", PATIENCE, 0.1)


@dataclass
class Pod:
    """A pod: its address, its process, and its conditions in the EndpointSlice."""

    name: str
    address: str
    running: Running
    conditions: dict[str, bool] = field(default_factory=lambda: {"ready": True, "serving": True, "terminating": False})


@dataclass
class Port:
    """A Service of a workload: the port of its pods, and its protocol."""

    service: str
    port: int = pod.HTTP
    protocol: str = "TCP"
    application: str = ""


class Workload:
    """Pods, and the Services that lead to them. A pod is in the slices once it is ready, and until it has ended."""

    def __init__(self, soak: "Soak", name: str, ports: list[Port], command: Callable[[str, str], list[str]]) -> None:
        """`command` returns the command of a pod with a name and an address."""
        self.soak, self.name, self.ports, self._command = soak, name, ports, command
        self.pods: list[Pod] = []
        self._numbers = itertools.count(1)

    def create(self, replicas: int) -> None:
        for port in self.ports:
            application = {"appProtocol": port.application} if port.application else {}
            self.soak.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata(NAMESPACE, port.service), "spec": {
                "clusterIP": "None", "ports": [{"port": 80, "targetPort": port.port, "protocol": port.protocol, **application}]}})
        for _ in range(replicas):
            self.start()
        self.publish()

    def start(self) -> Pod:
        """Starts a pod, and waits until it is ready. `publish` adds the pod to the slices."""
        name = f"{self.name}-{next(self._numbers)}"
        address = self.soak.address()
        self.soak.cluster.namespace.sh(f"ip address add {address}/32 dev {BRIDGE}")
        running = self.soak.popen(self._command(name, address), self.soak.logs / f"pods/{name}.log")
        wait_until(lambda: "serves at" in running.output() or not running.running, f"the pod {name}", PATIENCE)
        if not running.running:
            raise ClusterError(f"the pod {name} ended: {running.output()}")
        started = Pod(name, address, running)
        self.pods.append(started)
        return started

    def remove(self, removed: list[Pod]) -> None:
        """Deletes pods as Kubernetes does: the slices say first that the pods terminate, and SIGTERM follows after the preStop hook."""
        if self.soak.plant == "abrupt":
            for each in removed:
                each.running.kill()
        with self.soak.gate.open():
            for each in removed:
                each.conditions = {"ready": False, "serving": True, "terminating": True}
            self.publish()
            time.sleep(GRACE)
        for each in removed:
            # Popen sends no signal to a process that has ended.
            each.running.send(signal.SIGTERM)
        for each in removed:
            each.running.wait(60)
        self.forget(removed)

    def forget(self, ended: list[Pod]) -> None:
        """Removes ended pods from the slices, and their addresses from the network."""
        self.pods = [each for each in self.pods if each not in ended]
        with self.soak.gate.open():
            self.publish()
        for each in ended:
            self.drop(each)

    def drop(self, dropped: Pod) -> None:
        """Removes the address of a pod: from now on, packets to the address are dropped."""
        self.soak.cluster.namespace.sh(f"ip address delete {dropped.address}/32 dev {BRIDGE} 2>/dev/null || true")

    def publish(self) -> None:
        """Writes the slices."""
        for port in self.ports:
            self.soak.apply({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {**metadata(NAMESPACE, f"{port.service}-1"), "labels": {"kubernetes.io/service-name": port.service}},
                "endpoints": [{"addresses": [each.address], "conditions": each.conditions, "targetRef": {
                    "kind": "Pod", "namespace": NAMESPACE, "name": each.name}} for each in self.pods],
                "ports": [{"port": port.port, "protocol": port.protocol, **({"appProtocol": port.application} if port.application else {})}],
            })


class Soak:
    """All parts of the soak. `cluster` is up."""

    def __init__(self, cluster: Cluster, folder: Path, programs: dict[str, Path], plant: str | None = None) -> None:
        """`folder` receives the logs. `plant`: a fault that the soak must find. `errors`: one of 50 responses of the pods of `tools` has the status 500.
        `abrupt`: removed pods are killed without notice."""
        self.cluster, self.folder, self.logs, self.programs, self.plant = cluster, folder, folder / "logs", programs, plant
        self.gate = Gate()
        self.api = Api(cluster)
        self._accounts = Site(cluster, folder)
        self._addresses = itertools.count()
        self._running: list[Running] = []
        self._ticket_keys = [os.urandom(48), os.urandom(48)]
        (folder / "ca").mkdir()
        self.authority = Authority(folder / "ca")
        lab, sluicegate = str(programs["sluicegate-lab"]), str(programs["sluicegate"])

        def backend(name: str, address: str) -> list[str]:
            return [lab, "backend", "--name", name, "--listen", f"{address}:{pod.HTTP}", "--exit", "drain"]

        def tools(name: str, address: str) -> list[str]:
            return [sys.executable, str(HERE / "pod.py"), "--address", address, *(["--wrong", "50"] if plant == "errors" else [])]

        self.web = Workload(self, "web", [Port("web"), Port("web-grpc", application="kubernetes.io/h2c")], backend)
        self.other = Workload(self, "other", [Port("other")], backend)
        self.fragile = Workload(self, "fragile", [Port("fragile")], backend)
        self.tools = Workload(self, "tools", [Port("tools"), Port("tools-tcp", pod.TCP), Port("tools-udp", pod.UDP, "UDP")], tools)

        kubernetes = ["--kubernetes", "--kubeconfig", str(self._kubeconfig()), "--pod-namespace", HOME, "--lease-name", "soak",
                      "--ssl-redirect", "false", "--tls-ticket-secret", f"{NAMESPACE}/tickets"]

        def gateway(name: str, address: str) -> Plane:
            return Plane(self, name, address, [
                sluicegate, "serve", *kubernetes, "--pod-name", name, "--gateway-address", address, *listen(address), *SHUTDOWN, *ENDPOINTS])

        data_plane, split = "127.0.3.1", self._planes()
        self.steady = gateway("steady", "127.0.1.1")
        """Runs for the whole soak. Its memory and its file descriptors must be flat."""
        self.replaced = gateway("replaced", "127.0.2.1")
        """New processes take over its sockets."""
        self.control = Plane(self, "control-plane", "127.0.3.2", [
            sluicegate, "control-plane", *kubernetes, "--pod-name", "control-plane", "--gateway-address", data_plane,
            "--listen", "127.0.3.2:9902", "--admin", f"127.0.3.2:{ADMIN}", "--tls-dir", str(split / "control"),
            "--listen-http", f"{data_plane}:{client.HTTP}", "--listen-https", f"{data_plane}:{client.HTTPS}", *ENDPOINTS])
        self.data = Plane(self, "data-plane", data_plane, [
            sluicegate, "data-plane", "--control-plane", "127.0.3.2:9902", "--tls-dir", str(split / "data"),
            "--snapshot", str(folder / "snapshot"), *listen(data_plane), *SHUTDOWN])
        """Runs for the whole soak, beside a control plane that restarts."""
        self.gateways = [self.steady, self.replaced, self.data]
        self.planes = [*self.gateways, self.control]

    # Processes.

    def popen(self, argv: list[str], log: Path) -> Running:
        """Starts a process in the network of the cluster. The process ends with the soak."""
        running = Running(argv, self.cluster.namespace.enter(), log, self.cluster.environment())
        self._running = [each for each in self._running if each.running] + [running]
        return running

    def kill(self) -> None:
        """Kills all processes of the soak that are running."""
        for running in self._running:
            running.kill()

    def address(self) -> str:
        """Returns an address that no pod had before."""
        number = next(self._addresses)
        return f"198.18.{100 + number // 250 % 150}.{number % 250 + 1}"

    def _kubeconfig(self) -> Path:
        """Returns a kubeconfig whose token is valid for longer than the soak. For a pod, the kubelet renews the token."""
        account = self._accounts.account(NAMESPACED + CLUSTER_WIDE + WRITE, lease_rules("soak"))
        token = self.api.ask("POST", f"/api/v1/namespaces/{HOME}/serviceaccounts/{account}/token", {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 14 * 86400}})
        file = self.folder / "kubeconfig"
        file.touch(mode=0o600)
        file.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "soak",
            "clusters": [{"name": "soak", "cluster": {
                "server": f"https://{API_SERVER}:{API_SERVER_PORT}",
                "certificate-authority": str(self.cluster.folder.certificates / "ca.crt")}}],
            "users": [{"name": "soak", "user": {"token": token["status"]["token"]}}],
            "contexts": [{"name": "soak", "context": {"cluster": "soak", "user": "soak"}}],
        }))
        return file

    def _planes(self) -> Path:
        """Writes the certificates with which the planes authenticate each other."""
        folder = self.folder / "planes"
        for plane, name in (("control", "sluicegate-control-plane"), ("data", "data-plane")):
            (folder / plane).mkdir(parents=True)
            certificate, key = self.authority.sign(name)
            for file, source in {"tls.crt": certificate, "tls.key": key, "ca.crt": self.authority.file}.items():
                (folder / plane / file).write_bytes(source.read_bytes())
        return folder

    # Objects.

    def retry(self, call: Callable[[], T]) -> T:
        """Repeats a call while the API server is not available, as controllers do."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return call()
            except (OSError, http.client.HTTPException, ApiError) as error:
                if isinstance(error, ApiError) and error.status < 500 and error.status not in (401, 403, 409, 429) or time.monotonic() > end:
                    raise
            time.sleep(0.2)

    def apply(self, *objects: Manifest) -> None:
        for each in objects:
            self.retry(lambda each=each: self.api.ask("PATCH", f"{path_of(each)}?fieldManager=soak&force=true", each, "application/apply-patch+yaml"))

    def delete(self, *objects: Manifest) -> None:
        def delete(like: Manifest) -> None:
            try:
                self.api.delete(like)
            except ApiError as error:
                if error.status != 404:
                    raise

        for each in objects:
            self.retry(lambda each=each: delete(each))

    def install(self) -> None:
        """Creates all objects, and starts the pods and the gateways."""
        self.cluster.kubectl("apply", f"--filename={PROJECT / 'charts/sluicegate/crds'}")
        install_gateway_api(self.cluster, self.folder)
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
                   {"apiVersion": f"{GROUP}/v1", "kind": "GatewayClass", "metadata": {"name": "sluicegate"},
                    "spec": {"controllerName": "sluicegate.dev/gateway-controller"}})
        for workload, replicas in ((self.web, 3), (self.other, 2), (self.fragile, 4), (self.tools, 2)):
            workload.create(replicas)
        self.apply(
            self.certificate(), self.tickets(),
            ingress(NAMESPACE, "web", "web.soak.test", tls="web"),
            ingress(NAMESPACE, "grpc", "grpc.soak.test", "web-grpc", tls="web"),
            ingress(NAMESPACE, "moved", "moved.soak.test", "web"),
            ingress(NAMESPACE, "fragile", "fragile.soak.test", "fragile"),
            policy("TrafficPolicy", NAMESPACE, "fragile", "fragile", timeouts={"backendRequest": "3s"}, retries={"attempts": 4, "budget": {"percent": 100, "minPerSecond": 100}}),
            ingress(NAMESPACE, "tools", "tools.soak.test", "tools", annotations={"sluicegate.dev/compression": "gzip"}),
            policy("TrafficPolicy", NAMESPACE, "tools", "tools", cache={"maxSize": "4Mi"}),
            ingress(NAMESPACE, "key", "key.soak.test"),
            policy("SecurityPolicy", NAMESPACE, "key", "key", authentication={"apiKey": {}}),
            self.limit(1_000_000),
            secret(NAMESPACE, "key", {"key": KEY.encode()}),
            {"apiVersion": VERSION, "kind": "Consumer", "metadata": metadata(NAMESPACE, "caller"), "spec": {"apiKeys": [{"secretRef": {"name": "key"}}]}},
            ingress(NAMESPACE, "policy", "policy.soak.test"), self.header("0"),
            self.gateway_object(), self.route({"web": 1}),
            self.below_http("TCPRoute", "tcp"), self.below_http("UDPRoute", "udp"),
        )
        for plane in (self.steady, self.replaced, self.control, self.data):
            plane.start()
        for plane in self.planes:
            plane.await_ready()
        self.in_step("start")

    def certificate(self) -> Manifest:
        """Returns the Secret with a new certificate."""
        made = self.authority.secret("web", "*.soak.test")
        del made["data"]["ca.crt"]
        made["metadata"]["namespace"] = NAMESPACE
        return made

    def tickets(self) -> Manifest:
        return secret(NAMESPACE, "tickets", {str(number): key for number, key in enumerate(self._ticket_keys)})

    def rotate_tickets(self) -> None:
        """A new key seals the tickets of TLS sessions."""
        self._ticket_keys = [os.urandom(48), self._ticket_keys[0]]
        self.apply(self.tickets())

    def limit(self, requests: int) -> Manifest:
        """Returns a policy whose limit the load never reaches."""
        return policy("RateLimitPolicy", NAMESPACE, "key", "key", limits=[{"name": "all", "requests": requests, "per": "1s"}])

    def header(self, value: str) -> Manifest:
        return policy("TrafficPolicy", NAMESPACE, "policy", "policy", responseHeaders={"set": [{"name": "X-Soak", "value": value}]})

    def gateway_object(self) -> Manifest:
        ports = (("http", "HTTP", ROUTES), ("tcp", "TCP", client.TCP), ("udp", "UDP", client.UDP))
        return {"apiVersion": f"{GROUP}/v1", "kind": "Gateway", "metadata": metadata(NAMESPACE, "edge"), "spec": {
            "gatewayClassName": "sluicegate", "listeners": [{"name": name, "protocol": protocol, "port": port} for name, protocol, port in ports]}}

    def route(self, weights: dict[str, int]) -> Manifest:
        """Returns the HTTPRoute of the load, with Services and their weights."""
        return {"apiVersion": f"{GROUP}/v1", "kind": "HTTPRoute", "metadata": metadata(NAMESPACE, "route"), "spec": {
            "parentRefs": [{"name": "edge", "sectionName": "http"}], "hostnames": ["route.soak.test"],
            "rules": [{"backendRefs": [{"name": name, "port": 80, "weight": weight} for name, weight in weights.items()]}]}}

    def below_http(self, kind: str, listener: str) -> Manifest:
        return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata(NAMESPACE, listener), "spec": {
            "parentRefs": [{"name": "edge", "sectionName": listener}], "rules": [{"backendRefs": [{"name": f"tools-{listener}", "port": 80}]}]}}

    def everywhere(self, probe: Callable[[Plane], bool], what: str) -> None:
        """Waits until a condition holds for each gateway."""
        for gateway in self.gateways:
            wait_until(lambda: probe(gateway), f"{what} at {gateway.name}", PATIENCE, 0.1)

    def serves(self, host: str, port: int = client.HTTP, pods: str = "") -> None:
        """Waits until each gateway serves a host, from the pods with this prefix."""
        def served(gateway: Plane) -> bool:
            status, body, _ = gateway.ask("/", host, port)
            return status == 200 and f"Server name: {pods}" in body

        self.everywhere(served, f"{host} from {pods or 'any pod'}")

    def in_step(self, name: str) -> None:
        """Waits until each gateway has applied all earlier changes: the gateways serve a new host."""
        made = ingress(NAMESPACE, "marker", f"{name}.marker.test")
        self.apply(made)
        self.serves(f"{name}.marker.test")


def listen(address: str) -> list[str]:
    """Returns the options of the listeners."""
    return ["--workers", "2", "--listen", f"{address}:{client.HTTP}", "--listen-https", f"{address}:{client.HTTPS}", "--admin", f"{address}:{ADMIN}"]
