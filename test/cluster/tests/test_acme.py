"""Certificates from an ACME server (Pebble), ordered by gateways that follow a cluster."""

import base64
import json
import unittest

from harness import wait_until
from harness.paths import PROJECT

from .process import CLUSTER_WIDE, HOME, NAMESPACED, WRITE, Gateway, Manifest, Pair, lease_rules, secret
from .test_controller import OnCluster

TOOLS = [PROJECT / "target/tools" / name for name in ("pebble", "pebble-challtestsrv")]
SERVER, MANAGEMENT, NAMES = 14000, 15000, 8053
MAY_WRITE = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "update"]}]
ASKS = {"sluicegate.dev/acme": "true"}

ISSUED = 60
"""The longest wait for a certificate, in seconds."""


@unittest.skipUnless(all(tool.exists() for tool in TOOLS), "Pebble is not built: scripts/setup acme")
class Acme(OnCluster):
    cluster_name = "test-acme"

    def setUp(self) -> None:
        super().setUp()
        authority = Pair.create(self.site.folder, "acme-authority")
        pair = Pair.create(self.site.folder, "localhost", authority)
        self.files = [self.site.folder / name for name in ("acme.crt", "acme.key", "acme-ca.crt")]
        for file, content in zip(self.files, (pair.certificate, pair.key, authority.certificate)):
            file.write_bytes(content)
        self.lease = f"lease-{self.site.number()}"
        self.account = self.site.account(NAMESPACED + CLUSTER_WIDE + WRITE + MAY_WRITE, lease_rules(self.lease))
        self.options = ["--acme-terms-agreed", "--acme-directory", f"https://localhost:{SERVER}/dir", "--acme-ca", str(self.files[2]), "--acme-retry", "1s"]
        self.shop()

    def replica(self, *options: str) -> Gateway:
        return self.gateway(*self.options, *options, account=self.account, lease_name=self.lease)

    def start_pebble(self, of: Gateway) -> None:
        """Starts Pebble, which validates hosts at the ports of a gateway."""
        server, names = map(str, TOOLS)
        config = self.site.folder / "pebble.json"
        config.write_text(json.dumps({"pebble": {
            "listenAddress": f"127.0.0.1:{SERVER}", "managementListenAddress": f"127.0.0.1:{MANAGEMENT}", "certificate": str(self.files[0]), "privateKey": str(self.files[1]),
            "httpPort": of.port, "tlsPort": of.port + 1, "keyAlgorithm": "ecdsa", "retryAfter": {"authz": 1, "order": 1},
            "profiles": {"default": {"description": "90 days", "validityPeriod": 7776000}}}}))
        resolver = self.cluster.popen([names, "-dnsserver", f"127.0.0.1:{NAMES}", "-management", "", "-defaultIPv4", "127.0.0.1", "-defaultIPv6", "",
                                       "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""], name="names")
        pebble = self.cluster.popen([server, "-config", str(config), "-dnsserver", f"127.0.0.1:{NAMES}"], name="pebble",
                                    env={"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0", "PEBBLE_AUTHZREUSE": "0"})
        self.addCleanup(resolver.kill)
        self.addCleanup(pebble.kill)

    def await_secret(self, name: str) -> Manifest:
        wanted = secret(self.namespace, name, {})
        return wait_until(lambda: self.api.find(wanted), f"the Secret {name}", ISSUED, 0.05)

    def await_served(self, name: str, found: Manifest, *gateways: Gateway) -> None:
        """Waits until gateways serve the certificate of a Secret."""
        pem = base64.b64decode(found["data"]["tls.crt"]).decode().split("-----")[2]
        for gateway in gateways:
            wait_until(lambda: gateway.certificate(self.host(name)) == base64.b64decode(pem), f"the certificate of {name} at {gateway.name}", 30, 0.02)
            self.assertEqual(gateway.ask_tls(self.host(name)), 200)

    def orders(self, gateway: Gateway) -> float:
        return gateway.metric("sluicegate_acme_orders_issued_total")

    def test_leader_orders_certificates_that_every_gateway_serves(self) -> None:
        leader = self.replica()
        leader.await_line("this process holds the Lease")
        other = self.replica()
        # The gateway without the Lease answers the challenges.
        self.start_pebble(other)
        self.route("web", annotations=ASKS, tls="web-tls")
        made = self.await_secret("web-tls")
        self.assertEqual((made["type"], made["metadata"]["labels"]), ("kubernetes.io/tls", {"sluicegate.dev/acme": "issued"}))
        self.await_served("web", made, leader, other)
        self.assertEqual((self.orders(leader), self.orders(other)), (1, 0))
        account = self.api.get(secret(HOME, "sluicegate-acme", {}))
        self.assertEqual(set(account["data"]), {"account.key", "thumbprint"})

        # A Secret of another type is invisible to the watch of certificates, and is not overwritten either.
        self.api.create(secret(self.namespace, "mine-tls", {"tls.crt": b"mine"}))
        mine = self.route("mine", annotations=ASKS, tls="mine-tls")
        wait_until(lambda: "exists and was not ordered from an ACME server" in (self.problems(mine) or ""), "the problem of the Ingress", ISSUED, 0.05)
        self.assertEqual(base64.b64decode(self.api.get(secret(self.namespace, "mine-tls", {}))["data"]["tls.crt"]), b"mine")

        # The next leader has the account, and orders.
        leader.running.kill()
        other.await_line("this process holds the Lease", timeout=60)
        self.route("late", annotations=ASKS, tls="late-tls")
        self.await_served("late", self.await_secret("late-tls"), other)
        self.assertEqual(self.orders(other), 1)
        self.assertEqual(self.api.get(account)["data"], account["data"])

    def test_gateway_without_the_right_to_write_secrets_reports_the_right_and_serves(self) -> None:
        self.account = self.site.account(NAMESPACED + CLUSTER_WIDE + WRITE, lease_rules(self.lease))
        gateway = self.replica("--acme-account-secret", "other")
        web = self.route("web", annotations=ASKS, tls="web-tls")
        gateway.await_line("no certificate is ordered or renewed", "cannot read or write Secret sluicegate/other", "forbidden")
        self.assertEqual(gateway.ask_tls(self.host("web")), 200)
        self.assertIn("is not ordered yet", gateway.log())
        self.assertIsNotNone(web)

    def test_tls_alpn_challenge_reaches_every_gateway(self) -> None:
        options = ["--acme-challenge", "tls-alpn-01", "--acme-account-secret", "alpn"]
        leader = self.replica(*options)
        leader.await_line("this process holds the Lease")
        self.start_pebble(self.replica(*options))
        self.route("web", annotations=ASKS, tls="web-tls")
        self.await_served("web", self.await_secret("web-tls"), leader)
        challenges = self.api.get(secret(HOME, "alpn-challenges", {}))
        wait_until(lambda: not self.api.get(challenges).get("data"), "the end of the challenge", 30, 0.05)
