"""Tests of Gateways with data planes of their own, in their namespaces."""

import json
from typing import Any

import yaml
from harness import ClusterError, wait_until

from .gateway import CHART, NAMESPACE, PATIENCE, Gateway, backend, name_control_plane
from .process import config_map, install_gateway_api, namespace_of
from .test_gateway_services import GROUP, URL, edge, route

CONTROL_PLANE = "app.kubernetes.io/component=control-plane"
SHOP = "shop"
"""The namespace of the Gateways with data planes of their own."""


OVERLAP = 12
"""The seconds for which a Gateway that moves keeps its former Service."""


class Planes(Gateway):
    logged = (NAMESPACE, SHOP)

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        install_gateway_api(cls.cluster, cls.folder)
        cls.install(wait=False, mode="split", replicas=1, service={"type": "ClusterIP"}, gatewayClass={"create": True},
                    dnsConfig={"nameservers": [cls.cluster.nodes[0].address]}, shutdown={"graceSeconds": 3, "idleSeconds": 3, "timeoutSeconds": 10},
                    gatewayServices={"type": "ClusterIP", "ownDataPlanes": {"enabled": True, "overlapSeconds": OVERLAP}})
        name_control_plane(cls.cluster)
        for plane in ["control-plane", "data-plane"]:
            cls.rolled_out(f"deployment/sluicegate-{plane}", NAMESPACE)
        cls.cluster.apply(namespace_of(SHOP), config_map(SHOP, "own", {"dataPlanes": "Own"}))
        cls.follow([*backend("blue")])

    def apply(self, name: str, parameters: str | None = "own") -> None:
        """Applies a Gateway and its route, in the namespace of the shop."""
        gateway, of = edge(name, 80), route(name, "blue")
        if parameters:
            gateway["spec"]["infrastructure"]["parametersRef"] = {"group": "", "kind": "ConfigMap", "name": parameters}
        of["spec"]["rules"][0]["backendRefs"][0]["namespace"] = "default"
        grant = {"apiVersion": f"{GROUP}/v1beta1", "kind": "ReferenceGrant", "metadata": {"name": SHOP, "namespace": "default"}, "spec": {
            "from": [{"group": GROUP, "kind": "HTTPRoute", "namespace": SHOP}], "to": [{"group": "", "kind": "Service"}]}}
        for each in (gateway, of):
            each["metadata"]["namespace"] = SHOP
        self.cluster.apply(grant, gateway, of)

    def get(self, kind: str, name: str, namespace: str = SHOP) -> dict[str, Any] | None:
        found: dict[str, Any] | None
        try:
            found = self.cluster.json("get", f"{kind}/{name}", "--namespace", namespace)
        except ClusterError:
            found = None
        return found

    def programmed(self, name: str) -> tuple[str, str]:
        """Returns the status and the message of the condition Programmed of a Gateway."""
        gateway = self.get("gateway", name)
        assert gateway
        conditions = {each["type"]: each for each in gateway["status"]["conditions"]}
        condition = conditions["Programmed"]
        return condition["status"], condition["message"]

    def cluster_ip(self, name: str, kind: str = "own") -> str:
        """Waits until the Gateway is programmed with the address of its Service, and returns the address."""
        place = (f"{name}-sluicegate", SHOP) if kind == "own" else (f"{SHOP}-{name}", NAMESPACE)

        def found() -> str | None:
            service, gateway = self.get("service", *place), self.get("gateway", name)
            if not service or not gateway:
                return None
            ip: str = service["spec"]["clusterIP"]
            at = [each["value"] for each in gateway.get("status", {}).get("addresses", [])]
            return ip if at == [ip] and self.programmed(name)[0] == "True" else None

        try:
            address: str = wait_until(found, f"the address of {name}", PATIENCE, 0.2)
        except ClusterError as error:
            raise ClusterError(f"{error}: {self.get('service', *place)}, {self.get('gateway', name)}") from error
        return address

    def serves(self, address: str) -> None:
        self.answers(lambda answer: answer.server == "blue", f"{URL}/", address=address)

    def own_pods(self, name: str) -> list[dict[str, Any]]:
        found = self.cluster.json("get", "pods", "--namespace", SHOP, f"--selector={GROUP}/gateway-name={name}")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def metric(self, name: str) -> float:
        """Returns the sum of a metric of the control planes."""
        pods = self.pods(CONTROL_PLANE)
        pages = [self.ask("http://localhost:9901/metrics", address=pod["status"]["podIP"]).body for pod in pods]
        return sum(float(line.split()[-1]) for page in pages for line in page.splitlines() if line.startswith((f"{name}_total ", f"{name} ")))

    def test_gateway_with_own_data_planes_serves_and_cleans_up(self) -> None:
        self.apply("one")
        self.serves(self.cluster_ip("one"))
        # The infrastructure of the Gateway is on all objects.
        pods = self.own_pods("one")
        self.assertEqual(len(pods), 1)
        for each in (self.get("service", "one-sluicegate"), self.get("deployment", "one-sluicegate"),
                     self.get("serviceaccount", "one-sluicegate"), pods[0]):
            assert each
            labels, annotations = each["metadata"]["labels"], each["metadata"]["annotations"]
            self.assertEqual((labels["team"], labels[f"{GROUP}/gateway-name"], annotations["example.com/team"]), ("one", "one", "one"))
        # The pods have a token for the control plane alone, and the shared data planes do not open the port.
        self.assertEqual([volume["name"] for volume in pods[0]["spec"]["volumes"]], ["token", "snapshot"])
        service = self.get("service", "one-sluicegate")
        assert service
        target = service["spec"]["ports"][0]["targetPort"]
        for pod in self.pods("app.kubernetes.io/component=data-plane"):
            self.assertNotEqual(self.ask(f"{URL}:{target}/", address=pod["status"]["podIP"]).server, "blue")
        self.serves_at(pods[0]["status"]["podIP"], target)
        self.monitored(pods)

        # The gateway leaves the number of pods to users and autoscalers.
        self.cluster.kubectl("scale", "deployment/one-sluicegate", "--namespace", SHOP, "--replicas=2")
        self.rolled_out("deployment/one-sluicegate", SHOP)
        self.cluster.kubectl("patch", "gateway/one", "--namespace", SHOP, "--type=merge", "--patch",
                             json.dumps({"spec": {"infrastructure": {"labels": {"team": "two"}}}}))

        def relabelled() -> bool:
            deployment = self.get("deployment", "one-sluicegate")
            assert deployment
            self.assertEqual(deployment["spec"]["replicas"], 2)
            return bool(deployment["spec"]["template"]["metadata"]["labels"]["team"] == "two")

        type(self).address = self.cluster_ip("one")
        with self.load(f"{URL}/"):
            wait_until(relabelled, "the new label", PATIENCE, 0.2)
            self.rolled_out("deployment/one-sluicegate", SHOP)
        self.assertEqual({pod["metadata"]["labels"]["team"] for pod in self.own_pods("one")}, {"two"})

        # Without data planes, the Gateway is not programmed.
        self.cluster.kubectl("scale", "deployment/one-sluicegate", "--namespace", SHOP, "--replicas=0")
        wait_until(lambda: self.programmed("one") == ("False", "no data plane of the Gateway is connected and up to date"),
                   "the Gateway not to be programmed", PATIENCE, 0.2)
        self.cluster.kubectl("scale", "deployment/one-sluicegate", "--namespace", SHOP, "--replicas=1")
        self.serves(self.cluster_ip("one"))

        self.cluster.kubectl("delete", "gateway/one", "--namespace", SHOP)
        for kind in ("service", "deployment", "serviceaccount"):
            wait_until(lambda kind=kind: not self.get(kind, "one-sluicegate"), f"the {kind} to go", PATIENCE, 0.2)

    def monitored(self, pods: list[dict[str, Any]]) -> None:
        """Checks that the PodMonitor of the chart selects these pods, and no pod of the release, and that its endpoint has the metrics."""
        monitor = yaml.safe_load(self.helm("template", "sluicegate", str(CHART), "--values", str(self.folder / "values.json"), "--set",
                                           "serviceMonitor.enabled=true,networkPolicy.enabled=false", "--show-only", "templates/podmonitor.yaml"))["spec"]
        labels = ",".join(f"{key}={value}" for key, value in monitor["selector"]["matchLabels"].items())
        self.assertEqual(monitor["namespaceSelector"], {"any": True})
        found = self.cluster.json("get", "pods", "--all-namespaces", "--selector", labels)["items"]
        self.assertEqual({pod["metadata"]["namespace"] for pod in found}, {SHOP})
        self.assertLessEqual({pod["metadata"]["name"] for pod in pods}, {pod["metadata"]["name"] for pod in found})
        (endpoint,) = monitor["podMetricsEndpoints"]
        for pod in pods:
            ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
            answer = self.ask(f"http://localhost:{ports[endpoint['port']]}{endpoint['path']}", address=pod["status"]["podIP"])
            self.assertIn("\nsluicegate_ready 1\n", answer.body)

    def serves_at(self, address: str, port: int) -> None:
        self.answers(lambda answer: answer.server == "blue", f"{URL}:{port}/", address=address)

    def test_gateway_moves_between_shared_and_own_data_planes(self) -> None:
        self.apply("mover", parameters=None)
        shared = self.cluster_ip("mover", "shared")
        self.serves(shared)
        type(self).address = shared
        # The old address works for a while beside the new address.
        with self.load(f"{URL}/"):
            self.apply("mover")
            own = self.cluster_ip("mover")
            self.serves(own)
        wait_until(lambda: not self.get("service", f"{SHOP}-mover", NAMESPACE), "the shared Service to go", PATIENCE, 0.2)
        self.serves(own)
        self.cluster.kubectl("patch", "gateway/mover", "--namespace", SHOP, "--type=json", "--patch",
                             json.dumps([{"op": "remove", "path": "/spec/infrastructure/parametersRef"}]))
        type(self).address = own
        with self.load(f"{URL}/"):
            self.serves(self.cluster_ip("mover", "shared"))
        for kind in ("service", "deployment", "serviceaccount"):
            wait_until(lambda kind=kind: not self.get(kind, "mover-sluicegate"), f"the {kind} to go", PATIENCE, 0.2)

    def test_foreign_object_with_the_name_of_a_data_plane_stays_as_it_is(self) -> None:
        foreign = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "other-sluicegate", "namespace": SHOP}}
        self.cluster.apply(foreign)
        before = self.get("serviceaccount", "other-sluicegate")
        self.apply("other")
        wait_until(lambda: self.programmed("other") == ("False", f"ServiceAccount {SHOP}/other-sluicegate exists already and is not of this Gateway"),
                   "the reason", PATIENCE, 0.2)
        self.assertEqual(self.get("serviceaccount", "other-sluicegate"), before)
        self.cluster.kubectl("delete", "serviceaccount/other-sluicegate", "--namespace", SHOP)
        self.serves(self.cluster_ip("other"))
        self.cluster.kubectl("delete", "gateway/other", "--namespace", SHOP)

    def test_token_of_another_account_or_audience_is_refused(self) -> None:
        self.apply("two")
        self.serves(self.cluster_ip("two"))
        before = self.metric("sluicegate_planes_tokens_refused")
        # A pod of the same namespace with the ServiceAccount `default`.
        deployment = self.get("deployment", "two-sluicegate")
        assert deployment
        pod = deployment["spec"]["template"]
        pod["spec"].pop("serviceAccountName")
        pod["spec"].pop("serviceAccount", None)
        thief = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "thief", "namespace": SHOP, "annotations": pod["metadata"]["annotations"]},
                 "spec": pod["spec"]}
        self.cluster.apply(thief)
        wait_until(lambda: self.metric("sluicegate_planes_tokens_refused") > before, "a refusal", PATIENCE, 0.2)
        found = self.get("pod", "thief")
        assert found
        self.assertFalse(all(status["ready"] for status in found["status"].get("containerStatuses", [{"ready": False}])))
        self.cluster.kubectl("delete", "pod/thief", "gateway/two", "--namespace", SHOP, "--grace-period=1")
