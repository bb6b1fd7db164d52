"""cert-manager with ACME challenges by HTTP-01 through the gateway, for an Ingress and for a Gateway, with the objects of docs/routing/tls.md.

Pebble is the ACME server. A name server for the tests leads the ACME server and the self-checks of cert-manager to the gateway.
"""

import base64
import json
import re
import time
import unittest
from pathlib import Path
from typing import Any

import yaml
from harness import ClusterError, wait_until
from harness import tools as programs
from harness.addresses import CHOSEN_SERVICES
from harness.paths import BIN, IMAGES, PROJECT
from images.image import Image

from .gateway import NAMESPACE, PATIENCE, Answer, Gateway, backend, ingress, well
from .process import install_gateway_api, namespace_of

PAGE = PROJECT / "docs/routing/tls.md"
PEBBLE = [PROJECT / "target/tools" / name for name in ("pebble", "pebble-challtestsrv")]
CERT_MANAGER = ["cert-manager", "acmesolver"]
SOLVER = "sluicegate.dev/cluster/acmesolver:1"
DIRECTORY = "https://localhost:14000/dir"
ROOT = "https://localhost:15000/roots/0"
NAMES = "127.0.0.1:8053"
NAMES_API = "http://127.0.0.1:8055"
CHALLENGES = "/.well-known/acme-challenge"
GROUP = "gateway.networking.k8s.io"

ISSUED = 90
"""The longest wait for a certificate, in seconds. cert-manager checks a challenge five times in 8 s, and repeats a failed check after 10 s."""


def block(name: str) -> list[dict[str, Any]]:
    """Returns the objects of a YAML block of the page by the name of its file."""
    blocks = re.findall(rf"^```yaml\n# {re.escape(name)}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = blocks
    return list(yaml.safe_load_all(found))


def missing() -> str:
    """Returns the reason why the programs of the test are absent, or an empty string."""
    absent = [file.name for file in PEBBLE if not file.exists()] + [name for name in CERT_MANAGER if not programs.ALL[name].built]
    return f"{', '.join(absent)} not built: scripts/setup cert-manager" if absent else ""


class CertManager(Gateway):
    root: Path
    """The CA certificate of the ACME server."""

    @classmethod
    def setUpClass(cls) -> None:
        if reason := missing():
            raise unittest.SkipTest(reason)
        super().setUpClass()
        install_gateway_api(cls.cluster, cls.folder)
        cls.address = CHOSEN_SERVICES[0]
        cls.install(service={"type": "ClusterIP", "clusterIP": cls.address}, gatewayClass={"create": True}, gatewayServices={"type": "ClusterIP"},
                    admissionWebhook={"enabled": True, "failurePolicy": "Fail"})
        cls.start_acme_server()
        cls.start_cert_manager()
        cls.follow(backend("hello"))

        # cert-manager obtains these certificates at once.
        cls.publish("shop.example", cls.address)
        cls.cluster.apply(*block("shop-ingress.yaml"))
        late = ingress("late", "late.example / Prefix hello", tls={"late-tls": ["late.example"]}, force_ssl_redirect="true")
        late["metadata"]["annotations"]["cert-manager.io/cluster-issuer"] = "letsencrypt"
        cls.cluster.apply(late)
        cls.create_gateway()

    @classmethod
    def start_acme_server(cls) -> None:
        server, names = map(str, PEBBLE)
        certificate, key = cls.authority.sign("localhost")
        file = cls.folder / "pebble.json"
        file.write_text(json.dumps({"pebble": {
            "listenAddress": "127.0.0.1:14000", "managementListenAddress": "127.0.0.1:15000",
            "certificate": str(certificate), "privateKey": str(key), "httpPort": 80, "tlsPort": 443,
            "keyAlgorithm": "ecdsa", "retryAfter": {"authz": 1, "order": 1},
            "profiles": {"default": {"description": "90 days", "validityPeriod": 7776000}}}}))
        cls.cluster.popen([names, "-dnsserver", NAMES, "-management", NAMES_API.removeprefix("http://"), "-defaultIPv4", "", "-defaultIPv6", "",
                           "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""], name="names")
        # Each order has new challenges, without random delays and random errors.
        cls.cluster.popen([server, "-config", str(file), "-dnsserver", NAMES], name="pebble",
                          env={"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0", "PEBBLE_AUTHZREUSE": "0"})
        cls.root = cls.folder / "root.pem"

        def fetched() -> bool:
            done = cls.cluster.run(["curl", "--silent", "--fail", "--cacert", str(cls.authority.file), ROOT], check=False)
            cls.root.write_text(done.stdout)
            return done.returncode == 0

        wait_until(fetched, "the CA certificate of the ACME server", PATIENCE, 0.1)

    @classmethod
    def publish(cls, host: str, address: str) -> None:
        """Adds an address of a host to the name server."""
        body = json.dumps({"host": host, "addresses": [address]})
        cls.cluster.run(["curl", "--silent", "--fail", "--retry", "5", "--retry-connrefused", "--data", body, f"{NAMES_API}/add-a"])

    @classmethod
    def start_cert_manager(cls) -> None:
        cls.cluster.kubectl("apply", "--server-side", f"--filename={BIN / 'cert-manager-crds'}")
        cls.cluster.wait_for_definitions("clusterissuers.cert-manager.io", "certificates.cert-manager.io", "certificaterequests.cert-manager.io",
                                         "orders.acme.cert-manager.io", "challenges.acme.cert-manager.io")
        archive = IMAGES / "acmesolver.tar"
        Image(SOLVER, BIN / "acmesolver", user="1000").write(archive)
        cls.cluster.import_image(archive)
        cls.cluster.apply(namespace_of("cert-manager"))
        (issuer,) = block("issuer.yaml")
        trusted = base64.b64encode(cls.authority.file.read_bytes()).decode()
        issuer["spec"]["acme"] |= {"server": DIRECTORY, "caBundle": trusted}
        cls.cluster.apply(issuer)
        cls.cluster.popen([str(BIN / "cert-manager"), f"--acme-http01-solver-image={SOLVER}", f"--acme-http01-solver-nameservers={NAMES}"],
                          name="cert-manager")
        cls.cluster.wait("clusterissuer/letsencrypt", "condition=Ready")

    @classmethod
    def create_gateway(cls) -> None:
        """Creates the Gateway of the page for the host `store.example`, because the Ingress of the page has the host `shop.example`. One
        HTTPRoute redirects all requests of the HTTP listener."""
        (gateway,) = block("shop-gateway.yaml")
        (https,) = [each for each in gateway["spec"]["listeners"] if each["protocol"] == "HTTPS"]
        https |= {"hostname": "store.example", "tls": {"certificateRefs": [{"name": "store-tls"}]}}
        serve = {"backendRefs": [{"name": "hello", "port": 80}]}
        redirect = {"filters": [{"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}}]}
        routes = [{"apiVersion": f"{GROUP}/v1", "kind": "HTTPRoute", "metadata": {"name": f"shop-{section}", "namespace": "default"},
                   "spec": {"parentRefs": [{"name": "shop", "sectionName": section}], "rules": [rule]}}
                  for section, rule in (("https", serve), ("http", redirect))]
        cls.cluster.apply(gateway, *routes)

    def gateway_address(self) -> str:
        """Waits until the Gateway has a Service, and returns the address of the Service."""
        def found() -> Any:
            items = self.cluster.json("get", "services", "--namespace", NAMESPACE, f"--selector={GROUP}/gateway-name=shop")["items"]
            return items[0]["spec"]["clusterIP"] if items else None

        address: str = wait_until(found, "the Service of the Gateway", PATIENCE, 0.2)
        return address

    def complaints(self) -> str:
        states = []
        for kind in ("certificates", "certificaterequests", "orders", "challenges"):
            for each in self.cluster.json("get", kind, "--all-namespaces")["items"]:
                states.append(f"{kind} {each['metadata']['name']}: {json.dumps(each.get('status', {}))[:600]}")
        log = (self.cluster.folder.logs / "commands/cert-manager.log").read_text(errors="replace").splitlines()
        return "\n".join([super().complaints(), *states, "cert-manager:", *(line[:400] for line in log[-30:]), ""])

    # Certificates.

    def serial(self, secret: str) -> str:
        """Returns the serial number of the certificate in a Secret."""
        file = self.folder / f"{secret}.pem"
        file.write_bytes(base64.b64decode(self.cluster.json("get", f"secret/{secret}")["data"]["tls.crt"]))
        return self.cluster.run(["openssl", "x509", "-noout", "-serial", "-in", str(file)]).stdout

    def served_serial(self, host: str, address: str) -> str:
        """Returns the serial number of the certificate that a client receives for a server name."""
        said = self.cluster.run(["openssl", "s_client", "-connect", f"{address}:443", "-servername", host], check=False)
        file = self.folder / f"served-{host}.pem"
        file.write_text(said.stdout)
        return self.cluster.run(["openssl", "x509", "-noout", "-serial", "-in", str(file)], check=False).stdout

    def serves(self, host: str, address: str, secret: str, old: str = "") -> str:
        """Waits until the gateway serves the certificate in a Secret, which is not the old certificate. Returns its serial number."""
        def served() -> str | None:
            serial = self.served_serial(host, address)
            return serial if serial == self.serial(secret) != old else None

        serial: str = wait_until(served, f"the certificate of {secret}", PATIENCE, 0.1)
        return serial

    def issued(self, name: str, revision: int) -> None:
        """Waits until a Certificate is ready in this or a later revision: cert-manager sometimes renews twice."""
        def ready() -> bool:
            status = self.cluster.json("get", f"certificate/{name}").get("status", {})
            conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
            return status.get("revision", 0) >= revision and conditions.get("Ready") == "True" and "Issuing" not in conditions

        wait_until(ready, f"revision {revision} of the certificate {name}", ISSUED, 0.2)

    def renew(self, name: str) -> None:
        """Starts a renewal, like `cmctl renew`."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "renewal", "lastTransitionTime": now}
        self.cluster.kubectl("patch", f"certificate/{name}", "--subresource=status", "--type=json",
                             "--patch", json.dumps([{"op": "add", "path": "/status/conditions/-", "value": issuing}]))

    def check_certificate_and_renewal(self, host: str, name: str, address: str) -> None:
        """Checks that the gateway serves the issued certificate, and that a renewal loses no request."""
        url = f"https://{host}/"
        self.issued(name, 1)
        self.answers(well, url, "--cacert", str(self.root), address=address)
        first = self.serves(host, address, name)
        with self.load(url, rate=20, address=address, trusted=self.root):
            self.renew(name)
            self.issued(name, 2)
            self.serves(host, address, name, old=first)

    def challenge(self, host: str) -> dict[str, Any]:
        """Waits until cert-manager has made the objects for the challenge of a host, and returns the spec of the challenge."""
        def found() -> Any:
            items = self.cluster.json("get", "challenges")["items"]
            return next((each["spec"] for each in items if each["spec"]["dnsName"] == host and each.get("status", {}).get("presented")), None)

        spec: dict[str, Any] = wait_until(found, f"a challenge of {host}", PATIENCE, 0.2)
        return spec

    def solved(self, host: str, address: str) -> None:
        """Checks that a plain HTTP request for the challenge receives the key, and no other request of the host does."""
        spec = self.challenge(host)

        def key(answer: Answer) -> bool:
            return (answer.status, answer.body) == (200, spec["key"])

        self.answers(key, f"http://{host}{CHALLENGES}/{spec['token']}", address=address)

    # The tests.

    def test_challenge_of_an_ingress_that_redirects_to_https_is_answered_by_http(self) -> None:
        self.solved("late.example", self.address)
        # The host has the default certificate.
        self.assertNotEqual(self.served_serial("late.example", self.address), "")
        redirected = self.ask("http://late.example/cart")
        self.assertEqual((redirected.status, redirected.headers.get("location")), (308, "https://late.example/cart"))
        self.publish("late.example", self.address)
        self.issued("late-tls", 1)
        self.answers(well, "https://late.example/", "--cacert", str(self.root))
        self.serves("late.example", self.address, "late-tls")

    def test_gateway_of_the_page_gets_a_certificate_and_a_renewal_loses_no_request(self) -> None:
        address = self.gateway_address()
        # The host has no address yet, so the challenge is open.
        self.solved("store.example", address)
        # Without a certificate, the listener rejects handshakes.
        self.assertEqual(self.served_serial("store.example", address), "")
        redirected = self.ask("http://store.example/cart", address=address)
        self.assertEqual((redirected.status, redirected.headers.get("location")), (301, "https://store.example/cart"))
        self.publish("store.example", address)
        self.check_certificate_and_renewal("store.example", "store-tls", address)

    def test_ingress_of_the_page_gets_a_certificate_and_a_renewal_loses_no_request(self) -> None:
        self.check_certificate_and_renewal("shop.example", "shop-tls", self.address)
        redirected = self.ask("http://shop.example/cart")
        self.assertEqual((redirected.status, redirected.headers.get("location")), (308, "https://shop.example/cart"))


if __name__ == "__main__":
    unittest.main()
