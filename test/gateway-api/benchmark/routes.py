"""Experiments with many routes: attached, probe, routes and scale."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from harness import ClusterError, wait_until
from tests.process import Manifest, metadata

from .bench import (
    CALLERS, GROUP, Bench, Client, age, cpu_time, gateway_object, http_route, listeners, parent, peak_memory, rule, sets_header,
)
from .figures import Figure, faults, milliseconds

POLL = 0.002
"""The pause between two requests for a route that is not served yet, in seconds."""

Target = tuple[int, str, str]
"""The port, host and path of a request."""


def attached(bench: Bench) -> list[Figure]:
    """Routes attach to one Gateway, and are deleted again."""
    count = bench.size(1000, 20)
    namespace, gateway = bench.site.namespace(), bench.gateway()
    gateway.await_ready()
    bench.upstream(namespace)
    edge = gateway_object(namespace, "edge", bench.port())
    bench.api.create(edge)
    seen = AttachedRoutes(bench, edge)
    seen.wait_for(0, 30)
    routes = [http_route(namespace, f"route-{n}", parent(edge), f"route-{n}.test") for n in range(count)]
    versions, writes, cpu = len(seen.versions), gateway.metric("sluicegate_status_writes_total"), cpu_time(gateway)

    def change(call: Callable[[Manifest], None], wanted: int) -> tuple[float, float]:
        begun = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            changing = pool.submit(bench.each, count, lambda n: call(routes[n]))
            seen.wait_while(lambda: not changing.done(), wanted)
            changing.result()
            changed = time.monotonic()
            at = seen.wait_for(wanted, 300)
        return changed - begun, max(0.0, at - changed)

    creating, grown = change(bench.api.create, count)
    # Deleted routes get no status, so the writes for all routes must end first.
    drained = settle(lambda: gateway.metric("sluicegate_status_writes_total"), bench.size(3, 1), 300)
    deleting, shrunk = change(bench.api.delete, 0)
    settle(lambda: gateway.metric("sluicegate_status_writes_total"), bench.size(3, 1), 60)
    return [
        Figure("time to create the routes", creating, "s"),
        Figure("attachedRoutes is right after the last creation", grown, "s"),
        Figure("the last status write after that", drained, "s", note="the statuses of the routes"),
        Figure("time to delete the routes", deleting, "s"),
        Figure("attachedRoutes is 0 after the last deletion", shrunk, "s"),
        Figure("status writes", gateway.metric("sluicegate_status_writes_total") - writes, note=f"of {count:,} routes and the Gateway"),
        Figure("versions of the Gateway", len(seen.versions) - versions, note="seen; each is a write of its status"),
        Figure("CPU time of the gateway", cpu_time(gateway) - cpu, "s"),
        faults("attachedRoutes over the number of routes", sum(value > count for value in seen.values)),
    ]


class AttachedRoutes:
    """The observed values of `attachedRoutes` of a Gateway with one listener."""

    def __init__(self, bench: Bench, gateway: Manifest) -> None:
        self._bench, self._gateway = bench, gateway
        self.versions: set[str] = set()
        self.values: list[int] = []

    def read(self) -> int | None:
        found = self._bench.api.get(self._gateway)
        self.versions.add(found["metadata"]["resourceVersion"])
        status = found.get("status", {}).get("listeners", [])
        if not status:
            return None
        value = int(status[0]["attachedRoutes"])
        if self.values[-1:] != [value]:
            self.values.append(value)
            self._at = time.monotonic()
        return value

    def wait_while(self, busy: Callable[[], bool], wanted: int) -> None:
        """Reads the values until the end of a change."""
        while busy():
            self.read()
            time.sleep(0.01)

    def wait_for(self, wanted: int, timeout: float) -> float:
        """Waits for a value, and returns when it was first seen."""
        wait_until(lambda: self.read() == wanted, f"attachedRoutes to be {wanted}, not {self.values[-1:]}", timeout, 0.01)
        return self._at


def settle(value: Callable[[], float], quiet: float, timeout: float) -> float:
    """Waits until a value stays the same for this time, and returns the seconds until its last change."""
    begun = changed = time.monotonic()
    last = value()
    while time.monotonic() - changed < quiet:
        if time.monotonic() - begun > timeout:
            raise ClusterError(f"the value {last} still changes after {timeout:g} s")
        time.sleep(0.05)
        now = value()
        if now != last:
            last, changed = now, time.monotonic()
    return changed - begun


def probe(bench: Bench) -> list[Figure]:
    """Routes are created one by one, and each is requested until it is served."""
    count = bench.size(1000, 20)
    namespace, gateway, port = bench.site.namespace(), bench.gateway(), bench.port()
    gateway.await_ready()
    bench.upstream(namespace)
    edge = gateway_object(namespace, "edge", port)
    first = http_route(namespace, "first", parent(edge), "first.test")
    bench.api.create(edge, first)
    client = Client(bench.cluster, port)
    wait_until(lambda: client.get("first.test")[0] == 200, "the first route", 30, 0.01)
    filters = [sets_header(kind, "x-added", "value") for kind in ("RequestHeaderModifier", "ResponseHeaderModifier")]
    after_request, after_creation, unexpected, unstable = [], [], 0, 0
    for n in range(count):
        # The second rule of each route names a Service that does not exist, as in the public benchmark.
        route = http_route(namespace, f"route-{n}", parent(edge), f"route-{n}.test", rule(f"/{n}", filters=filters),
                           rule("/", service="missing", filters=filters))
        asked = time.monotonic()
        bench.api.create(route)
        created = time.monotonic()
        while (status := client.get(f"route-{n}.test", f"/{n}")[0]) != 200:
            unexpected += status != 404
            if time.monotonic() - created > 60:
                raise ClusterError(f"route {n} is not served after 60 s: {status}")
            time.sleep(POLL)
        served = time.monotonic()
        after_request.append(served - asked)
        after_creation.append(served - created)
        unstable += sum(client.get(f"route-{n}.test", f"/{n}")[0] != 200 for _ in range(3))
    # The delay of the last tenth shows whether the delay grows with the number of routes.
    last = sorted(after_creation[-max(1, count // 10):])
    return [
        *milliseconds("creation until 200", after_creation, {"p99": 100}),
        Figure("creation until 200, p50 of the last tenth", last[len(last) // 2] * 1000, "ms", note="shows growth with the number of routes"),
        *milliseconds("request of the creation until 200", after_request),
        faults("responses before 200 other than 404", unexpected),
        faults("responses after 200 other than 200", unstable),
        Figure("CPU time of the gateway for each route", cpu_time(gateway) / count * 1000, "ms"),
        Figure("RSS", gateway.memory(), "MiB"),
    ]


def routes(bench: Bench) -> list[Figure]:
    """The gateway process starts in a cluster with many routes in many namespaces."""
    count, spaces = bench.size((5000, 50), (40, 4))
    namespaces, port = [bench.site.namespace() for _ in range(spaces)], bench.port()
    edge = gateway_object(namespaces[0], "edge", port)
    bench.api.create(edge)

    def create(n: int) -> None:
        namespace, name = namespaces[n % spaces], f"route-{n}"
        bench.upstream(namespace, name)
        bench.api.create(http_route(namespace, name, parent(edge), f"{name}.test", rule(service=name)))

    bench.each(count, create)
    return cold_start(bench, [(port, f"route-{n}.test", "/") for n in range(count)], ready=5, memory=100)


def scale(bench: Bench) -> list[Figure]:
    """The gateway process starts in a cluster with many Gateways, ListenerSets and routes."""
    gateways, sets, each = bench.size((50, 50, 16), (3, 3, 4))
    targets = []
    for g in range(gateways):
        namespace, port = bench.site.namespace(), bench.port()
        hosts = [f"set-{s}.gateway-{g}.test" for s in range(sets)]
        parents = with_listener_sets(bench, namespace, port, hosts) if bench.listener_sets else with_listeners(bench, namespace, port, hosts)

        def create(s: int) -> None:
            name = f"web-{s}"
            bench.upstream(namespace, name)
            bench.api.create(*(http_route(namespace, f"{name}-{r}", parents[s], hosts[s], rule(f"/{r}", name)) for r in range(each)))

        bench.each(sets, create)
        targets += [(port, host, f"/{r}") for host in hosts for r in range(each)]
    return cold_start(bench, targets)


def with_listener_sets(bench: Bench, namespace: str, port: int, hosts: list[str]) -> list[Manifest]:
    """Creates a Gateway and a ListenerSet for each host. Returns the references to the ListenerSets."""
    edge = gateway_object(namespace, "edge", port, ["edge.test"], {"allowedListeners": {"namespaces": {"from": "Same"}}})
    made = [{"apiVersion": f"{GROUP}/v1", "kind": "ListenerSet", "metadata": metadata(namespace, f"set-{s}"),
             "spec": {"parentRef": parent(edge), "listeners": listeners(port, [host])}} for s, host in enumerate(hosts)]
    bench.api.create(edge)
    bench.each(len(made), lambda n: bench.api.create(made[n]))
    return [parent(each) for each in made]


def with_listeners(bench: Bench, namespace: str, port: int, hosts: list[str]) -> list[Manifest]:
    """Creates a Gateway with a listener for each host. Returns the references to the listeners."""
    edge = gateway_object(namespace, "edge", port, hosts)
    bench.api.create(edge)
    return [parent(edge, listener["name"]) for listener in edge["spec"]["listeners"]]


def cold_start(bench: Bench, targets: list[Target], ready: float | None = None, memory: float | None = None) -> list[Figure]:
    """Starts a gateway, and sends a request for each route when the gateway is ready. `ready` and `memory`: the targets, in seconds and MiB."""
    gateway = bench.gateway()
    gateway.await_ready(bench.size(300, 30))
    seconds, used = age(gateway), cpu_time(gateway)
    missing = sweep(bench, targets)
    first = len(missing)
    while missing:
        if age(gateway) > 600:
            raise ClusterError(f"{len(missing)} of {len(targets)} routes are not served after 600 s, such as {missing[0]};"
                               f" the log of the gateway:\n{gateway.log()[-2000:]}")
        missing = sweep(bench, missing)
        seconds = age(gateway)
    return [
        Figure("routes", len(targets)),
        Figure("start of the process until all routes are served", seconds, "s", ready),
        faults("routes that are not served when the gateway is ready", first),
        Figure("CPU time until ready", used, "s"),
        Figure("RSS when served", gateway.memory(), "MiB", memory),
        Figure("largest RSS", peak_memory(gateway), "MiB"),
    ]


def sweep(bench: Bench, targets: list[Target]) -> list[Target]:
    """Sends a request for each route, and returns the routes whose response is not 200."""
    clients = {port: Client(bench.cluster, port) for port, _, _ in targets}
    try:
        return [(port, host, path) for port, host, path in targets if clients[port].get(host, path)[0] != 200]
    finally:
        for client in clients.values():
            client.close()
