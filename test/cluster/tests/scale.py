"""How a gateway fares with thousands of Ingresses: `make test-cluster CLUSTER=scale`. The goals are for a release build."""

import re
import tempfile
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import Cluster, wait_until

from .process import Gateway, Manifest, Site, endpoint_slice, endpoints, ingress, program, service
from .test_controller import say

INGRESSES = 5000
NAMESPACES = 50
CHANGES = 100
"""A second."""
SECONDS = 30
CALLERS = 16


class Scale(unittest.TestCase):
    def test_thousands_of_ingresses(self) -> None:
        folder = Path(self.enterClassContext(tempfile.TemporaryDirectory()))
        cluster = self.enterClassContext(Cluster("test-scale", api_only=True))
        site = Site(cluster, folder)
        self.site, self.addresses = site, [site.backend("one"), site.backend("two")]
        self.namespaces = [site.namespace() for _ in range(NAMESPACES)]
        self.turns: dict[int, bool] = {}
        self.each("Ingresses with Services and slices are created", INGRESSES, lambda n: site.api.create(*self.shop(n)))

        begun = time.monotonic()
        gateway = site.gateway("--no-status")
        self.addCleanup(gateway.running.kill)
        gateway.await_ready(120)
        say(f"{program('sluicegate').parent.name} build: ready {time.monotonic() - begun:.2f} s after its start"
            f" with {INGRESSES} Ingresses; {gateway.memory():.0f} MiB resident")
        gateway.await_status(self.host(INGRESSES - 1))

        self.change(gateway, "nothing else changing", lambda _: None)
        took: list[float] = []
        self.change(gateway, "new Ingresses meanwhile", lambda over: self.add_meanwhile(gateway, over, took))
        say(f"a new Ingress meanwhile answers {sorted(took)[len(took) // 2] * 1000:.0f} ms after its creation returned"
            f" (median of {len(took)}, longest {max(took) * 1000:.0f} ms)")

    def change(self, gateway: Gateway, what: str, beside: Callable[[threading.Event], None]) -> None:
        """Changes slices while something else goes on, and tells how long it took to follow."""
        before, cpu, begun = self.propagation(gateway), gateway.cpu(), time.monotonic()
        over = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(beside, over)
            changed = self.change_slices()
            over.set()
            future.result()
        seconds, used = time.monotonic() - begun, gateway.cpu() - cpu
        after = wait_until(lambda: self.heard_all(gateway, before, changed), "the changes", 30)
        say(f"{what}: {changed / seconds:.0f} slice changes a second for {seconds:.0f} s: p99 of propagation at most"
            f" {self.percentile(before, after, 0.99) * 1000:g} ms, {100 * used / seconds:.1f} % of a CPU,"
            f" {gateway.memory():.0f} MiB resident")

    def host(self, n: int) -> str:
        return f"shop-{n}.test"

    def shop(self, n: int) -> list[Manifest]:
        namespace, name = self.namespaces[n % NAMESPACES], f"web-{n}"
        of_service = service(namespace, name)
        # There are not as many addresses in the cluster.
        of_service["spec"]["clusterIP"] = "None"
        return [of_service, endpoint_slice(namespace, self.addresses, name),
                ingress(namespace, name, self.host(n), service=name)]

    def each(self, what: str, count: int, call: Callable[[int], None]) -> None:
        begun = time.monotonic()
        with ThreadPoolExecutor(CALLERS) as pool:
            for _ in pool.map(call, range(count)):
                pass
        say(f"{count} {what} in {time.monotonic() - begun:.0f} s")

    def change_slices(self) -> int:
        """Changes slices at a constant rate, as far as the API server keeps up; returns how many."""
        begun = time.monotonic()

        def due() -> Iterator[int]:
            for n in range(CHANGES * SECONDS):
                time.sleep(max(0.0, begun + n / CHANGES - time.monotonic()))
                yield n

        def change(n: int) -> None:
            which = n % INGRESSES
            like = endpoint_slice(self.namespaces[which % NAMESPACES], [], f"web-{which}")
            self.turns[which] = not self.turns.get(which)
            self.site.api.patch(like, {"endpoints": endpoints(self.addresses[:1 if self.turns[which] else 2])})

        with ThreadPoolExecutor(CALLERS) as pool:
            futures = [pool.submit(change, n) for n in due()]
            for future in futures:
                future.result()
        return len(futures)

    def add_meanwhile(self, gateway: Gateway, over: threading.Event, took: list[float]) -> None:
        n = INGRESSES
        while not over.is_set():
            self.site.api.create(*self.shop(n))
            created = time.monotonic()
            gateway.await_status(self.host(n))
            took.append(time.monotonic() - created)
            n += 1

    def propagation(self, gateway: Gateway) -> dict[float, float]:
        """The buckets of `sluicegate_propagation_seconds`."""
        text = gateway.admin("/metrics").text
        found = re.findall(r'^sluicegate_propagation_seconds_bucket\{.*?le="([^"]+)"\} (\S+)$', text, re.MULTILINE)
        return {float(bound.replace("+Inf", "inf")): float(count) for bound, count in found}

    def heard_all(self, gateway: Gateway, before: dict[float, float], changed: int) -> dict[float, float] | None:
        """The buckets once so many changes are in; what comes close together may count as one."""
        now = self.propagation(gateway)
        return now if now[float("inf")] - before.get(float("inf"), 0) >= changed * 0.5 else None

    def percentile(self, before: dict[float, float], after: dict[float, float], share: float) -> float:
        """The bound of the bucket in which it is."""
        counts = {bound: count - before.get(bound, 0) for bound, count in after.items()}
        return min(bound for bound, count in counts.items() if count >= share * counts[float("inf")])
