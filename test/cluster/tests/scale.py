"""A gateway with thousands of Ingresses: `make test-cluster CLUSTER=scale`. The limits are for a release build."""

import json
import re
import tempfile
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import Cluster, wait_until
from harness.kwok import simulated

from .process import Gateway, Manifest, Site, cpu_of, endpoint_slice, endpoints, ingress, metadata, program, service
from .test_controller import say

INGRESSES = 5000
NAMESPACES = 50
CHANGES = 100
"""Changes per second."""
SECONDS = 30
CALLERS = 16

PODS = 2
"""The number of simulated pods behind each Ingress."""
NODES = 10
"""The number of simulated nodes."""
REPLACED = 40
"""Changed pods per second. The old pod terminates and ends, and the new pod becomes ready, so a slice changes two or three times."""
CONTROLLER_OF_SLICES = "endpointslice-controller.k8s.io"

Ready = dict[tuple[str, str], set[str]]
"""The addresses of the backends that respond, by the namespace and name of the Service."""


class Thousands(unittest.TestCase):
    """A cluster with thousands of Ingresses, and a gateway that follows the cluster."""

    cluster_name: str
    manager_flags: list[str] | None = None
    """The flags of the controller manager, if there is one."""
    site: Site
    namespaces: list[str]

    @classmethod
    def setUpClass(cls) -> None:
        if cls is Thousands:
            raise unittest.SkipTest("only what is made of it")
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cluster = cls.enterClassContext(Cluster(
            cls.cluster_name, api_only=True, controllers=cls.manager_flags is not None, manager_flags=cls.manager_flags or ()))
        cls.site = Site(cluster, folder)
        cls.addresses = [cls.site.backend("one"), cls.site.backend("two")]
        cls.namespaces = [cls.site.namespace() for _ in range(NAMESPACES)]

    def gateway(self) -> Gateway:
        """Starts a gateway, and waits until it is ready."""
        begun = time.monotonic()
        gateway = self.site.gateway("--no-status")
        self.addCleanup(gateway.running.kill)
        gateway.await_ready(120)
        say(f"{program('sluicegate').parent.name} build: ready {time.monotonic() - begun:.2f} s after its start"
            f" with {INGRESSES} Ingresses; {gateway.memory():.0f} MiB resident")
        return gateway

    def namespace(self, n: int) -> str:
        return self.namespaces[n % NAMESPACES]

    def host(self, n: int) -> str:
        return f"shop-{n}.test"

    def shop(self, n: int) -> list[Manifest]:
        """Returns an Ingress, its Service, and a slice with backends that respond."""
        namespace, name = self.namespace(n), f"web-{n}"
        return [self.service(n), endpoint_slice(namespace, self.addresses, name),
                ingress(namespace, name, self.host(n), service=name)]

    def service(self, n: int) -> Manifest:
        """Returns a Service without a cluster IP, because the cluster has too few addresses."""
        found = service(self.namespace(n), f"web-{n}")
        found["spec"]["clusterIP"] = "None"
        return found

    def each(self, what: str, count: int, call: Callable[[int], None]) -> None:
        begun = time.monotonic()
        with ThreadPoolExecutor(CALLERS) as pool:
            for _ in pool.map(call, range(count)):
                pass
        say(f"{count} {what} in {time.monotonic() - begun:.0f} s")

    def at_rate(self, rate: int, count: int, call: Callable[[int], None]) -> None:
        """Calls at a constant rate, or as fast as the API server responds."""
        begun = time.monotonic()

        def due() -> Iterator[int]:
            for n in range(count):
                time.sleep(max(0.0, begun + n / rate - time.monotonic()))
                yield n

        with ThreadPoolExecutor(CALLERS) as pool:
            for future in [pool.submit(call, n) for n in due()]:
                future.result()

    def add_meanwhile(self, gateway: Gateway, over: threading.Event, took: list[float]) -> None:
        n = INGRESSES
        while not over.is_set():
            self.site.api.create(*self.shop(n))
            created = time.monotonic()
            gateway.await_status(self.host(n))
            took.append(time.monotonic() - created)
            n += 1

    def tell(self, took: list[float]) -> None:
        say(f"a new Ingress meanwhile answers {sorted(took)[len(took) // 2] * 1000:.0f} ms after its creation returned"
            f" (median of {len(took)}, longest {max(took) * 1000:.0f} ms)")

    def propagation(self, gateway: Gateway) -> dict[float, float]:
        """Returns the buckets of `sluicegate_propagation_seconds`."""
        text = gateway.admin("/metrics").text
        found = re.findall(r'^sluicegate_propagation_seconds_bucket\{.*?le="([^"]+)"\} (\S+)$', text, re.MULTILINE)
        return {float(bound.replace("+Inf", "inf")): float(count) for bound, count in found}

    def heard_all(self, gateway: Gateway, before: dict[float, float], changed: int) -> dict[float, float] | None:
        """Returns the buckets when they contain this many changes. Concurrent changes may count as one."""
        now = self.propagation(gateway)
        return now if now[float("inf")] - before.get(float("inf"), 0) >= changed * 0.5 else None

    def percentile(self, before: dict[float, float], after: dict[float, float], share: float) -> float:
        """Returns the bound of the bucket with the quantile."""
        counts = {bound: count - before.get(bound, 0) for bound, count in after.items()}
        return min(bound for bound, count in counts.items() if count >= share * counts[float("inf")])


class Slices(Thousands):
    """Slices that the test writes, so that the cluster needs only an API server."""

    cluster_name = "test-scale"

    def test_gateway_follows_thousands_of_ingresses(self) -> None:
        self.turns: dict[int, bool] = {}
        self.each("Ingresses with Services and slices are created", INGRESSES, lambda n: self.site.api.create(*self.shop(n)))
        gateway = self.gateway()
        gateway.await_status(self.host(INGRESSES - 1))

        self.change(gateway, "nothing else changing", lambda _: None)
        took: list[float] = []
        self.change(gateway, "new Ingresses meanwhile", lambda over: self.add_meanwhile(gateway, over, took))
        self.tell(took)

    def change(self, gateway: Gateway, what: str, beside: Callable[[threading.Event], None]) -> None:
        """Changes slices during other changes, and prints how fast the gateway follows."""
        before, cpu, begun = self.propagation(gateway), gateway.cpu(), time.monotonic()
        over = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(beside, over)
            changed = CHANGES * SECONDS
            self.at_rate(CHANGES, changed, self.change_slice)
            over.set()
            future.result()
        seconds, used = time.monotonic() - begun, gateway.cpu() - cpu
        after = wait_until(lambda: self.heard_all(gateway, before, changed), "the changes", 30)
        say(f"{what}: {changed / seconds:.0f} slice changes a second for {seconds:.0f} s: p99 of propagation at most"
            f" {self.percentile(before, after, 0.99) * 1000:g} ms, {100 * used / seconds:.1f} % of a CPU,"
            f" {gateway.memory():.0f} MiB resident")

    def change_slice(self, n: int) -> None:
        which = n % INGRESSES
        like = endpoint_slice(self.namespace(which), [], f"web-{which}")
        self.turns[which] = not self.turns.get(which)
        self.site.api.patch(like, {"endpoints": endpoints(self.addresses[:1 if self.turns[which] else 2])})


class Pods(Thousands):
    """Simulated pods, whose slices the controller of Kubernetes writes. The pods do not respond, so the test compares the slices with
    the upstreams of the gateway. One Ingress of each namespace routes to a backend that responds."""

    cluster_name = "test-scale-pods"
    # The controller of Endpoints would double the writes, and the tests do not read Endpoints.
    manager_flags = ["--controllers=*,-endpoints-controller,-endpointslice-mirroring-controller",
                     "--concurrent-service-endpoint-syncs=20"]

    def test_gateway_follows_thousands_of_pods(self) -> None:
        api = self.site.api
        self.site.cluster.kwok.up(nodes=NODES)
        for namespace in self.namespaces:
            like = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(namespace, "default")}
            wait_until(lambda like=like: api.find(like), f"the service account of {namespace}", 60)
        self.each("pods are created", INGRESSES * PODS, lambda n: api.create(self.pod(n // PODS, f"{n % PODS}")))
        self.each("Services and Ingresses are created", INGRESSES, lambda n: api.create(*self.simulated_shop(n)))
        answering = range(INGRESSES, INGRESSES + NAMESPACES)
        for n in answering:
            api.create(*self.shop(n))
        self.await_slices("all pods are in slices", INGRESSES * PODS)
        gateway = self.gateway()
        self.assert_in_step(gateway)
        for n in answering:
            gateway.await_status(self.host(n))

        self.change(gateway, "pods cease to be ready", CHANGES, self.unready, left=INGRESSES * PODS - CHANGES * SECONDS)
        self.change(gateway, "pods are ready again", CHANGES, self.ready, left=INGRESSES * PODS)
        self.change(gateway, "pods are replaced", REPLACED, self.replace, left=INGRESSES * PODS)
        for n in answering:
            gateway.await_status(self.host(n))

    # Objects.

    def simulated_shop(self, n: int) -> list[Manifest]:
        """Returns an Ingress, and its Service, which selects pods."""
        of_service = self.service(n)
        of_service["spec"]["selector"] = {"app": f"web-{n}"}
        return [of_service, ingress(self.namespace(n), f"web-{n}", self.host(n), service=f"web-{n}")]

    def pod(self, n: int, which: str) -> Manifest:
        """Returns a pod of the n-th Service. The pod names its node, so the scheduler does nothing."""
        return {"apiVersion": "v1", "kind": "Pod",
                "metadata": {**metadata(self.namespace(n), f"web-{n}-{which}"), "labels": {"app": f"web-{n}"}},
                "spec": {"nodeName": simulated(n % NODES + 1), "automountServiceAccountToken": False,
                         "containers": [{"name": "web", "image": "simulated"}]}}

    # Changes. The Services change in turn, so that the controller cannot merge two changes.

    def unready(self, n: int) -> None:
        self.condition(n, "False")

    def ready(self, n: int) -> None:
        self.condition(n, "True")

    def condition(self, n: int, status: str) -> None:
        """Sets the readiness of a pod, like a kubelet."""
        self.site.api.patch(self.pod(n, "0"), {"status": {"conditions": [{"type": "Ready", "status": status}]}}, "/status")

    def replace(self, n: int) -> None:
        self.site.api.delete(self.pod(n, "0"))
        self.site.api.create(self.pod(n, "new"))

    def change(self, gateway: Gateway, what: str, rate: int, call: Callable[[int], None], left: int) -> None:
        """Changes pods at this rate, after which `left` pods are ready. Prints how fast the gateway followed."""
        before, cpu, parts, generations = self.propagation(gateway), gateway.cpu(), self.parts(), self.generations()
        begun = time.monotonic()
        self.at_rate(rate, rate * SECONDS, call)
        seconds, used = time.monotonic() - begun, gateway.cpu() - cpu
        changed = self.generations() - generations
        others = ", ".join(f"{name} {100 * (now - parts[name]) / seconds:.0f} %" for name, now in self.parts().items())
        self.await_slices(f"{what}: the slices say so", left)
        self.assert_in_step(gateway)
        after = self.propagation(gateway)
        heard = after[float("inf")] - before.get(float("inf"), 0)
        say(f"{what}: {changed / seconds:.0f} slice changes a second for {seconds:.0f} s, {changed} of"
            f" {self.generations() - generations} by then, {heard:.0f} heard of: p99 of propagation at most"
            f" {self.percentile(before, after, 0.99) * 1000:g} ms, {100 * used / seconds:.1f} % of a CPU,"
            f" {gateway.memory():.0f} MiB resident (beside it: {others})")

    # Observation.

    def parts(self) -> dict[str, float]:
        """Returns the CPU time of each part of the cluster so far."""
        cluster = self.site.cluster
        return {part.name: cpu_of(part.process.pid) for part in [*cluster.parts(), cluster.kwok.part] if part.process}

    def of_all_namespaces(self, kind: str, version: str) -> list[Manifest]:
        """Lists objects by namespace, because one list of all objects would exceed the timeout."""
        def of(namespace: str) -> list[Manifest]:
            return self.site.api.list({"apiVersion": version, "kind": kind, "metadata": metadata(namespace, "")})

        return [each for namespace in self.namespaces for each in of(namespace)]

    def slices(self) -> list[Manifest]:
        """Returns the slices that Kubernetes wrote."""
        found = self.of_all_namespaces("EndpointSlice", "discovery.k8s.io/v1")
        return [each for each in found
                if each["metadata"]["labels"].get("endpointslice.kubernetes.io/managed-by") == CONTROLLER_OF_SLICES]

    def generations(self) -> int:
        """Returns the number of changes of all slices. Each change increments the generation."""
        return sum(each["metadata"]["generation"] for each in self.slices())

    def in_pods(self) -> Ready:
        found: Ready = {}
        for pod in self.of_all_namespaces("Pod", "v1"):
            of = found.setdefault((pod["metadata"]["namespace"], pod["metadata"]["labels"]["app"]), set())
            conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", [])}
            if "deletionTimestamp" not in pod["metadata"] and conditions.get("Ready") == "True":
                of.add(pod["status"]["podIP"])
        return found

    def in_slices(self) -> Ready:
        found: Ready = {}
        for each in self.slices():
            meta = each["metadata"]
            of = found.setdefault((meta["namespace"], meta["labels"]["kubernetes.io/service-name"]), set())
            of |= {address for endpoint in each["endpoints"] or [] if endpoint["conditions"]["ready"] for address in endpoint["addresses"]}
        return found

    def in_gateway(self, gateway: Gateway) -> Ready:
        """Returns the upstreams of the gateway, `NAMESPACE/SERVICE:PORT`, without the upstreams of backends that respond."""
        found: Ready = {}
        for upstream in json.loads(gateway.admin("/upstreams").text):
            namespace, _, name = upstream["upstream"].rpartition(":")[0].partition("/")
            ready = {endpoint["address"].rpartition(":")[0] for endpoint in upstream["endpoints"] if endpoint["ready"]}
            if int(name.removeprefix("web-")) < INGRESSES:
                found[namespace, name] = ready
        return found

    def await_slices(self, what: str, ready: int) -> None:
        """Waits until the slices of each Service contain exactly its ready pods, this many in total."""
        begun = time.monotonic()

        def same() -> Ready | None:
            slices = self.in_slices()
            right = len(slices) == INGRESSES and sum(map(len, slices.values())) == ready and slices == self.in_pods()
            return slices if right else None

        slices = wait_until(same, what, 300, 3)
        assert slices is not None
        self.assertEqual(len(set().union(*slices.values())), ready, "pods share addresses")
        say(f"{what}: {ready} addresses in {len(slices)} Services, after {time.monotonic() - begun:.0f} s more")

    def assert_in_step(self, gateway: Gateway) -> None:
        wanted = self.in_slices()
        wait_until(lambda: self.in_gateway(gateway) == wanted, "the gateway to be in step with the slices", 30, 0.1)
