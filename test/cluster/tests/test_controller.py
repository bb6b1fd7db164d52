"""Tests of a gateway that follows a cluster, with a real API server."""

import json
import re
import shutil
import signal
import sys
import tempfile
import time
import unittest
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness import Cluster, wait_until

from .process import (
    AT_HOME, CLUSTER_WIDE, CONTROLLER, HOME, NAMESPACED, NODES, READ, WRITE, Gateway, Manifest, Pair, Site, config_map,
    endpoint_slice, endpoints, ingress, install_gateway_api, lease, lease_rules, program, secret, service,
)

STATUS_OF = "192.0.2."


def say(what: str) -> None:
    """Prints a figure."""
    print(f"\n    {what}", file=sys.stderr, flush=True)


class OnCluster(unittest.TestCase):
    """A test with an API server and two backends."""

    cluster_name = "test-controller"
    site: Site

    @classmethod
    def setUpClass(cls) -> None:
        if cls is OnCluster:
            raise unittest.SkipTest("only what is made of it")
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cluster = cls.enterClassContext(Cluster(cls.cluster_name, api_only=True))
        cls.site = Site(cluster, folder)
        cls.one, cls.two = cls.site.backend("one"), cls.site.backend("two")

    def setUp(self) -> None:
        self.api, self.cluster = self.site.api, self.site.cluster
        self.namespace = self.site.namespace()

    def gateway(self, *options: str, ready: bool = True, **how: Any) -> Gateway:
        gateway = self.site.gateway(*options, **how)
        self.addCleanup(gateway.running.kill)
        if ready:
            gateway.await_ready()
        return gateway

    def host(self, name: str = "web") -> str:
        return f"{name}.{self.namespace}.test"

    def shop(self, namespace: str | None = None) -> None:
        """Creates a Service `web` with the first backend."""
        namespace = namespace or self.namespace
        self.api.create(service(namespace), endpoint_slice(namespace, [self.one]))

    def route(self, name: str, namespace: str | None = None, **how: Any) -> Manifest:
        """Creates an Ingress to the Service, with a host of the same name."""
        made = ingress(namespace or self.namespace, name, self.host(name), **how)
        self.api.create(made)
        self.addCleanup(lambda: self.api.find(made) and self.api.delete(made))
        return made

    def status(self, of: Manifest) -> list[str]:
        """Returns the addresses in the status of an Ingress."""
        balancer = self.api.get(of).get("status", {}).get("loadBalancer", {})
        return [address.get("ip") or address["hostname"] for address in balancer.get("ingress", [])]

    def await_addresses(self, of: Manifest, addresses: list[str], timeout: float = 30) -> None:
        wait_until(lambda: self.status(of) == addresses, f"the status {addresses}", timeout, 0.02)

    def await_conditions(self, of: Manifest, generation: int, **reasons: str) -> None:
        """Waits until all these conditions are true for these reasons, for this generation of an object."""
        expected = {kind: (reason, "True", generation) for kind, reason in reasons.items()}

        def found() -> dict[str, tuple[str, str, int | None]]:
            conditions = self.api.get(of).get("status", {}).get("conditions", [])
            return {each["type"]: (each["reason"], each["status"], each.get("observedGeneration")) for each in conditions}
        wait_until(lambda: expected.items() <= found().items(), f"the conditions {expected}", 30, 0.02)

    def problems(self, of: Manifest) -> str | None:
        annotations: dict[str, str] = self.api.get(of)["metadata"].get("annotations", {})
        return annotations.get("sluicegate.dev/problems")

    def notes(self, of: Manifest) -> list[str]:
        """Returns the notes of Events about an object."""
        events = self.api.list({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": of["metadata"]})
        return [event["note"] for event in events if event["regarding"]["name"] == of["metadata"]["name"]]


class Follows(OnCluster):
    """Tests that routes, endpoints and settings follow the cluster."""

    def test_new_ingress_is_served_at_once(self) -> None:
        gateway = self.gateway()
        took = []
        for n in range(10):
            name = f"web-{n}"
            self.api.create(service(self.namespace, name), endpoint_slice(self.namespace, [self.one], name))
            before = time.monotonic()
            self.route(name, service=name)
            created = time.monotonic()
            gateway.await_status(self.host(name))
            took.append((time.monotonic() - created, time.monotonic() - before))
        after, whole = (sorted(times)[len(times) // 2] * 1000 for times in zip(*took))
        say(f"a new Ingress answers {after:.1f} ms after its creation returned, {whole:.1f} ms after it was asked for (median;"
            f" longest {max(took)[0] * 1000:.1f} ms)")

    def test_objects_of_a_route_may_appear_in_any_order(self) -> None:
        gateway = self.gateway()
        self.route("early")
        gateway.await_status(self.host("early"), 503)
        self.api.create(endpoint_slice(self.namespace, [self.one]))
        self.api.create(service(self.namespace))
        gateway.await_backend(self.host("early"), "one")

    def test_gateway_follows_endpoint_slices(self) -> None:
        self.shop()
        gateway = self.gateway()
        self.route("web")
        gateway.await_backend(self.host(), "one")
        took = []
        for n in range(20):
            name, address = [("two", self.two), ("one", self.one)][n % 2]
            self.api.patch(endpoint_slice(self.namespace, []), {"endpoints": endpoints([address])})
            changed = time.monotonic()
            gateway.await_backend(self.host(), name)
            took.append(time.monotonic() - changed)
        say(f"a changed slice is followed {sorted(took)[10] * 1000:.1f} ms after its change returned"
            f" (median, longest {max(took) * 1000:.1f} ms)")
        self.api.delete(endpoint_slice(self.namespace, []))
        gateway.await_status(self.host(), 503)

    def test_ingress_class_selects_the_controller_of_an_ingress(self) -> None:
        self.shop()
        self.api.create({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
                         "metadata": {"name": "of-ours"}, "spec": {"controller": CONTROLLER}})
        self.api.create({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
                         "metadata": {"name": "of-others"}, "spec": {"controller": "example.com/other"}})
        foreign = [self.route(f"foreign-{n}", class_name="of-others", annotations={"sluicegate.dev/compression": "odd"})
                   for n in range(20)]
        self.route("by-class", class_name="of-ours")
        self.route("by-annotation", class_name=None, annotations={"kubernetes.io/ingress.class": "sluicegate"})
        without = self.route("without", class_name=None)
        gateway = self.gateway("--publish-status-address", "192.0.2.1")
        for name in ["by-class", "by-annotation"]:
            gateway.await_status(self.host(name))
        for name in ["foreign-1", "without"]:
            self.assertEqual(gateway.ask(self.host(name)).status, 404, name)
        last = self.route("z-last")
        self.await_addresses(last, ["192.0.2.1"])
        for each in [*foreign, without]:
            self.assertEqual(self.status(each), [])
            self.assertIsNone(self.problems(each))
        self.assertLessEqual(len(gateway.lines("foreign-")), 1, gateway.log())
        every = self.gateway("--watch-ingress-without-class")
        every.await_status(self.host("without"))
        # A class may be created later, and may be deleted.
        self.route("late", class_name=f"late-{self.namespace}")
        late = {"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
                "metadata": {"name": f"late-{self.namespace}"}, "spec": {"controller": CONTROLLER}}
        self.api.create(late)
        gateway.await_status(self.host("late"))
        self.api.delete(late)
        gateway.await_status(self.host("late"), 404)

    def test_watching_a_namespace_needs_rights_only_in_this_namespace(self) -> None:
        other = self.site.namespace()
        for namespace in [self.namespace, other]:
            self.shop(namespace)
        self.route("here")
        self.route("there", namespace=other)
        account = self.site.account(CLUSTER_WIDE, lease_rules("narrow"))
        self.site.allow(account, NAMESPACED + WRITE, self.namespace)
        gateway = self.gateway("--watch-namespace", self.namespace, "--publish-status-address", "192.0.2.1",
                               account=account, lease_name="narrow")
        gateway.await_status(self.host("here"))
        self.assertEqual(gateway.ask(self.host("there")).status, 404)
        self.await_addresses(self.route("more"), ["192.0.2.1"])
        self.assertEqual([line for line in gateway.log().splitlines() if " WARN " in line or " ERROR " in line], [])

    def test_gateway_without_rights_to_secrets_serves_and_logs_the_remedy(self) -> None:
        self.shop()
        self.route("web", tls="web")
        narrow = [{**rule, "resources": [each for each in rule["resources"] if each != "secrets"]} for rule in NAMESPACED]
        account = self.site.account(narrow + CLUSTER_WIDE)
        gateway = self.gateway("--no-status", account=account)
        gateway.await_status(self.host(), 308)
        gateway.await_line("kubernetes.io/tls", "grant the service account get, list and watch")
        pair = Pair.create(self.site.folder, self.host())
        self.api.create(pair.secret(self.namespace, "web"))
        self.site.allow(account, [{"apiGroups": [""], "resources": ["secrets"], "verbs": READ}])
        wait_until(lambda: gateway.certificate(self.host()) == pair.der, "the certificate after the right was given", 30)
        self.assertEqual(len(gateway.lines("solved", "kubernetes.io/tls", "grant the service account")), 1)
        self.assertLessEqual(len(gateway.lines("forbidden")), 4, gateway.log())

    def test_rotated_certificate_is_served_and_existing_connections_stay(self) -> None:
        self.shop()
        first, second = (Pair.create(self.site.folder, self.host()) for _ in range(2))
        self.api.create(first.secret(self.namespace, "web"))
        self.route("web", tls="web")
        gateway = self.gateway()
        wait_until(lambda: gateway.certificate(self.host()) == first.der, "the first certificate")
        with gateway.tls(self.host()) as kept:
            self.assertEqual(gateway.ask_tls(self.host(), kept), 200)
            self.cluster.apply(second.secret(self.namespace, "web"))
            changed = time.monotonic()
            wait_until(lambda: gateway.certificate(self.host()) == second.der, "the second certificate", 30, 0.002)
            say(f"a rotated certificate is served {(time.monotonic() - changed) * 1000:.0f} ms after kubectl returned")
            self.assertEqual(gateway.ask_tls(self.host(), kept), 200)
            self.assertEqual(kept.getpeercert(binary_form=True), first.der)
        self.api.patch(secret(self.namespace, "web", {}), {"data": {"tls.key": "bm9uc2Vuc2U="}})
        gateway.await_line(f"{self.namespace}/web", "tls.key")
        self.assertEqual(gateway.certificate(self.host()), second.der, "a broken Secret leaves the last good one")

    def test_client_ca_may_be_a_secret_or_configmap_and_may_appear_later(self) -> None:
        self.shop()
        authority = Pair.create(self.site.folder, "authority")
        client = Pair.create(self.site.folder, "client", authority)
        files = self.site.folder / f"{self.namespace}.crt", self.site.folder / f"{self.namespace}.key"
        files[0].write_bytes(client.certificate)
        files[1].write_bytes(client.key)
        for name in ["secret", "map"]:
            self.api.create(Pair.create(self.site.folder, self.host(name)).secret(self.namespace, name))
        self.api.create(secret(self.namespace, "authority", {"ca.crt": authority.certificate}))
        self.route("secret", tls="secret", annotations={"sluicegate.dev/auth-tls-secret": "authority"})
        self.route("map", tls="map", annotations={"sluicegate.dev/auth-tls-configmap": "later"})
        gateway = self.gateway()
        self.assertEqual(gateway.ask_tls(self.host("secret"), client=files), 200)
        self.assertNotEqual(self.outcome(gateway, "secret"), 200)
        self.assertNotEqual(self.outcome(gateway, "map", files), 200, "no client may pass before the CA is known")
        self.api.create(config_map(self.namespace, "later", {"ca.crt": authority.certificate.decode()}))
        wait_until(lambda: self.outcome(gateway, "map", files) == 200, "authorities that came later")
        self.api.delete(secret(self.namespace, "authority", {}))
        wait_until(lambda: self.problem_of(gateway, "authority"), "word of the Secret that is gone")
        self.assertNotEqual(self.outcome(gateway, "secret"), 200, "without a certificate, whatever becomes of the Secret")
        self.api.create(secret(self.namespace, "authority", {"ca.crt": authority.certificate}))
        wait_until(lambda: self.outcome(gateway, "secret", files) == 200, "a Secret that came again")

    def problem_of(self, gateway: Gateway, name: str) -> bool:
        return any(f"{self.namespace}/{name}" in line or f'"{name}"' in line or name in line
                   for line in gateway.lines("auth-tls-secret"))

    def outcome(self, gateway: Gateway, name: str, client: tuple[Path, Path] | None = None) -> int:
        """The status of a request over HTTPS; 0 if there is none."""
        try:
            return gateway.ask_tls(self.host(name), client=client)
        except OSError:
            return 0

    def test_gateway_follows_the_settings_of_its_configmap(self) -> None:
        self.shop()
        self.route("web")
        settings = config_map(self.namespace, "settings", {"max-request-body": "10"})
        gateway = self.gateway("--configmap", f"{self.namespace}/settings")

        def post() -> int:
            return gateway.ask(self.host(), "/?s=1", method="POST", body=b"x" * 100).status

        gateway.await_status(self.host())
        self.assertEqual(post(), 200)
        self.api.create(settings)
        wait_until(lambda: post() == 413, f"the limit of the ConfigMap; {gateway.log()}")
        self.api.patch(settings, {"data": {"max-request-body": None, "proxy-body-size": "1k"}})
        wait_until(lambda: post() == 200, "the limit by its name in ingress-nginx")
        self.api.patch(settings, {"data": {"proxy-body-size": "10", "atempts": "3", "attempts": "none"}})
        wait_until(lambda: post() == 413, "what is right beside what is wrong")
        for wrong in ["data[atempts]", "data[attempts]"]:
            gateway.await_line(f"{self.namespace}/settings", wrong)
            wait_until(lambda: any(wrong in note for note in self.notes(settings)), f"an Event about {wrong}")
        self.api.delete(settings)
        wait_until(lambda: post() == 200, "the defaults again")

    def test_gateway_api_is_served_once_its_crds_are_installed(self) -> None:
        self.shop()
        gateway = self.gateway("--publish-status-address", "192.0.2.1")
        self.assertEqual([line for line in gateway.log().splitlines() if " WARN " in line or " ERROR " in line], [])
        install_gateway_api(self.cluster, self.site.folder)
        port = gateway.port + 5
        group = "gateway.networking.k8s.io"
        objects: list[Manifest] = [
            {"apiVersion": f"{group}/v1", "kind": "Gateway", "metadata": {"namespace": self.namespace, "name": "edge"},
             "spec": {"gatewayClassName": "sluicegate", "listeners": [{"name": "tcp", "protocol": "TCP", "port": port}]}},
            {"apiVersion": f"{group}/v1alpha2", "kind": "TCPRoute", "metadata": {"namespace": self.namespace, "name": "web"},
             "spec": {"parentRefs": [{"name": "edge"}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}},
        ]
        self.cluster.apply(*objects)
        applied = time.monotonic()
        wait_until(lambda: gateway.ask("any", port=port).backend == "one", f"a TCPRoute; {gateway.log()}", 45)
        say(f"a TCPRoute is served {time.monotonic() - applied:.1f} s after the CRDs and it were installed")
        # The API server may not serve a new kind at once, and the gateway logs this.
        told = [line for line in gateway.log().splitlines() if " WARN " in line or " ERROR " in line]
        self.assertEqual([line for line in told if "(re)initializing" not in line], [])
        self.await_conditions(objects[0], generation=1, Accepted="Accepted", Programmed="Programmed")

        def attached() -> list[tuple[str, int]]:
            return [(each["name"], each["attachedRoutes"]) for each in self.api.get(objects[0])["status"]["listeners"]]
        wait_until(lambda: attached() == [("tcp", 1)], "the route at the listener", 30, 0.02)
        wait_until(lambda: "status" in self.api.get(objects[1]), "the status of the route", 30, 0.02)
        status = self.api.get(objects[0])["status"]
        self.assertEqual(status["addresses"], [{"type": "IPAddress", "value": "192.0.2.1"}])
        version = self.api.get(objects[0])["metadata"]["resourceVersion"]
        route = self.api.get(objects[1])
        [parent] = route["status"]["parents"]
        self.assertEqual(parent["controllerName"], "sluicegate.dev/gateway-controller")
        self.assertEqual({each["type"]: each["status"] for each in parent["conditions"]}, {"Accepted": "True", "ResolvedRefs": "True"})
        # Of two new listeners, one is invalid. The conditions of others stay.
        theirs = {"type": "example.com/Theirs", "status": "True", "reason": "Theirs", "message": "",
                  "lastTransitionTime": "2026-01-01T00:00:00Z"}
        self.api.patch(objects[0], {"status": {"conditions": [theirs, *status["conditions"]]}}, "/status")
        listeners = [*objects[0]["spec"]["listeners"], {"name": "odd", "protocol": "example.com/odd", "port": 1}]
        self.api.patch(objects[0], {"spec": {"listeners": listeners}})
        self.await_conditions(objects[0], generation=2, Accepted="ListenersNotValid", Programmed="Programmed")
        status = self.api.get(objects[0])["status"]
        self.assertIn(theirs, status["conditions"])
        [writes] = re.findall(r"^sluicegate_status_writes_total (\d+)$", gateway.admin("/metrics").text, re.MULTILINE)
        # A few changes of a Gateway and a route: each is written about once.
        self.assertLessEqual(int(writes), 10)
        self.assertNotEqual(self.api.get(objects[0])["metadata"]["resourceVersion"], version)
        self.assertEqual(self.api.get(objects[1])["metadata"]["resourceVersion"], route["metadata"]["resourceVersion"])
        self.cluster.kubectl("delete", "--namespace", self.namespace, f"tcproutes.{group}/web", f"gateways.{group}/edge")
        wait_until(lambda: gateway.ask("any", port=port).status == 0, "the listener to go")


class Writes(OnCluster):
    """Tests of status, annotations and Events."""

    cluster_name = "test-controller-writes"

    def test_addresses_given_as_options_are_written_to_status_once(self) -> None:
        self.shop()
        first = self.route("first")
        gateway = self.gateway("--publish-status-address", "192.0.2.1", "--publish-status-address", "lb.example")
        self.await_addresses(first, ["192.0.2.1", "lb.example"])
        version = self.api.get(first)["metadata"]["resourceVersion"]
        for n in range(5):
            self.await_addresses(self.route(f"more-{n}"), ["192.0.2.1", "lb.example"])
        self.assertEqual(self.api.get(first)["metadata"]["resourceVersion"], version)
        # The gateway restores removed addresses.
        self.api.patch(first, {"status": {"loadBalancer": {"ingress": None}}}, "/status")
        self.await_addresses(first, ["192.0.2.1", "lb.example"])
        self.assertEqual(gateway.lines(" WARN "), [])

    def test_status_follows_the_addresses_of_a_service(self) -> None:
        self.shop()
        balancer = service(self.namespace, "balancer")
        balancer["spec"]["type"] = "LoadBalancer"
        self.api.create(balancer)
        web = self.route("web")
        gateway = self.gateway("--publish-service", f"{self.namespace}/balancer")
        gateway.await_line(" WARN ", "--publish-service", "has no address yet")
        for addresses in [["192.0.2.7"], ["192.0.2.8", "192.0.2.9"]]:
            found = {"ingress": [{"ip": address} for address in addresses]}
            self.api.patch(balancer, {"status": {"loadBalancer": found}}, "/status")
            self.await_addresses(web, addresses)
        # Without the Service, and until a new Service has an address, the last addresses stay.
        self.api.delete(balancer)
        gateway.await_line(" WARN ", "--publish-service", "does not exist")
        self.await_addresses(self.route("meanwhile"), addresses)
        self.api.create(balancer)
        wait_until(lambda: len(gateway.lines(" WARN ", "has no address yet")) > 1, f"the new Service; {gateway.log()}")
        self.await_addresses(self.route("later"), addresses)
        self.assertEqual(self.status(web), addresses)
        self.api.patch(balancer, {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}}}, "/status")
        self.await_addresses(web, ["192.0.2.10"])
        gateway.await_line("solved", "--publish-service", "has no address yet")

    def test_status_follows_the_addresses_of_nodes(self) -> None:
        self.shop()
        web = self.route("web")
        account = self.site.account(NAMESPACED + CLUSTER_WIDE + WRITE + NODES, lease_rules("nodes") + AT_HOME)

        def pod(name: str, node: str) -> Manifest:
            return {"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": node, "containers": [{"name": "a", "image": "a"}]},
                    "metadata": {"namespace": HOME, "name": name, "labels": {"app": "gate", "pod-template-hash": name}}}

        for number in [1, 2]:
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}}
            self.api.create(node)
            addresses = [{"type": "InternalIP", "address": f"192.0.2.{number}"}]
            self.api.patch(node, {"status": {"addresses": addresses}}, "/status")
        self.api.create(pod("second", "node-2"))
        gateway = self.gateway("--publish-node-addresses", account=account, lease_name="nodes")
        # The gateway does not see its own pod at first.
        self.api.create(pod(gateway.name, "node-1"))
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        self.api.patch(pod(gateway.name, ""), ready, "/status")
        self.await_addresses(web, ["192.0.2.1"])
        self.api.patch(pod("second", ""), ready, "/status")
        self.await_addresses(web, ["192.0.2.1", "192.0.2.2"])
        self.api.ask("DELETE", f"/api/v1/namespaces/{HOME}/pods/second?gracePeriodSeconds=0")
        self.await_addresses(web, ["192.0.2.1"])

    def test_node_addresses_are_published_until_the_service_has_an_address(self) -> None:
        self.shop()
        web = self.route("web")
        balancer = service(self.namespace, "balancer")
        balancer["spec"]["type"] = "LoadBalancer"
        self.api.create(balancer)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-standing-in"}}
        self.api.create(node)
        self.api.patch(node, {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.3"}]}}, "/status")
        account = self.site.account(NAMESPACED + CLUSTER_WIDE + WRITE + NODES, lease_rules("standing-in") + AT_HOME)
        gateway = self.gateway("--publish-service", f"{self.namespace}/balancer", "--publish-node-addresses",
                               account=account, lease_name="standing-in")
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "node-standing-in", "containers": [{"name": "a", "image": "a"}]},
               "metadata": {"namespace": HOME, "name": gateway.name, "labels": {"app": "standing-in"}}}
        self.api.create(pod)
        self.api.patch(pod, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "/status")
        self.await_addresses(web, ["192.0.2.3"])
        gateway.await_line(" INFO ", "has no address yet", "has the addresses of the nodes until")
        self.api.patch(balancer, {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}}, "/status")
        self.await_addresses(web, ["192.0.2.7"])
        # A Service that is deleted by mistake must not remove the addresses, because DNS records may depend on them.
        self.api.delete(balancer)
        gateway.await_line(" WARN ", "--publish-service", "does not exist")
        self.await_addresses(self.route("meanwhile"), ["192.0.2.7"])

    def test_event_reports_a_service_without_an_address(self) -> None:
        self.shop()
        balancer = service(self.namespace, "balancer")
        balancer["spec"]["type"] = "LoadBalancer"
        self.api.create(balancer)
        gateway = self.gateway("--publish-service", f"{self.namespace}/balancer")
        wait_until(lambda: any("has no address yet" in note for note in self.notes(balancer)), f"an Event; {gateway.log()}")

    def test_problems_of_an_ingress_are_in_its_annotation_until_they_are_solved(self) -> None:
        self.shop()
        gateway = self.gateway()
        web = self.route("web", service="absent")
        wait_until(lambda: self.problems(web), f"the annotation; {gateway.log()}")
        self.assertIn("absent", self.problems(web) or "")
        wait_until(lambda: any("absent" in note for note in self.notes(web)), "an Event")
        backend = {"service": {"name": "web", "port": {"number": 80}}}
        self.api.patch(web, {"spec": ingress("", "", self.host())["spec"]})
        wait_until(lambda: self.problems(web) is None, "the annotation to go")
        self.assertEqual(backend, self.api.get(web)["spec"]["rules"][0]["http"]["paths"][0]["backend"])

    def test_rejected_status_does_not_delay_other_ingresses(self) -> None:
        self.shop()
        group = "admissionregistration.k8s.io/v1"
        policy = {"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "refuse"}, "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["networking.k8s.io"], "apiVersions": ["v1"], "operations": ["UPDATE"],
                "resources": ["ingresses/status"]}]},
            "validations": [{"expression": f"!(object.metadata.name == 'a-refused' && object.metadata.namespace == '{self.namespace}')",
                             "message": "refused by a policy"}]}}
        binding = {"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "refuse"},
                   "spec": {"policyName": "refuse", "validationActions": ["Deny"]}}
        root = f"/apis/{group}"
        self.api.ask("POST", f"{root}/validatingadmissionpolicies", policy)
        self.api.ask("POST", f"{root}/validatingadmissionpolicybindings", binding)
        self.addCleanup(self.api.ask, "DELETE", f"{root}/validatingadmissionpolicies/refuse")
        self.addCleanup(self.api.ask, "DELETE", f"{root}/validatingadmissionpolicybindings/refuse")
        refused = self.route("a-refused")

        def is_refused() -> bool:
            try:
                self.api.patch(refused, {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.99"}]}}}, "/status")
                return False
            except Exception as error:
                return "refused by a policy" in str(error)

        wait_until(is_refused, "the policy")
        gateway = self.gateway("--publish-status-address", "192.0.2.1")
        for n in range(10):
            self.route(f"web-{n}")
        for n in range(10):
            self.await_addresses(ingress(self.namespace, f"web-{n}", ""), ["192.0.2.1"])
        self.assertLessEqual(len(gateway.lines("refused by a policy")), 1, gateway.log())

    def test_gateway_without_rights_to_write_serves_and_warns_once(self) -> None:
        self.shop()
        self.route("web")
        account = self.site.account(NAMESPACED + CLUSTER_WIDE)
        gateway = self.gateway("--publish-status-address", "192.0.2.1", account=account)
        gateway.await_status(self.host())
        served = time.monotonic()
        # The gateway requests the Lease every two seconds.
        wait_until(lambda: time.monotonic() - served > 7, "three further tries")
        self.assertEqual(len(gateway.lines(" WARN ") + gateway.lines(" ERROR ")), 1, gateway.log())
        self.assertEqual(len(gateway.lines("Lease")), 1, gateway.log())


class Leads(OnCluster):
    """Tests that exactly one of several gateways writes."""

    cluster_name = "test-controller-leads"

    def setUp(self) -> None:
        super().setUp()
        self.shop()
        self.lease_name = f"lease-of-{self.namespace}"
        self.account = self.site.account(NAMESPACED + CLUSTER_WIDE + WRITE, lease_rules(self.lease_name))
        self.web = self.route("web")

    def member(self, number: int) -> Gateway:
        """Starts a gateway that writes an address of its own."""
        return self.gateway("--publish-status-address", f"{STATUS_OF}{number}", "--shutdown-grace", "0s",
                            account=self.account, lease_name=self.lease_name)

    def pair(self) -> tuple[Gateway, Gateway]:
        first = self.member(1)
        self.await_addresses(self.web, [f"{STATUS_OF}1"])
        return first, self.member(2)

    def never_two(self, *members: Gateway) -> None:
        """Asserts from the logs that no two gateways held the Lease at once."""
        spans = sorted(((span, member) for member in members for span in member.leaderships()), key=lambda found: found[0][0])
        for (earlier, _), (later, _) in zip(spans, spans[1:]):
            self.assertIsNotNone(earlier[1], f"{spans}")
            self.assertLessEqual(earlier[1], later[0], f"{spans}")

    def test_next_gateway_leads_soon_after_the_leader_shuts_down(self) -> None:
        first, second = self.pair()
        self.assertEqual(second.lines("this process holds"), [])
        begun = time.monotonic()
        self.assertEqual(first.running.terminate(), 0)
        self.await_addresses(self.web, [f"{STATUS_OF}2"], 10)
        took = time.monotonic() - begun
        say(f"after SIGTERM the next one has written after {took:.1f} s")
        self.assertLess(took, 4)
        found = self.api.get(lease(self.lease_name))["spec"]
        self.assertEqual((found["holderIdentity"], found["leaseTransitions"]), (second.name, 1))

    def test_next_gateway_leads_after_the_lease_of_a_killed_leader_expires(self) -> None:
        first, second = self.pair()
        begun = time.monotonic()
        first.running.kill()
        self.await_addresses(self.web, [f"{STATUS_OF}2"], 25)
        took = time.monotonic() - begun
        say(f"after SIGKILL the next one has written after {took:.1f} s")
        self.assertLess(took, 20)

    def test_deleted_lease_is_created_again_with_one_leader(self) -> None:
        members = self.pair()
        self.api.delete(lease(self.lease_name))

        def holder() -> str | None:
            found = self.api.find(lease(self.lease_name))
            return found["spec"]["holderIdentity"] if found else None

        name = wait_until(holder, "a new Lease", 10)
        number = [member.name for member in members].index(name) + 1
        self.await_addresses(self.web, [f"{STATUS_OF}{number}"])
        self.await_addresses(self.route("later"), [f"{STATUS_OF}{number}"])
        other = members[2 - number]
        # If the other gateway was first, the previous holder resigns when it sees the new Lease.
        wait_until(lambda: not other.leaderships() or other.leaderships()[-1][1], f"{other.name} to cease", 10)

    def test_holder_of_the_lease_that_cannot_renew_it_resigns_before_another_gateway_may_lead(self) -> None:
        members = self.pair()
        token, log_before = members[0].token, [len(member.log().splitlines()) for member in members]
        load = self.cluster.popen([
            str(program("sluicegate-lab")), "load", "-t1", "-c4", "-R50", "-d25s", "--json", "-", "--fail-on-errors",
            "-H", f"Host: {self.host()}", f"http://127.0.0.1:{members[0].port}/?s=100"])
        self.cluster.kill("kube-apiserver")
        begun = time.monotonic()
        members[0].await_line("does not hold", timeout=20)
        say(f"the holder ceases {time.monotonic() - begun:.1f} s after the API server was killed")
        self.assertLess(time.monotonic() - begun, 13)
        wait_until(lambda: time.monotonic() - begun > 20, "the Lease to be over", 30)
        lines = [len(member.log().splitlines()) - before for member, before in zip(members, log_before)]
        say(f"lines of log over 20 s without an API server: {lines}")
        self.assertLessEqual(max(lines), 8, members[0].log())
        self.cluster.start("kube-apiserver")
        new = self.route("new")
        wait_until(lambda: self.status(new) in [[f"{STATUS_OF}1"], [f"{STATUS_OF}2"]], "one to lead again", 20)
        self.never_two(*members)
        self.assertEqual(load.wait(40), 0, load.output()[-2000:])
        for member in members:
            self.assertNotIn(token, member.log())


class Outages(OnCluster):
    """Tests with an API server that is killed, is paused, or returns with another state."""

    cluster_name = "test-controller-outages"

    def setUp(self) -> None:
        super().setUp()
        self.shop()
        self.addCleanup(self.cluster.up)

    def slice_to(self, address: str) -> None:
        self.api.patch(endpoint_slice(self.namespace, []), {"endpoints": endpoints([address])})

    def end_api_server(self) -> None:
        """Ends the API server gracefully, so that watches end like after their timeout."""
        process = self.cluster.part("kube-apiserver").process
        assert process
        process.send(signal.SIGTERM)
        wait_until(lambda: not process.running, "the API server to end", 90)
        self.cluster.kill("kube-apiserver")

    def test_gateway_that_starts_without_api_server_is_ready_after_listing_all_objects(self) -> None:
        self.route("web")
        account = self.site.account(NAMESPACED + CLUSTER_WIDE + WRITE)
        # A gateway without rights must never be ready.
        closed = self.gateway(account=self.site.account([]), ready=False)
        gateway = self.gateway("--no-status", account=account)
        gateway.running.kill()
        kubeconfig = self.site.folder / f"{account}.kubeconfig"
        self.cluster.kill("kube-apiserver")
        again = Gateway(self.cluster, self.site.number(), "")
        again.start(["--kubeconfig", str(kubeconfig), "--no-status"])
        self.addCleanup(again.running.kill)
        again.await_line("the Kubernetes API does not return")
        self.assertEqual(again.admin("/readyz").status, 503)
        self.assertEqual(again.admin("/healthz").status, 200)
        self.assertNotEqual(again.ask(self.host()).status, 404, "a gateway that is not ready must not respond with 404")
        self.cluster.start("kube-apiserver")
        begun = time.monotonic()
        again.await_ready()
        say(f"ready {time.monotonic() - begun:.2f} s after the API server was")
        self.assertEqual(again.ask(self.host()).status, 200)
        closed.await_line("grant the service account")
        self.assertEqual(closed.admin("/readyz").status, 503)

    def test_killed_api_server_causes_no_failed_request(self) -> None:
        self.route("web")
        gateway = self.gateway()
        gateway.await_status(self.host())
        load = self.cluster.popen([
            str(program("sluicegate-lab")), "load", "-t1", "-c8", "-R200", "-d12s", "--json", "-", "--fail-on-errors",
            "-H", f"Host: {self.host()}", f"http://127.0.0.1:{gateway.port}/?s=100"])
        wait_until(lambda: gateway.metric("sluicegate_requests_total") > 100, "requests")
        self.cluster.kill("kube-apiserver")
        gateway.await_line("the Kubernetes API does not return", "the last known objects stay in service")
        self.cluster.start("kube-apiserver")
        self.slice_to(self.two)
        begun = time.monotonic()
        gateway.await_backend(self.host(), "two")
        took = time.monotonic() - begun
        say(f"in step {took:.2f} s after the API server was ready again")
        self.assertLess(took, 2)
        self.assertEqual(load.wait(40), 0, load.output()[-2000:])
        gateway.await_line("solved", "the Kubernetes API does not return")

    def test_gateway_catches_up_after_its_rights_are_restored(self) -> None:
        self.route("web")
        account = self.site.account([])
        rights = self.site.allow(account, NAMESPACED + CLUSTER_WIDE)
        gateway = self.gateway("--no-status", account=account)
        gateway.await_status(self.host())
        # The API server checks the rights of a watch only at its start, so the test restarts the API server.
        self.api.delete(rights)
        self.cluster.kill("kube-apiserver")
        self.cluster.start("kube-apiserver")
        gateway.await_line("grant the service account")
        # After this time, the pause between two retries has its longest duration.
        time.sleep(8)
        self.assertEqual(gateway.ask(self.host()).status, 200)
        self.api.create(rights)
        self.slice_to(self.two)
        begun = time.monotonic()
        gateway.await_backend(self.host(), "two")
        took = time.monotonic() - begun
        say(f"in step {took:.2f} s after it was given its rights again")
        self.assertLess(took, 2)

    def test_gateway_follows_a_restored_backup_of_the_api_server(self) -> None:
        old = self.route("old")
        gateway = self.gateway()
        gateway.await_status(self.host("old"))
        folder = self.cluster.folder.path
        for part in ["kube-apiserver", "etcd"]:
            self.cluster.kill(part)
        shutil.copytree(folder / "etcd", folder / "backup")
        self.cluster.up()
        self.route("new")
        self.api.delete(old)
        for n in range(50):
            self.slice_to([self.one, self.two][n % 2])
        gateway.await_status(self.host("new"))
        gateway.await_status(self.host("old"), 404)
        for part in ["kube-apiserver", "etcd"]:
            self.cluster.kill(part)
        shutil.rmtree(folder / "etcd")
        (folder / "backup").rename(folder / "etcd")
        self.cluster.up()
        begun = time.monotonic()
        gateway.await_status(self.host("old"), timeout=20)
        gateway.await_status(self.host("new"), 404, timeout=20)
        gateway.await_backend(self.host("old"), "one", timeout=20)
        say(f"in step {time.monotonic() - begun:.2f} s after an older state was restored")
        self.route("later")
        gateway.await_status(self.host("later"))

    def test_paused_gateway_catches_up_after_it_resumes(self) -> None:
        gone, kept = self.route("gone"), self.route("kept")
        gateway = self.gateway()
        for each in ["gone", "kept"]:
            gateway.await_status(self.host(each))
        gateway.pause()
        self.api.delete(gone)
        self.slice_to(self.two)
        gateway.resume()
        gateway.await_status(self.host("gone"), 404)
        gateway.await_backend(self.host("kept"), "two")
        # Now the gateway pauses so long that the API server forgets its position in the watches.
        gateway.pause()
        self.end_api_server()
        self.cluster.start("kube-apiserver")
        self.api.delete(kept)
        self.route("new")
        revision = int(self.api.get(service(self.namespace))["metadata"]["resourceVersion"])
        for n in range(3):
            self.slice_to([self.one, self.two][n % 2])
            revision = int(self.api.get(endpoint_slice(self.namespace, []))["metadata"]["resourceVersion"])
        self.end_api_server()
        self.compact(revision)
        self.cluster.start("kube-apiserver")
        gateway.resume()
        begun = time.monotonic()
        gateway.await_status(self.host("new"))
        gateway.await_status(self.host("kept"), 404)
        gateway.await_backend(self.host("new"), "one")
        say(f"in step {time.monotonic() - begun:.2f} s after it went on, with what it knew compacted away")
        self.slice_to(self.two)
        gateway.await_backend(self.host("new"), "two")

    def compact(self, revision: int) -> None:
        """Compacts etcd: removes the history before a revision."""

        def ask() -> None:
            with self.cluster.namespace.inside():
                body = json.dumps({"revision": str(revision), "physical": True}).encode()
                urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:2379/v3/kv/compaction", body), timeout=10).close()

        # In a separate thread, so that a failure cannot leave this thread in the other namespace.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(ask).result()

    def test_gateway_reconnects_after_an_api_server_that_does_not_respond(self) -> None:
        self.route("web")
        gateway = self.gateway()
        gateway.await_status(self.host())
        self.cluster.pause("kube-apiserver")
        self.addCleanup(self.cluster.resume, "kube-apiserver")
        self.assertEqual(gateway.ask(self.host()).status, 200)
        self.cluster.kill("kube-apiserver")
        self.cluster.start("kube-apiserver")
        self.slice_to(self.two)
        gateway.await_backend(self.host(), "two", 5)


if __name__ == "__main__":
    unittest.main()
