"""Tests of the installation like by a new user, and of the features with real pods."""

import json
import shlex
import unittest
from pathlib import Path
from typing import Any

from harness import wait_until
from harness.addresses import CHOSEN_SERVICES
from harness.paths import PROJECT
from images import standard
from images.image import Image

from .gateway import (
    NAMESPACE, PATIENCE, Answer, Authority, Gateway, Load, backend, ingress, lost, service,
)
from .rights import ALL_IN_ONE, LEASE, READ, rights, union

WEB = "sluicegate.dev/cluster/web:1"
"""The image of a web server at port 80, in place of nginx in the notes."""
OPENSSL = "sluicegate.dev/cluster/openssl:1"


class Newcomer(Gateway):
    """Tests with only the image, the packaged chart and the README."""

    def setUp(self) -> None:
        self.addCleanup(self.cluster.kubectl, "delete", "ingress/hello", "service/hello", "deployment/hello", "--ignore-not-found")

    def follow_notes(self, notes: str, given: dict[str, str]) -> Answer:
        """Runs the commands of the notes with the given replacements, and returns the response to their curl."""
        commands = [line.strip() for line in notes.splitlines() if line.startswith("  ")]
        curl = ""
        for command in commands:
            for what, value in given.items():
                command = command.replace(what, value)
            argv = shlex.split(command)
            if argv[0] == "curl":
                curl = command
            else:
                self.cluster.kubectl(*argv[1:])
        self.rolled_out("deployment/hello")
        _, option, to, url = shlex.split(curl)
        self.assertEqual(option, "--connect-to")
        return self.answers(lambda answer: answer.status == 200, url, option, to, address=to.split(":")[2] or "127.0.0.1")

    def web(self) -> None:
        tar = self.folder / "web.tar"
        program = max((path for path in standard.LAB if path.exists()), key=lambda path: path.stat().st_mtime)
        Image(WEB, program, ["backend", "--listen", "0.0.0.0:80", "--name", "nginx"]).write(tar)
        self.cluster.import_image(tar)

    def test_packaged_chart_installs_as_its_notes_say(self) -> None:
        self.web()
        notes = self.install()
        self.addCleanup(self.helm, "uninstall", "sluicegate", "--wait")
        # The load balancer of a cloud would write this status.
        address = "198.51.100.200"
        self.cluster.kubectl("patch", "service/sluicegate", "--namespace", NAMESPACE, "--subresource=status", "--type=merge",
                             "--patch", json.dumps({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}))
        answer = self.follow_notes(notes, {"--image=nginx": f"--image={WEB}", "ADDRESS": address})
        self.assertEqual(answer.server, "nginx")
        self.assertEqual(answer.line("host"), "hello.example.com")

        def published() -> bool:
            status = self.cluster.json("get", "ingress/hello")["status"]
            return status.get("loadBalancer", {}).get("ingress") == [{"ip": address}]

        wait_until(published, "the address in the status of the Ingress", PATIENCE)
        self.check_pods(capabilities=0)
        self.assertEqual(rights(self.cluster, "sluicegate", NAMESPACE), union(ALL_IN_ONE, LEASE))
        self.assertEqual(rights(self.cluster, "sluicegate", "default"), ALL_IN_ONE)

    def test_plain_manifests_deploy_a_gateway_at_the_addresses_of_nodes(self) -> None:
        self.web()
        self.cluster.kubectl("apply", "--filename", str(PROJECT / "deploy/daemonset.yaml"))
        # This test must be the last of its class: Kubernetes deletes a namespace only after half of the grace period of
        # its pods.
        self.rolled_out("daemonset/sluicegate", NAMESPACE)
        self.cluster.kubectl("create", "deployment", "hello", f"--image={WEB}", "--port=80")
        self.cluster.kubectl("expose", "deployment", "hello")
        self.cluster.kubectl("create", "ingress", "hello", "--class=sluicegate", "--rule=hello.example.com/*=hello:80")
        self.answers(lambda answer: answer.server == "nginx", "http://hello.example.com/", address="198.51.100.1")
        # NET_BIND_SERVICE is bit 10 (linux/capability.h).
        self.check_pods(capabilities=1 << 10)
        nodes = {"/nodes": ["get"]}
        self.assertEqual(rights(self.cluster, "sluicegate", "default"), union(ALL_IN_ONE, nodes))
        self.assertEqual(rights(self.cluster, "sluicegate", NAMESPACE), union(ALL_IN_ONE, nodes, LEASE, {"/pods": READ}))

        def published() -> bool:
            status = self.cluster.json("get", "ingress/hello")["status"]
            return status.get("loadBalancer", {}).get("ingress") == [{"ip": "198.51.100.1"}]

        wait_until(published, "the node's address in the status of the Ingress", PATIENCE)

    def check_pods(self, capabilities: int) -> None:
        """Asserts the user, the capabilities and the read-only file system of the gateway's processes."""
        pods = self.pods()
        self.assertTrue(pods)
        for pod in pods:
            process = self.process(pod)
            told = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            status = {key: value.split() for key, _, value in (line.partition(":") for line in told)}
            self.assertEqual(status["Uid"], ["65532"] * 4)
            self.assertEqual(status["Gid"], ["65532"] * 4)
            self.assertEqual(status["NoNewPrivs"], ["1"])
            self.assertEqual(int(status["CapBnd"][0], 16), capabilities)
            self.assertEqual(int(status["CapPrm"][0], 16), capabilities)
            self.assertEqual(status["Seccomp"], ["2"], "no filter for system calls")
            mounts = [line.split() for line in Path(f"/proc/{process.pid}/mountinfo").read_text().splitlines()]
            (root,) = (options for _, _, _, _, where, options, *_ in mounts if where == "/")
            self.assertIn("ro", root.split(","))


class Features(Gateway):
    """Tests of Ingresses and Services with real pods."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.address = CHOSEN_SERVICES[0]
        openssl = cls.folder / "openssl.tar"
        Image(OPENSSL, Path("/usr/bin/openssl"), files={"usr/lib/ssl/openssl.cnf": Path("/dev/null")}).write(openssl)
        cls.cluster.import_image(openssl)
        cls.clients = Authority(cls.folder, "clients")
        cls.install(service={"type": "NodePort", "clusterIP": cls.address}, replicas=1, config={"compression-min-length": "100"})
        for name in ["blue", "green", "white"]:
            cls.cluster.apply(*backend(name))
        cls.cluster.apply(cls.authority.secret("one", "one.example.com"), cls.authority.secret("two", "*.two.example.com"),
                          cls.clients.secret("clients", "client"), cls.authority.secret("inside", "tls.default.svc", "pass.example.com"))
        cls.cluster.apply(*cls.tls_server())
        for name in ["blue", "green", "white", "tls"]:
            cls.rolled_out(f"deployment/{name}")

    @classmethod
    def tls_server(cls) -> list[dict[str, Any]]:
        """Returns a backend with TLS only that responds with the state of the session: openssl s_server."""
        files = "/files/tls."
        container = {"name": "openssl", "image": OPENSSL, "volumeMounts": [{"name": "files", "mountPath": "/files"}], "args": [
            "s_server", "-www", "-accept", "9443", "-cert", f"{files}crt", "-key", f"{files}key"]}
        labels = {"app": "tls"}
        return [
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "tls"}, "spec": {
                "replicas": 1, "selector": {"matchLabels": labels}, "template": {
                    "metadata": {"labels": labels}, "spec": {
                        "terminationGracePeriodSeconds": 1, "containers": [container],
                        "volumes": [{"name": "files", "secret": {"secretName": "inside"}}]}}}},
            service("tls", "tls", 9443, backend_protocol="HTTPS", proxy_ssl_secret="inside"),
            service("raw", "tls", 9443),
            service("stranger", "tls", 9443, backend_protocol="HTTPS", proxy_ssl_secret="clients"),
            service("h2c", "blue", 9000, backend_protocol="H2C"),
            service("grpc", "blue", 9000, backend_protocol="GRPC"),
        ]

    def check(self, table: list[tuple[str, list[str], Any]]) -> None:
        """Sends requests for each URL until the backend, the status or the condition is as expected."""
        for url, options, expected in table:
            with self.subTest(url=url, options=options):
                def right(answer: Answer, expected: Any = expected) -> bool:
                    if callable(expected):
                        return bool(expected(answer))
                    return answer.status == expected if isinstance(expected, int) else answer.server == expected

                self.answers(right, url, *options)

    def test_requests_are_routed_by_host_path_and_default_backend(self) -> None:
        self.cluster.apply(
            ingress("hosts", "shop.example.com / Prefix blue", "*.example.com / Prefix green", "* /all Prefix white"),
            ingress("paths", "paths.example.com / Prefix white", "paths.example.com /exact Exact blue",
                    "paths.example.com /tree Prefix green"),
            ingress("rest", default="white"),
        )
        self.check([
            ("http://shop.example.com/", [], "blue"),
            ("http://SHOP.example.com:80/deep/down?q=1", [], "blue"),
            ("http://other.example.com/", [], "green"),
            ("http://nobody.example.net/all", [], "white"),
            ("http://nobody.example.net/", [], "white"),
            ("http://paths.example.com/", [], "white"),
            ("http://paths.example.com/exact", [], "blue"),
            ("http://paths.example.com/exact/", [], "white"),
            ("http://paths.example.com/exactly", [], "white"),
            ("http://paths.example.com/tree", [], "green"),
            ("http://paths.example.com/tree/leaf", [], "green"),
            ("http://paths.example.com/trees", [], "white"),
            ("http://shop.example.com/", ["--http2-prior-knowledge"], "blue"),
        ])

    def test_tls_hosts_use_certificates_of_secrets_and_redirect_http(self) -> None:
        self.cluster.apply(
            ingress("one", "one.example.com / Prefix blue", tls={"one": ["one.example.com"]}),
            ingress("two", "a.two.example.com / Prefix green", tls={"two": ["*.two.example.com"]}, ssl_redirect="false"),
            ingress("forced", "forced.example.com / Prefix white", force_ssl_redirect="true"),
        )
        self.check([
            # curl verifies that each host has the certificate of its name.
            ("https://one.example.com/", [], "blue"),
            ("https://a.two.example.com/", [], "green"),
            ("https://one.example.com/", ["--http1.1", "--tls-max", "1.2"], "blue"),
            ("http://one.example.com/a?b=c", [], lambda answer: answer.status == 308
                and answer.headers["location"] == "https://one.example.com/a?b=c"),
            ("http://one.example.com/.well-known/acme-challenge/x", [], "blue"),
            ("http://a.two.example.com/", [], "green"),
            ("http://forced.example.com/", [], 308),
            # A host that the connection's certificate does not cover.
            ("https://one.example.com/", ["--header", "Host: a.two.example.com"], 421),
        ])

    def test_client_certificates_are_required_and_forwarded(self) -> None:
        certificate, key = self.clients.sign("client")
        stranger, strangers_key = self.authority.sign("stranger")
        self.cluster.apply(
            self.authority.secret("private", "private.example.com"),
            ingress("private", "private.example.com / Prefix blue", tls={"private": ["private.example.com"]},
                    auth_tls_secret="clients", auth_tls_pass_certificate_to_upstream="true"),
        )
        url = "https://private.example.com/"
        self.check([
            (url, ["--cert", str(certificate), "--key", str(key)], lambda answer: answer.server == "blue"
                and answer.line("ssl-client-verify") == "SUCCESS" and answer.line("ssl-client-cert")),
            (url, ["--cert", str(stranger), "--key", str(strangers_key)], lambda answer: answer.status in (0, 400)),
            (url, [], lambda answer: answer.status in (0, 400)),
        ])

    def test_responses_are_compressed(self) -> None:
        self.cluster.apply(
            ingress("compressed", "compressed.example.com / Prefix blue", compression="br, gzip"),
            ingress("plain", "plain.example.com / Prefix blue"),
        )
        url = "http://compressed.example.com/"
        self.check([
            (url, ["--compressed", "--header", "Accept-Encoding: gzip"],
                lambda answer: answer.headers.get("content-encoding") == "gzip" and answer.server == "blue"),
            (url, [], lambda answer: "content-encoding" not in answer.headers and answer.server == "blue"),
            ("http://plain.example.com/", ["--compressed"],
                lambda answer: "content-encoding" not in answer.headers and answer.server == "blue"),
        ])

    def test_endpoints_may_use_http2_grpc_and_tls(self) -> None:
        self.cluster.apply(
            self.authority.secret("calls", "calls.example.com"),
            ingress("protocols", "h2c.example.com / Prefix h2c", "tls.example.com / Prefix tls", "stranger.example.com / Prefix stranger"),
            ingress("calls", "calls.example.com / Prefix grpc", tls={"calls": ["calls.example.com"]}),
        )
        self.check([
            ("http://h2c.example.com/", [], "blue"),
            # The endpoint responds with the protocol of its connection, and that the certificate was verified.
            ("http://tls.example.com/", [], lambda answer: answer.status == 200 and "TLSv1.3" in answer.body),
            # A CA that this Service does not trust signed the certificate.
            ("http://stranger.example.com/", [], 502),
        ])
        self.answers(lambda answer: answer.headers.get("grpc-status") == "0" or answer.status == 200, "https://calls.example.com/")
        load = Load(self.cluster, "grpc", "https://calls.example.com/echo.Echo/Say", "--connect-to", f"{self.address}:443", "--cacert",
                    str(self.authority.file), "--h2", "--grpc", "--rate", "100", "--connections", "2", "--streams", "5", duration="2s")
        counted = load.counted()
        self.assertGreater(counted["requests"]["answered"], 0)
        self.assertEqual(lost(counted), {})

    def test_tls_passthrough_reaches_the_endpoint(self) -> None:
        self.cluster.apply(ingress("passed", "pass.example.com / Prefix raw", ssl_passthrough="true"))
        # The client verifies the certificate of the endpoint: only the endpoint has a certificate for this name.
        self.check([("https://pass.example.com/", ["--http1.1"], lambda answer: answer.status == 200 and "TLSv1.3" in answer.body)])

    def test_gateway_applies_changed_settings_of_the_release(self) -> None:
        self.cluster.apply(ingress("settings", "settings.example.com / Prefix blue"))
        url = "http://settings.example.com/"
        self.check([(url, ["--data", "x" * 2000], 200)])
        self.cluster.kubectl("patch", "configmap/sluicegate", "--namespace", NAMESPACE, "--type=merge",
                             "--patch", json.dumps({"data": {"max-request-body": "1Ki"}}))
        self.check([(url, ["--data", "x" * 2000], 413)])
        self.cluster.kubectl("patch", "configmap/sluicegate", "--namespace", NAMESPACE, "--type=merge",
                             "--patch", json.dumps({"data": {"max-request-body": None}}))
        self.check([(url, ["--data", "x" * 2000], 200)])


if __name__ == "__main__":
    unittest.main()
