"""Tests of the releases and channels of Gateway API that clusters have: the gateway serves the kinds and versions that exist."""

import threading
from collections import Counter

from harness import wait_until

from .process import Gateway, Manifest, install_gateway_api
from .test_controller import OnCluster

GROUP = "gateway.networking.k8s.io"

RELEASES = [(release, channel) for release in ("1.2.1", "1.3.0", "1.4.1", "1.5.1", "1.6.3", "1.7.0") for channel in ("standard", "experimental")]
"""Each is installed over the one before, as clusters are upgraded. Kinds of the experimental channel stay, so the standard channel of a release
runs beside older versions of experimental kinds."""


class Versions(OnCluster):
    cluster_name = "test-versions"

    def served(self, plural: str) -> list[str]:
        """Returns the served versions of a kind of Gateway API."""
        groups = self.api.ask("GET", f"/apis/{GROUP}")["versions"]
        found = [each["version"] for each in groups]
        return [version for version in found
                if plural in {kind["name"] for kind in self.api.ask("GET", f"/apis/{GROUP}/{version}")["resources"]}]

    def objects(self, name: str, port: int) -> list[Manifest]:
        """Returns a Gateway with two listeners, and a route for each kind of route that exists."""
        metadata = {"namespace": self.namespace, "name": name}
        parent, backends = [{"name": name}], [{"name": "web", "port": 80}]
        objects: list[Manifest] = [
            {"apiVersion": f"{GROUP}/v1", "kind": "Gateway", "metadata": metadata, "spec": {
                "gatewayClassName": "sluicegate", "listeners": [
                    {"name": "http", "protocol": "HTTP", "port": port}, {"name": "tcp", "protocol": "TCP", "port": port + 1}]}},
            {"apiVersion": f"{GROUP}/v1", "kind": "HTTPRoute", "metadata": metadata, "spec": {
                "parentRefs": [{**parent[0], "sectionName": "http"}], "hostnames": [self.host(name)], "rules": [{"backendRefs": backends}]}},
        ]
        if versions := self.served("tcproutes"):
            objects.append({"apiVersion": f"{GROUP}/{versions[0]}", "kind": "TCPRoute", "metadata": metadata, "spec": {
                "parentRefs": [{**parent[0], "sectionName": "tcp"}], "rules": [{"backendRefs": backends}]}})
        return objects

    def serves(self, gateway: Gateway, objects: list[Manifest], port: int, address: str = "127.0.0.1") -> None:
        """Waits until the gateway serves these objects at an address and says so."""
        edge, *routes = objects
        host = self.host(edge["metadata"]["name"])
        wait_until(lambda: gateway.ask(host, port=port, address=address).backend == "one", f"an HTTPRoute; {gateway.log()}", 60)
        if len(routes) > 1:
            wait_until(lambda: gateway.ask("any", port=port + 1, address=address).backend == "one", f"a TCPRoute; {gateway.log()}", 60)
        self.await_conditions(edge, generation=1, Accepted="Accepted", Programmed="Programmed")
        for route in routes:
            wait_until(lambda route=route: self.api.get(route).get("status", {}).get("parents"), f"the status of {route['kind']}", 60)

    def test_every_release_and_channel_is_served(self) -> None:
        self.shop()
        follower = self.gateway("--publish-status-address", "192.0.2.1", "--gateway-address", "127.0.0.1")
        answers: Counter[str] = Counter()
        done = threading.Event()
        thread: threading.Thread | None = None
        port = follower.port + 5
        first: list[Manifest] = []
        for number, (release, channel) in enumerate(RELEASES):
            with self.subTest(release=release, channel=channel):
                install_gateway_api(self.cluster, self.site.folder, release, channel)
                if not first:
                    first = self.objects("first", port)
                    self.cluster.apply(*first)
                    self.serves(follower, first, port)

                    def ask() -> None:
                        # At this rate, the closed connections do not use up the ports of the client.
                        while not done.wait(0.01):
                            answer = follower.ask(self.host("first"), port=port)
                            answers["200" if answer.status == 200 else f"{answer.status} {answer.text}"] += 1
                    thread = threading.Thread(target=ask)
                    thread.start()
                # A gateway that starts with these CRDs, at another address. Kinds that do not exist do not delay it.
                fresh = self.gateway("--publish-status-address", "192.0.2.1", "--gateway-address", "127.0.0.2")
                faults = [line for line in fresh.log().splitlines() if " WARN " in line or " ERROR " in line]
                objects = self.objects(f"edge-{number}", fresh.port + 5)
                self.cluster.apply(*objects)
                self.serves(fresh, objects, fresh.port + 5, "127.0.0.2")
                fresh.running.kill()
                # The gateway that has run since the first release serves the objects of each release, without a restart.
                self.serves(follower, objects, fresh.port + 5)
                self.assertEqual(faults, [])
        done.set()
        assert thread
        thread.join()
        print(f"\n    {answers['200']} requests in the course of {len(RELEASES)} upgrades", flush=True)
        self.assertEqual(set(answers), {"200"})
