"""Tests of the changes of the dashboard and of the portal in a cluster: whose rights they have."""

import json
from typing import Any

from harness import wait_until

from .process import CLUSTER_WIDE, NAMESPACED, READ, WRITE, Answer, Gateway, Manifest, lease_rules
from .test_controller import OnCluster
from .test_policies import install

DASHBOARD, PORTAL = 19903, 19904
OPERATOR, VISITOR = "token-of-the-operator", "token-of-the-visitor-01"

OF_THE_PORTAL = [
    {"apiGroups": ["sluicegate.dev"], "resources": ["subscriptions"], "verbs": ["create"]},
    {"apiGroups": ["sluicegate.dev"], "resources": ["consumers"], "verbs": ["patch"]},
]
"""The rights that the chart grants with `portal.enabled`."""


class Changes(OnCluster):
    cluster_name = "test-dashboard"

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        install(cls.site.cluster)

    def made(self, kind: str, name: str, **spec: Any) -> Manifest:
        made = {"apiVersion": "sluicegate.dev/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": self.namespace}, "spec": spec}
        self.api.create(made)
        return made

    def sites(self, *rights: Manifest) -> Gateway:
        """A gateway with a dashboard and a portal, and with further rights."""
        users = self.site.folder / f"{self.namespace}-users"
        users.write_text(f"users:\n- {{name: visitor, groups: [partners], consumers: [{self.namespace}/alice], token: {VISITOR}}}\n")
        operator = self.site.folder / "operator"
        operator.write_text(OPERATOR)
        lease = f"lease-{self.namespace}"
        account = self.site.account([*NAMESPACED, *CLUSTER_WIDE, *WRITE, *rights], lease_rules(lease))
        gateway = self.gateway(
            "--dashboard-address", f"127.0.0.1:{DASHBOARD}", "--dashboard-token-file", str(operator), "--dashboard-changes",
            "--portal-address", f"127.0.0.1:{PORTAL}", "--portal-token-file", str(users), account=account, lease_name=lease)
        return gateway

    def change(self, gateway: Gateway, port: int, kubernetes_token: str = "", **change: str) -> Answer:
        token = OPERATOR if port == DASHBOARD else VISITOR
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "X-Sluicegate-Change": "1"}
        if kubernetes_token:
            headers["X-Kubernetes-Token"] = kubernetes_token
        return gateway.ask("localhost", "/api/change", port, "POST", json.dumps(change).encode(), headers)

    def listed(self, gateway: Gateway, document: str) -> list[dict[str, Any]]:
        answer = gateway.ask("localhost", f"/api/{document}", PORTAL, headers={"Authorization": f"Bearer {VISITOR}"})
        return json.loads(answer.text)["items"] if answer.status == 200 else []

    def test_change_of_the_dashboard_has_the_rights_of_the_user_alone(self) -> None:
        consumer = self.made("Consumer", "alice")
        gateway = self.sites(*OF_THE_PORTAL)
        reader, writer = (self.site.kubeconfig(self.site.account([{"apiGroups": ["sluicegate.dev"], "resources": ["consumers"], "verbs": verbs}]))[1]
                          for verbs in (READ, [*READ, "patch"]))
        issue = {"change": "issue", "consumer": f"{self.namespace}/alice", "key": "first"}
        # The gateway has the right, and users without the right do not borrow it.
        for token, status, said in (("", 400, "needs your token"), ("no-token", 403, "Unauthorized"), (reader, 403, "forbidden")):
            answer = self.change(gateway, DASHBOARD, token, **issue)
            self.assertEqual(answer.status, status, answer.text)
            self.assertIn(said, answer.text)
        self.assertNotIn("apiKeys", self.api.get(consumer)["spec"])
        answer = self.change(gateway, DASHBOARD, writer, **issue)
        self.assertEqual(answer.status, 200, answer.text)
        key = json.loads(answer.text)["key"]["value"]
        (entry,) = self.api.get(consumer)["spec"]["apiKeys"]
        self.assertEqual((entry["name"], len(entry["sha256"])), ("first", 64))
        self.assertEqual(self.change(gateway, DASHBOARD, writer, change="revoke", consumer=issue["consumer"], key="first").status, 200)
        self.assertIs(self.api.get(consumer)["spec"]["apiKeys"][0]["revoked"], True)
        for secret in (key, writer, reader):
            self.assertNotIn(secret, gateway.log())

    def test_portal_changes_objects_with_the_rights_that_the_chart_grants(self) -> None:
        consumer = self.made("Consumer", "alice")
        self.made("Plan", "gold", approval="Manual", catalogue={"visibleTo": {"groups": ["partners"]}})
        document = "openapi: 3.1.0\ninfo: {title: Pets, version: '1'}\npaths:\n  /:\n    get: {operationId: list}\n"
        self.made("Api", "pets", document={"inline": document}, catalogue={"visibleTo": {"groups": ["partners"]}},
                  environments=[{"name": "production", "hosts": [self.host("pets")]}])
        gateway = self.sites(*OF_THE_PORTAL)
        wait_until(lambda: [api["name"] for api in self.listed(gateway, "apis")] == ["pets"], "the Api in the portal")
        subscribe = {"change": "subscribe", "consumer": f"{self.namespace}/alice", "api": f"{self.namespace}/pets", "plan": "gold"}
        self.assertEqual(self.change(gateway, PORTAL, **subscribe).status, 200)
        wait_until(lambda: [of["state"] for of in self.listed(gateway, "subscriptions")] == ["Pending"], "the pending Subscription")
        self.assertEqual(self.change(gateway, PORTAL, **subscribe).status, 409)
        answer = self.change(gateway, PORTAL, change="issue", consumer=f"{self.namespace}/alice")
        self.assertEqual(answer.status, 200, answer.text)
        self.assertEqual(len(self.api.get(consumer)["spec"]["apiKeys"]), 1)
        self.assertNotIn(json.loads(answer.text)["key"]["value"], gateway.log())

    def test_portal_without_rights_changes_nothing_and_tells_the_operator(self) -> None:
        self.made("Consumer", "alice")
        gateway = self.sites()
        wait_until(lambda: self.change(gateway, PORTAL, change="issue", consumer=f"{self.namespace}/alice").status == 503, "the refusal")
        answer = self.change(gateway, PORTAL, change="issue", consumer=f"{self.namespace}/alice")
        self.assertNotIn("forbidden", answer.text)
        gateway.await_line("the portal changed nothing", "forbidden")
