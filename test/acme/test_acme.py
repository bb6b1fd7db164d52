"""Tests of certificates from an ACME server, with Pebble."""

import json
import re
import socket
import ssl
import tempfile
import threading
import unittest
from contextlib import closing, suppress
from pathlib import Path

from acme_site import Load, Pebble, Site, accepts, self_signed, wait

SECONDS = 45
"""The lifetime of a certificate of Pebble. Pebble suggests a renewal at a random time within the lifetime."""

TOKEN = "a" * 43
"""A token of an ACME server."""


class Orders(unittest.TestCase):
    """Two gateways, one for each challenge, under load from before their first order to the renewal of all certificates. The second gateway has a
    control plane and a data plane."""

    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.addClassCleanup(temporary.cleanup)
        folder = Path(temporary.name)
        cls.http = cls.start(folder / "http", [f"h{number}.test" for number in range(50)], "http-01")
        cls.alpn = cls.start(folder / "alpn", [f"t{number}.test" for number in range(8)], "tls-alpn-01")

    @classmethod
    def start(cls, folder: Path, hosts: list[str], challenge: str) -> Site:
        folder.mkdir()
        site = Site(folder, hosts)
        cls.addClassCleanup(site.stop)
        own, key = self_signed(folder, "own", "DNS:own.test")
        cls.own = own
        plain = site.ingress("plain.test")
        del plain["metadata"]["annotations"]
        del plain["spec"]["tls"]
        site.write("others", [site.ingress("own.test"), site.secret("own.test", own, key), site.ingress("*.wild.test"), site.ingress("no.blocked.test"), plain])
        # One nonce of twenty is rejected.
        pebble = Pebble(folder, site.http, site.https, SECONDS, blocked=["blocked.test"], PEBBLE_WFE_NONCEREJECT="5")
        cls.addClassCleanup(pebble.stop)
        start = site.start_planes if challenge == "tls-alpn-01" else site.start
        start(pebble.directory, pebble.certificate, "--acme-challenge", challenge, "--acme-orders", "8")
        return site

    def test_all_hosts_are_issued_and_renewed_under_load_without_a_failed_request(self) -> None:
        for site in (self.http, self.alpn):
            load = Load(site, None, 2)
            self.addCleanup(load.stop)
            site.load = load
        for site in (self.http, self.alpn):
            files = {host: site.state / f"shop.{host}.json" for host in site.hosts}
            wait(lambda: all(file.exists() for file in files.values()), 60, lambda: f"not issued: {[host for host, file in files.items() if not file.exists()]}\n{site.problems()[-3000:]}")
            site.first = {host: json.loads(file.read_text())["data"]["tls.crt"] for host, file in files.items()}
        for site in (self.http, self.alpn):
            def renewed(host: str) -> bool:
                return json.loads((site.state / f"shop.{host}.json").read_text())["data"]["tls.crt"] != site.first[host]

            wait(lambda: all(renewed(host) for host in site.hosts), 2 * SECONDS, lambda: f"not renewed: {[host for host in site.hosts if not renewed(host)]}\n{site.problems()[-3000:]}")
        for site in (self.http, self.alpn):
            site.load.stop()
            self.assertEqual(site.load.failures, [])
            self.assertGreater(site.load.requests, 100)
            for host in site.hosts:
                self.assertIn(b"Pebble Intermediate CA", site.certificate(host))
        # A rejected order pauses longer each time: after 1, 3, 9, 27 s and so on.
        for site in (self.http, self.alpn):
            self.assertIn(site.metric("sluicegate_acme_orders_failed_total"), range(2, 12))
            self.assertGreaterEqual(site.metric("sluicegate_acme_orders_issued_total"), 2 * len(site.hosts))
            wait(lambda: site.metric("sluicegate_acme_certificates_failing") == 1, 30, lambda: "other orders fail")
            self.assertRegex(site.problems(), r"no\.blocked\.test: spec\.tls\[0\]\.secretName: the ACME order failed: rejectedIdentifier: .*; there is no certificate yet, and the gateway tries again")

    def test_secret_of_the_user_is_served_and_not_replaced(self) -> None:
        for site in (self.http, self.alpn):
            self.assertEqual(ssl.DER_cert_to_PEM_cert(site.certificate("own.test")), (site.folder / "own.crt").read_text())
            self.assertRegex(site.problems(), r"Secret shop/own\.test was not ordered from an ACME server, so the gateway does not renew it")
            self.assertFalse((site.state / "shop.own.test.json").exists())

    def test_wildcard_host_is_refused(self) -> None:
        self.assertRegex(self.http.problems(), r"no certificate is ordered for \*\.wild\.test: the challenges http-01 and tls-alpn-01 prove no wildcard")

    def test_gateway_answers_challenges_of_its_own_hosts_alone(self) -> None:
        path = f"/.well-known/acme-challenge/{TOKEN}"
        status, body = self.http.get(self.http.http, path, Host="h0.test")
        self.assertEqual(status, 200)
        self.assertRegex(body, f"^{TOKEN}\\.[A-Za-z0-9_-]{{43}}$")
        # The solver of another controller.
        self.assertEqual(self.http.get(self.http.http, path, Host="plain.test"), (200, path))
        # Everything else is redirected to HTTPS.
        self.assertEqual(self.http.get(self.http.http, "/", Host="h0.test")[0], 308)

    def test_files_are_for_their_owner_alone(self) -> None:
        self.assertEqual(self.http.state.stat().st_mode & 0o777, 0o700)
        for file in self.http.state.iterdir():
            self.assertEqual(file.stat().st_mode & 0o777, 0o600, file)


class Failures(unittest.TestCase):
    """ACME servers that are away or hostile."""

    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.site = Site(self.folder, ["a.test"])
        self.addCleanup(self.site.stop)

    def assert_serves(self) -> None:
        load = Load(self.site, None, 1)
        wait(lambda: load.requests > 20 or load.failures, 20, lambda: "no request is served")
        load.stop()
        self.assertEqual(load.failures, [])

    def test_certificates_outlive_the_server_and_a_restart(self) -> None:
        pebble = Pebble(self.folder, self.site.http, self.site.https, 3600)
        self.addCleanup(pebble.stop)
        self.site.start(pebble.directory, pebble.certificate)
        file = self.site.state / "shop.a.test.json"
        wait(file.exists, 30, lambda: self.site.problems()[-3000:])
        wait(lambda: b"Pebble Intermediate CA" in self.site.certificate("a.test"), 10, lambda: "the certificate is not served")
        self.site.program.stop()
        pebble.program.stop()
        (self.site.state / "shop.c.test.json").write_text("mine")
        self.site.start(pebble.directory, pebble.certificate)
        self.assertIn(b"Pebble Intermediate CA", self.site.certificate("a.test"))
        self.site.write("new", [self.site.ingress("b.test"), self.site.ingress("c.test")])
        wait(lambda: "no certificate is ordered or renewed" in self.site.problems(), 20, lambda: self.site.problems()[-3000:])
        self.assert_serves()
        # The new Pebble does not know the account.
        pebble.start()
        wait((self.site.state / "shop.b.test.json").exists, 30, lambda: self.site.problems()[-3000:])
        wait(lambda: "Secret shop/c.test exists and was not ordered from an ACME server" in self.site.problems(), 20, lambda: self.site.problems()[-3000:])
        self.assertEqual((self.site.state / "shop.c.test.json").read_text(), "mine")

    def test_hostile_servers_only_delay_orders(self) -> None:
        answers = {
            "garbage": b"\x00\xff" * 100,
            "no ACME": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
            "endless": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + b" " * (4 << 20),
            "silent": b"",
        }
        for name, answer in answers.items():
            with self.subTest(name), closing(socket.create_server(("127.0.0.1", 0))) as server:
                threading.Thread(target=self.answer, args=(server, answer), daemon=True).start()
                self.site.start(f"http://127.0.0.1:{server.getsockname()[1]}/dir", self_signed(self.folder, "any", "DNS:localhost")[0], "--acme-timeout", "1s")
                wait(lambda: "no certificate is ordered or renewed" in self.site.problems(), 20, lambda: self.site.problems()[-3000:])
                self.assert_serves()
                self.site.program.stop()

    @staticmethod
    def answer(server: socket.socket, answer: bytes) -> None:
        kept = []
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with suppress(OSError):
                    if answer:
                        connection.settimeout(5)
                        connection.recv(65536)
                        connection.sendall(answer)
                        connection.close()
                kept.append(connection)


if __name__ == "__main__":
    unittest.main()
