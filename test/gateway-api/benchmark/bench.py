"""What all experiments share: the cluster, its objects, the gateway and the load."""

import http.client
import json
import os
import re
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from harness import Cluster, ClusterError
from harness.processes import Process
from tests.process import BACKEND_PORT, Gateway, Manifest, Site, endpoint_slice, install_gateway_api, metadata, service

T = TypeVar("T")

CLASS = "sluicegate"
CALLERS = 16
"""The number of threads that create objects."""
GROUP = "gateway.networking.k8s.io"


class Bench:
    """A cluster with the objects of the experiments."""

    def __init__(self, cluster: Cluster, folder: Path, build: Callable[[str], Path], short: bool, listener_sets: bool) -> None:
        """`build` returns the file of a program. `short`: the experiments are as small as possible, and their figures are no results."""
        self.short, self.listener_sets = short, listener_sets
        self.cluster, self._folder = cluster, folder
        self.site = Site(cluster, folder, build)
        self.api = self.site.api
        self._lab = build("sluicegate-lab")
        self._gateways: list[Gateway] = []
        install_gateway_api(cluster, folder)
        self.api.create({"apiVersion": f"{GROUP}/v1", "kind": "GatewayClass", "metadata": {"name": CLASS},
                         "spec": {"controllerName": "sluicegate.dev/gateway-controller"}})
        self.endpoint = self.site.backend("endpoint")

    def size(self, full: T, short: T) -> T:
        """Returns a size of an experiment."""
        return short if self.short else full

    def port(self) -> int:
        """Returns a new port for Gateways."""
        return 30000 + self.site.number()

    def gateway(self) -> Gateway:
        """Starts a gateway process, which `stop` ends."""
        self._gateways.append(self.site.gateway("--gateway-address", "127.0.0.1"))
        return self._gateways[-1]

    def stop(self, log: Path) -> None:
        """Kills the gateway processes, and writes their log."""
        for gateway in self._gateways:
            gateway.running.kill()
        log.write_text("".join(gateway.log() for gateway in self._gateways))
        self._gateways.clear()

    def each(self, count: int, call: Callable[[int], None]) -> None:
        """Calls concurrently with 0, 1, 2 and so on. The first error ends the calls."""
        with ThreadPoolExecutor(CALLERS) as pool:
            try:
                for _ in pool.map(call, range(count)):
                    pass
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def upstream(self, namespace: str, name: str = "web", addresses: list[str] | None = None) -> None:
        """Creates a Service with the ports 80 and 8080, and its endpoints. The Service has no address, because the cluster has too few."""
        made = service(namespace, name)
        # Each endpoint has a share of a small load, whatever the time of its first response.
        made["metadata"]["annotations"] = {"sluicegate.dev/load-balance": "RoundRobin"}
        made["spec"] = {"clusterIP": "None", "ports": [{"name": "http", "port": 80, "targetPort": BACKEND_PORT},
                                                       {"name": "other", "port": 8080, "targetPort": BACKEND_PORT}]}
        slice_ = endpoint_slice(namespace, addresses or [self.endpoint], name)
        slice_["ports"] = [{"name": port["name"], "port": BACKEND_PORT, "protocol": "TCP"} for port in made["spec"]["ports"]]
        self.api.create(made, slice_)

    def load(self, port: int, host: str, *options: str, seconds: float) -> "Load":
        return Load(self.cluster, self._lab, self._folder / f"load-{self.site.number()}.json", port, host, options, seconds)


class Load:
    """A load of sluicegate-lab."""

    def __init__(self, cluster: Cluster, lab: Path, results: Path, port: int, host: str, options: tuple[str, ...], seconds: float) -> None:
        self._results, self._seconds = results, seconds
        self._running = cluster.popen([str(lab), "load", "-t1", f"-d{seconds:g}s", "--json", str(results), "--connect-to",
                                       f"127.0.0.1:{port}", *options, f"http://{host}/"], name=results.stem)

    def results(self) -> dict[str, Any]:
        """Waits for the end of the load, and returns its results."""
        if code := self._running.wait(self._seconds + 60):
            raise ClusterError(f"the load ended with {code}: {self._running.output()[-2000:]}")
        results: dict[str, Any] = json.loads(self._results.read_text())
        return results


def failed(load: dict[str, Any]) -> int:
    """Returns the number of requests that failed, received a status other than 2xx, or could not be sent."""
    errors = load["errors"]
    return errors["total"] + (load["requests"]["unsent"] or 0)


def latency(load: dict[str, Any], percentile: str) -> float:
    """Returns a percentile of the latency, in milliseconds."""
    return float(load["latency"]["percentiles_us"][percentile]) / 1000


class Client:
    """A client with a kept-alive connection to a port of the gateway."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self._cluster, self._port = cluster, port
        self._connection: http.client.HTTPConnection | None = None

    def get(self, host: str, path: str = "/") -> tuple[int, http.client.HTTPMessage]:
        """Returns the status and the headers of a response. Without a response, the status is 0."""
        connection, self._connection = self._connection, None
        try:
            connection = connection or self._connect()
            connection.request("GET", path, headers={"Host": host})
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            if connection:
                connection.close()
            return 0, http.client.HTTPMessage()
        self._connection = connection
        return answer.status, answer.headers

    def close(self) -> None:
        if self._connection:
            self._connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        with self._cluster.namespace.inside():
            connection.connect()
        assert isinstance(connection.sock, socket.socket)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def age(gateway: Gateway) -> float:
    """Returns the seconds since the start of the process."""
    process = Process.find(gateway.pid)
    if process is None:
        raise ClusterError(f"{gateway.name} ended:\n{gateway.log()[-3000:]}")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(process.started) / os.sysconf("SC_CLK_TCK")


def cpu_time(gateway: Gateway) -> float:
    """Returns the CPU time of the process so far, in seconds. `/proc/PID/stat` would round it to 10 ms. The clock's number is from
    clock_getcpuclockid(3)."""
    return time.clock_gettime(~gateway.pid << 3 | 2)


def peak_memory(gateway: Gateway) -> float:
    """Returns the largest resident memory so far, in MiB."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{gateway.pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1024


# Objects.

def gateway_object(namespace: str, name: str, port: int, hosts: list[str] | None = None, spec: Manifest | None = None) -> Manifest:
    """Returns a Gateway with a listener for each host at a port, or with one listener for all hosts. The listeners accept all routes."""
    return {"apiVersion": f"{GROUP}/v1", "kind": "Gateway", "metadata": metadata(namespace, name),
            "spec": {"gatewayClassName": CLASS, "listeners": listeners(port, hosts), **(spec or {})}}


def listeners(port: int, hosts: list[str] | None = None) -> list[Manifest]:
    every: Manifest = {"protocol": "HTTP", "port": port, "allowedRoutes": {"namespaces": {"from": "All"}}}
    return [{"name": f"http-{n}", "hostname": host, **every} for n, host in enumerate(hosts)] if hosts else [{"name": "http", **every}]


def parent(gateway: Manifest, section: str | None = None) -> Manifest:
    """Returns a reference to a Gateway or a ListenerSet, or to one of its listeners."""
    meta = gateway["metadata"]
    reference = {"group": GROUP, "kind": gateway["kind"], "namespace": meta["namespace"], "name": meta["name"]}
    return {**reference, "sectionName": section} if section else reference


def http_route(namespace: str, name: str, parent: Manifest, host: str, *rules: Manifest) -> Manifest:
    """Returns an HTTPRoute. Without rules, all requests go to the Service `web`."""
    return {"apiVersion": f"{GROUP}/v1", "kind": "HTTPRoute", "metadata": metadata(namespace, name),
            "spec": {"parentRefs": [parent], "hostnames": [host], "rules": list(rules) or [rule()]}}


def rule(path: str = "/", service: str = "web", port: int = 80, headers: dict[str, str] | None = None,
         filters: list[Manifest] | None = None) -> Manifest:
    """Returns a rule with one match and one backend."""
    match: Manifest = {"path": {"type": "PathPrefix", "value": path}}
    if headers:
        match["headers"] = [{"name": name, "value": value} for name, value in headers.items()]
    return {"matches": [match], "backendRefs": [{"name": service, "port": port}], **({"filters": filters} if filters else {})}


def sets_header(kind: str, name: str, value: str) -> Manifest:
    """Returns a filter that sets a header: RequestHeaderModifier or ResponseHeaderModifier."""
    return {"type": kind, f"{kind[0].lower()}{kind[1:]}": {"set": [{"name": name, "value": value}]}}
