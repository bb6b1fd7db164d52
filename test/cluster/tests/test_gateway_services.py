"""Tests of Gateways with a Service each, in front of the shared data plane."""

import json
import sys
from typing import Any

from harness import wait_until

from .gateway import CHART, NAMESPACE, PATIENCE, Gateway, backend
from .process import install_gateway_api
from .rights import ALL_IN_ONE, LEASE, OF_THE_CLUSTER, READ, rights, union

GROUP = "gateway.networking.k8s.io"
SERVICES = {"/services": [*READ, "create", "delete", "patch"]}
URL = "http://shop.example.com"


PROBE = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
    client.settimeout(1)
    client.connect((sys.argv[1], int(sys.argv[2])))
    # The first packet of a connection with an unknown version (RFC 9000, 17.2).
    client.send((b"\\xc0\\x1a\\x2a\\x3a\\x4a" + b"\\x08destined" + b"\\x08sourceid").ljust(1200, b"\\0"))
    print(client.recv(1500).hex())
"""
"""Prints the response of a QUIC server to a client with an unknown version."""


def listener(port: int) -> dict[str, Any]:
    return {"name": f"http-{port}", "protocol": "HTTP", "port": port}


def edge(name: str, *ports: int) -> dict[str, Any]:
    """Returns a Gateway with HTTP listeners for all hosts at these ports."""
    return {"apiVersion": f"{GROUP}/v1", "kind": "Gateway", "metadata": {"name": name}, "spec": {
        "gatewayClassName": "sluicegate", "listeners": [listener(port) for port in ports],
        "infrastructure": {"labels": {"team": name}, "annotations": {"example.com/team": name}}}}


def route(name: str, service: str) -> dict[str, Any]:
    """Returns an HTTPRoute of the Gateway with the same name to a Service."""
    return {"apiVersion": f"{GROUP}/v1", "kind": "HTTPRoute", "metadata": {"name": name}, "spec": {
        "parentRefs": [{"name": name}], "rules": [{"backendRefs": [{"name": service, "port": 80}]}]}}


class Services(Gateway):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        install_gateway_api(cls.cluster, cls.folder)
        cls.install(service={"type": "ClusterIP"}, gatewayClass={"create": True}, gatewayServices={"type": "ClusterIP"}, http3={"enabled": True},
                    shutdown={"graceSeconds": 1, "idleSeconds": 1, "timeoutSeconds": 5})
        cls.follow([*backend("blue"), *backend("green")])

    def service(self, name: str) -> dict[str, Any]:
        """Waits until the Service of a Gateway exists."""
        def found() -> Any:
            items = self.cluster.json("get", "services", "--namespace", NAMESPACE, f"--selector={GROUP}/gateway-name={name}")["items"]
            return items[0] if items else None

        found_service: dict[str, Any] = wait_until(found, f"the Service of {name}", PATIENCE, 0.2)
        return found_service

    def targets(self, name: str) -> dict[int, int]:
        return {port["port"]: port["targetPort"] for port in self.service(name)["spec"]["ports"]}

    def serves(self, name: str, service: str, port: int = 80) -> None:
        """Waits until the Gateway forwards requests to its Service."""
        self.answers(lambda answer: answer.server == service, f"{URL}:{port}/", address=self.service(name)["spec"]["clusterIP"])

    def test_gateways_with_the_same_port_have_their_own_services_and_ports(self) -> None:
        self.cluster.apply(edge("one", 80), edge("two", 80), route("one", "blue"), route("two", "green"))
        self.serves("one", "blue")
        self.serves("two", "green")
        one = self.service("one")
        self.assertEqual(one["metadata"]["name"], "default-one")
        self.assertEqual(one["metadata"]["annotations"], {"example.com/team": "one", "sluicegate.dev/gateway": "default/one"})
        self.assertEqual(one["metadata"]["labels"], {
            "team": "one", f"{GROUP}/gateway-name": "one", "sluicegate.dev/gateway-namespace": "default", "sluicegate.dev/lease": "sluicegate"})
        self.assertEqual(rights(self.cluster, "sluicegate", NAMESPACE), union(ALL_IN_ONE, LEASE, SERVICES))
        self.assertEqual(rights(self.cluster, "sluicegate", "default"), ALL_IN_ONE)

        # A new listener changes neither the other port nor the other Gateway.
        before = [self.service(name) for name in ("one", "two")]
        self.cluster.kubectl("patch", "gateway/one", "--type=merge", "--patch",
                             json.dumps({"spec": {"listeners": [listener(8080), listener(80)]}}))
        self.serves("one", "blue", port=8080)
        self.assertEqual(self.targets("one")[80], before[0]["spec"]["ports"][0]["targetPort"])
        self.assertEqual(self.service("two"), before[1])

        # New pods of the gateway rewrite nothing.
        before = [self.service(name) for name in ("one", "two")]
        self.cluster.kubectl("rollout", "restart", "deployment/sluicegate", "--namespace", NAMESPACE)
        self.rolled_out("deployment/sluicegate", NAMESPACE)
        writer = self.writer()["metadata"]["name"]
        self.serves("one", "blue", port=8080)
        self.serves("two", "green")
        # The writer restores a changed value, and thus has compared all Services.
        self.cluster.kubectl("label", "service/default-one", "--namespace", NAMESPACE, "--overwrite", "team=other")
        wait_until(lambda: self.service("one")["metadata"]["labels"]["team"] == "one", "the label", PATIENCE, 0.2)
        self.assertEqual(self.service("two"), before[1])
        self.assertEqual(self.service("one")["spec"], before[0]["spec"])
        written = [line for line in self.cluster.kubectl("logs", writer, "--namespace", NAMESPACE).splitlines() if "the Service of a Gateway" in line]
        self.assertEqual(len(written), 1, written)

        # A label that is gone from the Gateway is gone from the Service.
        self.cluster.kubectl("patch", "gateway/one", "--type=merge", "--patch", json.dumps({"spec": {"infrastructure": {"labels": None}}}))
        wait_until(lambda: "team" not in self.service("one")["metadata"]["labels"], "the label to go", PATIENCE, 0.2)

        self.cluster.kubectl("delete", "gateway/two")
        wait_until(lambda: not self.cluster.json("get", "services", "--namespace", NAMESPACE,
                                                 f"--selector={GROUP}/gateway-name=two")["items"], "the Service of two to go", PATIENCE, 0.2)
        self.serves("one", "blue")

    def test_https_ports_of_a_service_also_serve_http3(self) -> None:
        gateway = edge("secure", 80)
        gateway["spec"]["listeners"].append({"name": "https", "protocol": "HTTPS", "port": 8443, "tls": {"certificateRefs": [{"name": "secure"}]}})
        self.cluster.apply(self.authority.secret("secure", "shop.example.com"), gateway, route("secure", "blue"))
        address = self.service("secure")["spec"]["clusterIP"]
        answer = self.answers(lambda answer: answer.server == "blue", "https://shop.example.com:8443/", address=address)
        # Clients reach the Gateway at the port of its Service.
        self.assertEqual(answer.headers["alt-svc"], 'h3=":8443"; ma=86400')
        ports = {port["name"]: (port["protocol"], port["port"], port["targetPort"]) for port in self.service("secure")["spec"]["ports"]}
        self.assertEqual(ports["http3-8443"], ("UDP", 8443, ports["tcp-8443"][2]))
        self.assertEqual(len(ports), 3, ports)

        def negotiates() -> bool:
            answered = self.cluster.run([sys.executable, "-c", PROBE, address, "8443"], check=False).stdout
            # A Version Negotiation packet (RFC 9000, 17.2.1): version 0, and the connection IDs in reverse.
            return answered[2:10] == "00000000" and b"sourceid".hex() in answered

        wait_until(negotiates, "a response to QUIC", PATIENCE, 0.2)

        # A listener for UDP takes the port.
        gateway["spec"]["listeners"].append({"name": "udp", "protocol": "UDP", "port": 8443})
        self.cluster.apply(gateway)
        wait_until(lambda: "udp-8443" in {port["name"] for port in self.service("secure")["spec"]["ports"]}, "the UDP port", PATIENCE, 0.2)

    def test_foreign_service_with_the_name_of_a_gateway_stays_as_it_is(self) -> None:
        foreign = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "default-three", "namespace": NAMESPACE},
                   "spec": {"ports": [{"port": 1}]}}
        self.cluster.apply(foreign)
        before = self.cluster.json("get", "service/default-three", "--namespace", NAMESPACE)
        self.cluster.apply(edge("three", 80), route("three", "blue"), edge("four", 80), route("four", "green"))
        # The writer has compared all Services.
        self.serves("four", "green")
        self.assertEqual(self.cluster.json("get", "service/default-three", "--namespace", NAMESPACE), before)
        self.cluster.kubectl("delete", "service/default-three", "--namespace", NAMESPACE)
        self.serves("three", "blue")

    def test_watched_namespaces_need_not_include_the_namespace_of_the_services(self) -> None:
        self.cluster.apply(edge("five", 80), route("five", "blue"))
        self.serves("five", "blue")
        self.helm("upgrade", "sluicegate", str(CHART), "--reuse-values", "--set", "watchNamespaces={default}", "--wait", "--timeout", "90s")
        self.rolled_out("deployment/sluicegate", NAMESPACE)
        self.assertNotIn("/services", rights(self.cluster, "sluicegate", "kube-system"))
        self.assertEqual(rights(self.cluster, "sluicegate", NAMESPACE), union(OF_THE_CLUSTER, LEASE, SERVICES))
        self.cluster.apply(edge("six", 80), route("six", "green"))
        self.serves("six", "green")
        self.serves("five", "blue")
