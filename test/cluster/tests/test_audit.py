"""Tests of the audit trail with a real API server: users, managers, restarts, and several control planes with one database."""

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

from harness import wait_until

from .policies import VERSION, consumer
from .process import Gateway, Manifest, Pair, endpoint_slice, ingress, install_gateway_api, metadata, secret, service
from .test_controller import OnCluster
from .test_policies import install

WEBHOOK_PORT = 19443

KINDS = [
    ("sluicegate.dev", ["consumers", "plans", "subscriptions"]),
    ("networking.k8s.io", ["ingresses"]),
]


def webhook(pair: Pair) -> Manifest:
    """The webhook of the chart, with the address of a process."""
    client = {"url": f"https://localhost:{WEBHOOK_PORT}/audit", "caBundle": base64.b64encode(pair.certificate).decode()}
    rules = [{"apiGroups": [group], "apiVersions": ["*"], "resources": resources, "operations": ["CREATE", "UPDATE", "DELETE"]}
             for group, resources in KINDS]
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "audit"},
            "webhooks": [{"name": "audit.sluicegate.dev", "admissionReviewVersions": ["v1"], "sideEffects": "NoneOnDryRun",
                          "failurePolicy": "Ignore", "timeoutSeconds": 5, "rules": rules, "clientConfig": client}]}


class Audit(OnCluster):
    """Tests of a gateway with an audit trail."""

    cluster_name = "test-audit"
    database: Path

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        install(cls.site.cluster)
        cls.pair = self_signed(cls.site.folder, "localhost")
        for name, content in (("tls.crt", cls.pair.certificate), ("tls.key", cls.pair.key)):
            (cls.site.folder / name).write_bytes(content)
        cls.site.cluster.apply(webhook(cls.pair))

    def setUp(self) -> None:
        super().setUp()
        self.database = self.site.folder / f"{self.namespace}.db"

    def audited(self, hears: bool = True) -> Gateway:
        """Starts a gateway with the database of the test. `hears` adds the webhook."""
        folder = self.site.folder
        options = ["--audit", f"--analytics-database=sqlite:{self.database}"]
        if hears:
            options += [f"--validating-webhook=127.0.0.1:{WEBHOOK_PORT}", f"--validating-webhook-certificate={folder}/tls.crt",
                        f"--validating-webhook-key={folder}/tls.key"]
        return self.gateway(*options)

    def entries(self, gateway: Gateway, **filters: str) -> list[dict[str, Any]]:
        asked = "&".join(f"{name}={value}" for name, value in {"namespace": self.namespace, **filters}.items())
        answer = gateway.admin(f"/audit?after=0&limit=1000&{asked}")
        return [json.loads(line) for line in answer.text.splitlines()] if answer.status == 200 else []

    def await_entries(self, gateway: Gateway, count: int, **filters: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []

        def enough() -> bool:
            found[:] = self.entries(gateway, **filters)
            return len(found) >= count

        wait_until(enough, f"{count} entries of {filters}, not {found}:\n{gateway.log()[-3000:]}", 30, 0.05)
        self.assertEqual(len(found), count, found)
        return found

    def as_user(self, user: str, *argv: str, objects: Manifest | None = None) -> None:
        self.cluster.kubectl(f"--as={user}", "--as-group=system:masters", "--as-group=owners", *argv,
                             input=json.dumps(objects) if objects else None)

    def plan(self, requests: int) -> Manifest:
        return {"apiVersion": VERSION, "kind": "Plan", "metadata": metadata(self.namespace, "gold"),
                "spec": {"limits": [{"name": "second", "requests": requests, "per": "1s"}]}}

    def test_user_of_each_change_arrives(self) -> None:
        gateway = self.audited()
        self.as_user("alice", "apply", "--filename=-", objects=self.plan(10))
        (created,) = self.await_entries(gateway, 1, kind="Plan")
        self.assertEqual((created["operation"], created["actor"]["type"], created["actor"]["name"]), ("created", "user", "alice"))
        self.assertIn("owners", created["actor"]["groups"])
        # A dry run and a rejected object change nothing.
        self.as_user("eve", "apply", "--dry-run=server", "--filename=-", objects=self.plan(11))
        self.as_user("bob", "apply", "--filename=-", objects=self.plan(20))
        changed = self.await_entries(gateway, 2, kind="Plan")[1]
        self.assertEqual(changed["actor"]["name"], "bob")
        self.assertEqual(changed["changes"], [{"field": "/spec/limits/0/requests", "old": 10, "new": 20}])
        self.assertEqual(changed["generation"], 2)
        self.as_user("carol", "delete", "plan/gold", "--namespace", self.namespace)
        deleted = self.await_entries(gateway, 3, kind="Plan")[2]
        self.assertEqual((deleted["operation"], deleted["actor"]["name"]), ("deleted", "carol"))

    def test_ingress_has_no_entry_for_what_the_gateway_writes(self) -> None:
        gateway = self.audited()
        self.shop()
        # The Ingress has a problem, so the gateway writes an annotation.
        made = ingress(self.namespace, "web", self.host("web"), service="nowhere")
        self.as_user("alice", "apply", "--filename=-", objects=made)
        self.addCleanup(lambda: self.api.find(made) and self.api.delete(made))
        wait_until(lambda: self.problems(made), "the annotation", 30, 0.05)
        self.as_user("bob", "label", "ingress/web", "team=shop", "--namespace", self.namespace)
        entries = self.await_entries(gateway, 2, kind="Ingress")
        self.assertEqual([(entry["operation"], entry["actor"]["name"]) for entry in entries], [("created", "alice"), ("changed", "bob")])
        self.assertEqual(entries[1]["changes"], [{"field": "/metadata/labels", "new": {"team": "shop"}}])

    def test_change_that_no_webhook_told_has_its_manager(self) -> None:
        gateway = self.audited(hears=False)
        self.cluster.kubectl("apply", "--field-manager=deployer", "--filename=-", input=json.dumps(self.plan(10)))
        (created,) = self.await_entries(gateway, 1, kind="Plan")
        self.assertEqual(created["actor"], {"type": "manager", "name": "deployer"})
        self.cluster.kubectl("delete", "plan/gold", "--namespace", self.namespace)
        deleted = self.await_entries(gateway, 2, kind="Plan")[1]
        self.assertEqual(deleted["actor"], {"type": "unknown"})

    def test_secret_and_service_are_recorded_once_they_are_used(self) -> None:
        gateway = self.audited()
        self.api.create(secret(self.namespace, "other", {"a": b"a-s3cr3t"}))
        pair = Pair.create(self.site.folder, self.host())
        of_tls = pair.secret(self.namespace, "tls")
        self.api.create(of_tls, service(self.namespace), endpoint_slice(self.namespace, [self.one]))
        self.route("web", tls="tls")
        gateway.await_status(self.host(), 308)
        (found,) = self.await_entries(gateway, 1, kind="Secret")
        self.assertEqual(found["name"], "tls")
        self.api.patch(of_tls, {"data": Pair.create(self.site.folder, self.host()).secret(self.namespace, "tls")["data"]})
        changed = self.await_entries(gateway, 2, kind="Secret")[1]
        self.assertEqual({change["field"]: change.get("secret") for change in changed["changes"]},
                         {"/data/tls.crt": "changed", "/data/tls.key": "changed"})
        self.assertEqual(self.entries(gateway, kind="Service"), [])
        self.api.patch(service(self.namespace), {"metadata": {"annotations": {"sluicegate.dev/proxy-protocol": "v1"}}})
        (of_service,) = self.await_entries(gateway, 1, kind="Service")
        self.assertEqual(of_service["changes"][0]["field"], "/metadata/annotations")
        key = base64.b64encode(pair.key)
        for file in self.database.parent.glob(f"{self.database.name}*"):
            content = file.read_bytes()
            for text in (b"s3cr3t", key[40:80], pair.key[60:100]):
                self.assertNotIn(text, content)

    def test_gateways_and_routes_of_other_implementations_are_not_recorded(self) -> None:
        install_gateway_api(self.cluster, self.site.folder)
        gateway = self.audited()
        api, kinds = "gateway.networking.k8s.io/v1", []
        for name, class_name, port in (("ours", "sluicegate", gateway.port + 5), ("other", "other", 80)):
            listener = {"name": "http", "protocol": "HTTP", "port": port}
            kinds += [
                {"apiVersion": api, "kind": "Gateway", "metadata": metadata(self.namespace, name),
                 "spec": {"gatewayClassName": class_name, "listeners": [listener]}},
                {"apiVersion": api, "kind": "HTTPRoute", "metadata": metadata(self.namespace, name),
                 "spec": {"parentRefs": [{"name": name}], "hostnames": [f"{name}.test"]}},
            ]
        self.cluster.apply(*kinds)
        entries = self.await_entries(gateway, 2)
        self.assertEqual({(entry["kind"], entry["name"]) for entry in entries}, {("Gateway", "ours"), ("HTTPRoute", "ours")})
        moved = {"spec": {"parentRefs": [{"name": "other"}]}}
        self.cluster.kubectl("patch", "httproute/ours", "--namespace", self.namespace, "--type=merge", "--patch", json.dumps(moved))
        last = self.await_entries(gateway, 3)[2]
        self.assertEqual(last["changes"], [{"field": "/spec/parentRefs/0/name", "old": "ours", "new": "other"}])

    def test_restart_records_what_happened_meanwhile_and_two_gateways_record_once(self) -> None:
        first = self.audited()
        self.api.create(self.plan(10), consumer(self.namespace, "alice"))
        self.await_entries(first, 2)
        first.running.kill()
        self.api.patch(self.plan(10), {"spec": {"limits": [{"name": "second", "requests": 30, "per": "1s"}]}})
        self.api.delete(consumer(self.namespace, "alice"))
        both = [self.audited(), self.audited(hears=False)]
        entries = self.await_entries(both[0], 4)
        self.assertEqual({(entry["operation"], entry["kind"]) for entry in entries[2:]}, {("changed", "Plan"), ("deleted", "Consumer")})
        for requests in range(40, 45):
            self.as_user("alice", "apply", "--filename=-", "--server-side", "--force-conflicts", objects=self.plan(requests))
        entries = self.await_entries(both[1], 9)
        self.assertEqual({entry["actor"].get("name") for entry in entries[4:]}, {"alice"})
        argv = [str(both[0].build), "audit", "verify", "--admin", f"127.0.0.1:{both[0].port + 2}"]
        with self.cluster.namespace.inside():
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
        self.assertIn("are complete and unchanged", done.stdout, done.stderr)


def self_signed(folder: Path, name: str) -> Pair:
    """Returns a certificate for a name that is its own CA."""
    certificate, key = folder / "self.crt", folder / "self.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return Pair(certificate.read_bytes(), key.read_bytes())
