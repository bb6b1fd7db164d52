"""Experiments with a load: change, failover and cost."""

import statistics
import time

from harness import ClusterError, wait_until
from tests.process import endpoints, ingress

from .bench import Bench, Client, cpu_time, failed, gateway_object, http_route, latency, parent, rule, sets_header
from .echo import Echo
from .figures import Figure, faults, milliseconds


def change(bench: Bench) -> list[Figure]:
    """A route changes each second under a load, beside many other routes."""
    beside, rate, seconds = bench.size((1000, 1500, 60), (20, 200, 3))
    namespace, gateway, port = bench.site.namespace(), bench.gateway(), bench.port()
    gateway.await_ready()
    bench.upstream(namespace)
    edge = gateway_object(namespace, "edge", port)
    route = http_route(namespace, "changed", parent(edge), "changed.test")
    bench.api.create(edge, route)
    bench.each(beside, lambda n: bench.api.create(http_route(namespace, f"route-{n}", parent(edge), f"route-{n}.test")))
    client = Client(bench.cluster, port)
    for host in ("changed.test", f"route-{beside - 1}.test"):
        wait_until(lambda: client.get(host)[0] == 200, f"the route of {host}", 60, 0.01)

    quiet = bench.load(port, "changed.test", f"-R{rate}", "-c50", seconds=seconds).results()
    load = bench.load(port, "changed.test", f"-R{rate}", "-c50", seconds=seconds)
    applied = []
    begun = time.monotonic()
    for n in range(seconds):
        time.sleep(max(0.0, begun + 0.5 + n - time.monotonic()))
        # The change selects the other port of the Service, and the header proves that the gateway applied the change.
        edit = rule(port=(80, 8080)[n % 2], filters=[sets_header("ResponseHeaderModifier", "x-change", str(n))])
        bench.api.patch(route, {"spec": {"rules": [edit]}})
        changed = time.monotonic()
        wait_until(lambda: client.get("changed.test")[1]["x-change"] == str(n), f"change {n}", 30, 0.002)
        applied.append(time.monotonic() - changed)
    changing = load.results()
    return [
        faults("failed requests without changes", failed(quiet), f"of {quiet['requests']['due']:,}"),
        faults("failed requests with changes", failed(changing), f"of {changing['requests']['due']:,}, during {seconds} changes"),
        *(Figure(f"{name}, {which}", latency(load, which.removeprefix("p")), "ms")
          for which in ("p50", "p99", "p99.9") for name, load in (("without changes", quiet), ("with changes", changing))),
        Figure("p99.9 with changes, of p99.9 without changes", latency(changing, "99.9") / latency(quiet, "99.9"), target=1.5),
        *milliseconds("change until its effect", applied),
        Figure("lateness of the load, p99", changing["lateness"]["percentiles_us"]["99"] / 1000, "ms", note="high on a busy machine"),
    ]


def failover(bench: Bench) -> list[Figure]:
    """Endpoints of a Service are removed and added under a load."""
    rounds, rate = bench.size((20, 1000), (3, 100))
    namespace, gateway, port = bench.site.namespace(), bench.gateway(), bench.port()
    gateway.await_ready()
    addresses = [f"198.18.254.{bench.site.number()}" for _ in range(3)]
    edge = gateway_object(namespace, "edge", port)
    with Echo(bench.cluster, addresses) as echo:
        bench.upstream(namespace, addresses=addresses)
        bench.api.create(edge, http_route(namespace, "web", parent(edge), "web.test"))
        client = Client(bench.cluster, port)
        wait_until(lambda: client.get("web.test")[0] == 200, "the route", 30, 0.01)
        slice_ = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"namespace": namespace, "name": "web-1"}}
        load = bench.load(port, "web.test", f"-R{rate}", "-c50", seconds=2 * rounds + 2)
        wait_until(lambda: all(echo.requests[address] > 10 for address in addresses), "requests at all endpoints", 30, 0.01)
        removed, added = [], []
        for n in range(rounds):
            gone = addresses[n % len(addresses)]
            begun = time.monotonic()
            bench.api.patch(slice_, {"endpoints": endpoints([each for each in addresses if each != gone])})
            time.sleep(1)
            if begun + 0.9 < echo.last[gone]:
                raise ClusterError(f"{gone} still receives requests 0.9 s after its removal")
            # Negative if the last request arrived before the removal.
            removed.append(max(0.0, echo.last[gone] - begun))
            begun, before = time.monotonic(), echo.requests[gone]
            bench.api.patch(slice_, {"endpoints": endpoints(addresses)})
            wait_until(lambda: echo.requests[gone] > before, f"a request at {gone}", 30, 0.001)
            added.append(time.monotonic() - begun)
            time.sleep(max(0.0, begun + 0.9 - time.monotonic()))
        results = load.results()
    return [
        faults("failed requests", failed(results), f"of {results['requests']['due']:,}, during {rounds} removals"),
        *milliseconds("removal until the last request at the removed endpoint", removed),
        *milliseconds("addition until the first request at the added endpoint", added),
        Figure("latency, p99", latency(results, "99"), "ms"),
    ]


def cost(bench: Bench) -> list[Figure]:
    """The CPU time of a request by an HTTPRoute with a header match and a filter, beside an Ingress and a plain HTTPRoute."""
    turns, seconds = bench.size((30, 2), (2, 1))
    namespace, gateway = bench.site.namespace(), bench.gateway()
    gateway.await_ready()
    bench.upstream(namespace)
    # The Gateway shares the port of the Ingresses.
    edge = gateway_object(namespace, "edge", gateway.port)
    plain = http_route(namespace, "plain", parent(edge), "plain.test")
    filtered = http_route(namespace, "filtered", parent(edge), "filtered.test",
                          rule(headers={"x-match": "1"}, filters=[sets_header("RequestHeaderModifier", "x-added", "value")]))
    bench.api.create(ingress(namespace, "plain", "ingress.test"), edge, plain, filtered)
    client = Client(bench.cluster, gateway.port)
    for host, status in {"ingress.test": 200, "plain.test": 200, "filtered.test": 404}.items():
        wait_until(lambda: client.get(host)[0] == status, f"{status} for {host}", 30, 0.01)

    hosts = ["ingress.test", "plain.test", "filtered.test"]
    costs: dict[str, list[float]] = {host: [] for host in hosts}
    faulty = 0
    for turn in range(turns + 1):
        for host in hosts if turn % 2 else reversed(hosts):
            before = cpu_time(gateway)
            results = bench.load(gateway.port, host, "-c50", "-H", "x-match: 1", seconds=seconds).results()
            faulty += failed(results)
            # The first turn warms up.
            if turn:
                costs[host].append((cpu_time(gateway) - before) / results["requests"]["answered"])

    def ratio(host: str) -> tuple[float, str]:
        found = [own / base for own, base in zip(costs[host], costs["ingress.test"])]
        return statistics.median(found), f"median of {turns} pairs, {min(found):.3f} to {max(found):.3f}"

    (filtered_ratio, filtered_range), (plain_ratio, plain_range) = ratio("filtered.test"), ratio("plain.test")
    return [
        faults("failed requests", faulty),
        *(Figure(f"CPU time of a request: {name}", statistics.median(costs[host]) * 1e6, "us", note="median")
          for name, host in zip(("Ingress", "plain HTTPRoute", "HTTPRoute with match and filter"), hosts)),
        Figure("HTTPRoute with match and filter, of Ingress", filtered_ratio, target=1.05, note=filtered_range),
        Figure("plain HTTPRoute, of Ingress", plain_ratio, note=plain_range),
    ]
