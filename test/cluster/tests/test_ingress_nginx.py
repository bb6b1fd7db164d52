"""Tests of Ingresses of ingress-nginx, beside a stand-in for ingress-nginx: the guide docs/migrate/ingress-nginx.md, the admission webhook, and the
addresses of clients."""

import base64
import hashlib
import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import CompletedProcess
from typing import Any

import yaml

from harness import wait_until
from harness.addresses import CHOSEN_SERVICES
from harness.paths import PROJECT

from .gateway import NAMESPACE, PATIENCE, Answer, Gateway, backend, chart, ingress, well

GUIDE = PROJECT / "docs/migrate/ingress-nginx.md"
CART = "https://cart.example.com/"
EDGE = CHOSEN_SERVICES[1]
"""The address of the Service in front of both controllers, in place of the DNS name of a host."""
STAND_IN = "198.51.100.1"
"""The address of the stand-in for ingress-nginx."""
BALANCER = "198.51.100.77"
"""The address of a load balancer that sends the PROXY protocol."""
NODE_PORT = 30080
PREFIX = "nginx.ingress.kubernetes.io"
WORKLOAD = "deployment/sluicegate"


def code(language: str, contains: str) -> str:
    """Returns the only code block of the guide in this language that contains a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if contains in block]
    return found


def of_nginx(name: str, *rules: str, of: str = "nginx-next", tls: dict[str, list[str]] | None = None, **annotations: str) -> dict[str, Any]:
    """Returns an Ingress with annotations of ingress-nginx, with underscores."""
    made = ingress(name, *rules, of=of, tls=tls)
    made["metadata"]["annotations"] = {f"{PREFIX}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return made


def denied(answer: Answer) -> bool:
    return answer.status == 503


class IngressNginx(Gateway):
    """Two nodes with a pod of Sluicegate each, and nginx as a stand-in for ingress-nginx. The stand-in serves the class `nginx`."""

    nodes = 2

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.address = CHOSEN_SERVICES[0]
        cls.values = yaml.safe_load(code("yaml", "# values.yaml")) | {
            "admissionWebhook": {"enabled": True},
            "service": {"type": "NodePort", "clusterIP": cls.address, "externalTrafficPolicy": "Local", "nodePorts": {"http": NODE_PORT}},
            # A pod on each node.
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}],
            "updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "extraArgs": [f"--proxy-protocol-peers={BALANCER}"],
            "shutdown": {"graceSeconds": 3, "idleSeconds": 3, "timeoutSeconds": 30},
        }
        # The chart of ingress-nginx creates this class.
        cls.cluster.apply({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "nginx"},
                           "spec": {"controller": "k8s.io/ingress-nginx"}})
        cls.install(**cls.values)
        cls.cluster.apply(cls.authority.secret("cart", "cart.example.com"))
        cls.follow([*backend("cart", 2), *backend("next"), of_nginx("cart", "cart.example.com / Prefix cart", of="nginx", tls={"cart": ["cart.example.com"]},
                                                                     proxy_read_timeout="30")])
        cls.cluster.namespace.sh(f"ip address add {BALANCER}/32 dev nodes")
        cls.start_stand_in()
        cls.cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "edge"}, "spec": {
            "clusterIP": EDGE, "ports": [{"name": "https", "port": 443, "targetPort": 8443}]}})
        cls.lead_to(STAND_IN)

    @classmethod
    def start_stand_in(cls) -> None:
        """Starts nginx, which forwards the host to the Service as ingress-nginx does."""
        certificate, key = cls.authority.sign("cart.example.com")
        upstream = cls.cluster.json("get", "service/cart")["spec"]["clusterIP"]
        file = cls.folder / "nginx.conf"
        file.write_text(f"""\
daemon off;
user root;
pid {cls.folder}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 10000000;
  client_body_temp_path {cls.folder}/body;
  proxy_temp_path {cls.folder}/proxy;
  fastcgi_temp_path {cls.folder}/fastcgi;
  uwsgi_temp_path {cls.folder}/uwsgi;
  scgi_temp_path {cls.folder}/scgi;
  upstream cart {{ server {upstream}:80; keepalive 32; }}
  server {{
    listen {STAND_IN}:8443 ssl http2;
    http2_max_concurrent_streams 128;
    server_name cart.example.com;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    add_header X-Served-By stand-in always;
    location / {{
      proxy_pass http://cart;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
    }}
  }}
}}
""")
        cls.cluster.popen(["nginx", "-e", "stderr", "-c", str(file)], name="stand-in")

    @classmethod
    def lead_to(cls, *addresses: str) -> None:
        """Lets the Service in front of both controllers lead to these addresses, like a change of a DNS name."""
        cls.cluster.apply({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                           "metadata": {"name": "edge-1", "labels": {"kubernetes.io/service-name": "edge"}},
                           "ports": [{"name": "https", "port": 8443}], "endpoints": [{"addresses": [each]} for each in addresses]})

    @classmethod
    def of_stand_in(cls, answer: Answer) -> bool:
        return answer.status == 200 and answer.headers.get("x-served-by") == "stand-in"

    @classmethod
    def of_sluicegate(cls, answer: Answer) -> bool:
        return answer.status == 200 and "x-served-by" not in answer.headers

    def apply(self, thing: dict[str, Any], *options: str) -> CompletedProcess[str]:
        """Applies an object like a user: the result has the words of kubectl. The object is deleted after the test."""
        file = self.folder / "apply.json"
        file.write_text(json.dumps(thing))
        self.addCleanup(self.cluster.kubectl, "delete", f"{thing['kind']}/{thing['metadata']['name']}", "--ignore-not-found")
        return self.cluster.run(["kubectl", "apply", *options, "--filename", str(file)], check=False)

    def await_webhook(self) -> None:
        """Waits until the API server asks the webhook. `--dry-run=server` stores nothing."""
        wrong = of_nginx("probe", "probe.example.com / Prefix cart", limit_rps="many")
        wait_until(lambda: "denied the request" in self.apply(wrong, "--dry-run=server").stderr, "the webhook", PATIENCE, 0.2)

    def create(self, *objects: dict[str, Any]) -> None:
        for each in objects:
            done = self.apply(each)
            self.assertEqual(done.returncode, 0, done.stderr)

    def status(self, name: str) -> Any:
        return self.cluster.json("get", f"ingress/{name}")["status"].get("loadBalancer", {}).get("ingress")

    # The guide.

    def test_host_moves_to_sluicegate_and_back_without_a_lost_request(self) -> None:
        self.answers(self.of_stand_in, CART, address=EDGE)
        (copy,) = [command for command in code("console", "jq").split("$ ") if command]
        own, self.address = self.address, EDGE
        self.addCleanup(self.cluster.kubectl, "delete", "ingress/cart-next", "--ignore-not-found")
        with self.load(CART, posts=10):
            self.cluster.run(["sh", "-ec", copy])
            self.answers(well, CART, address=own)
            wait_until(lambda: self.status("cart-next") == [{"ip": own}], "the address in the status of the copy", PATIENCE, 0.2)
            self.lead_to(*(pod["status"]["podIP"] for pod in self.pods()))
            for _ in range(20):
                self.answers(self.of_sluicegate, CART, address=EDGE)
            self.lead_to(STAND_IN)
            for _ in range(20):
                self.answers(self.of_stand_in, CART, address=EDGE)
            self.cluster.kubectl("delete", "ingress/cart-next")
        self.assertIsNone(self.status("cart"), "Sluicegate does not serve this Ingress")

    def test_ingress_changes_its_class_and_back_without_a_lost_request(self) -> None:
        """The second part of the guide: Sluicegate serves the class nginx as well."""
        secret = self.cluster.json("get", "secret/sluicegate-webhook-tls", "--namespace", NAMESPACE)["data"]
        both = self.values["ingressNginx"] | {"controllerClass": "k8s.io/ingress-nginx"}
        self.upgrade(**self.values | {"ingressNginx": both})
        self.addCleanup(lambda: self.upgrade(**self.values))
        self.assertEqual(self.cluster.json("get", "secret/sluicegate-webhook-tls", "--namespace", NAMESPACE)["data"], secret)
        self.answers(well, CART)
        with self.load(CART, posts=10):
            for name in ("nginx-next", "nginx"):
                patch = {"spec": {"ingressClassName": name}, "metadata": {"annotations": {f"{PREFIX}/proxy-read-timeout": "31"}}}
                self.cluster.kubectl("patch", "ingress/cart", "--type=merge", "--patch", json.dumps(patch))
                for _ in range(10):
                    self.answers(well, CART)
        wait_until(lambda: self.status("cart") == [{"ip": self.address}], "the address in the status of the Ingress", PATIENCE, 0.2)
        # The address of Sluicegate must not stay behind when ingress-nginx alone serves the Ingress again.
        self.addCleanup(self.cluster.kubectl, "patch", "ingress/cart", "--subresource=status", "--type=merge", "--patch",
                        json.dumps({"status": {"loadBalancer": None}}))

    def upgrade(self, **values: Any) -> None:
        file = self.folder / "values.json"
        file.write_text(json.dumps(values))
        package = next(iter(self.folder.glob("sluicegate-*.tgz")), None) or chart(self.folder)
        self.helm("upgrade", "sluicegate", str(package), "--values", str(file), "--wait", "--timeout", "110s")
        self.rolled_out(WORKLOAD, NAMESPACE)

    def test_common_annotations_apply(self) -> None:
        users = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "users"}, "data": {"auth": base64.b64encode(
            b"alice:{SHA}" + base64.b64encode(hashlib.sha1(b"secret").digest())).decode()}}
        self.create(
            users,
            of_nginx("rewrite", "annotated.example.com /api(/|$)(.*) ImplementationSpecific cart", use_regex="true", rewrite_target="/$2"),
            of_nginx("users", "users.example.com / Prefix cart", auth_type="basic", auth_secret="users", auth_realm="Cart"),
            of_nginx("moved", "moved.example.com / Prefix cart", permanent_redirect="https://elsewhere.example.com/", permanent_redirect_code="308"),
            of_nginx("near", "near.example.com / Prefix cart", whitelist_source_range="192.0.2.0/24"),
            of_nginx("small", "small.example.com / Prefix cart", proxy_body_size="10"),
            of_nginx("main", "canary.example.com / Prefix cart"),
            of_nginx("canary", "canary.example.com / Prefix next", canary="true", canary_by_header="X-Next"),
            of_nginx("shared", "cors.example.com / Prefix cart", enable_cors="true", cors_allow_origin="https://shop.example.com"),
        )
        found = self.answers(well, "http://annotated.example.com/api/cart?x=1")
        self.assertEqual(found.line("URI"), "/cart?x=1", found.body)
        self.answers(lambda answer: answer.status == 401 and "Cart" in answer.headers["www-authenticate"], "http://users.example.com/")
        self.answers(well, "http://users.example.com/", "--user", "alice:secret")
        moved = self.answers(lambda answer: answer.status == 308, "http://moved.example.com/")
        self.assertEqual(moved.headers["location"], "https://elsewhere.example.com/")
        self.answers(lambda answer: answer.status == 403, "http://near.example.com/")
        self.answers(lambda answer: answer.status == 413, "http://small.example.com/", "--data", "more than ten bytes")
        self.answers(lambda answer: answer.server == "cart", "http://canary.example.com/")
        self.answers(lambda answer: answer.server == "next", "http://canary.example.com/", "--header", "X-Next: always")
        shared = self.answers(well, "http://cors.example.com/", "--header", "Origin: https://shop.example.com")
        self.assertEqual(shared.headers["access-control-allow-origin"], "https://shop.example.com")

    # The webhook.

    def test_webhook_rejects_a_wrong_object_with_its_reasons_and_accepts_a_right_object(self) -> None:
        self.await_webhook()
        wrong = of_nginx("wrong", "wrong.example.com / Prefix cart", limit_rps="many", proxy_read_timeout="soon")
        done = self.apply(wrong)
        self.assertEqual(done.returncode, 1)
        self.assertIn('admission webhook "validate.sluicegate.dev" denied the request: ', done.stderr)
        for annotation in ("limit-rps", "proxy-read-timeout"):
            self.assertIn(f"Ingress default/wrong: metadata.annotations[{PREFIX}/{annotation}]: ", done.stderr)
        right = self.apply(of_nginx("right", "right.example.com / Prefix cart", limit_rps="5"))
        self.assertEqual((right.returncode, right.stderr), (0, ""))
        taken = self.apply(of_nginx("taken", "right.example.com / Prefix next"))
        self.assertIn('Ingress default/right already has the path "/" of host right.example.com', taken.stderr)
        policy = {"apiVersion": "sluicegate.dev/v1alpha1", "kind": "TrafficPolicy", "metadata": {"name": "wrong"}, "spec": {
            "targetRefs": [{"group": "networking.k8s.io", "kind": "Ingress", "name": "right"}], "headerPolicy": {}}}
        self.assertNotEqual(self.apply(policy).returncode, 0)

    def test_webhook_accepts_objects_in_any_order_and_of_other_controllers(self) -> None:
        self.await_webhook()
        early = self.apply(of_nginx("early", "early.example.com / Prefix later", auth_type="basic", auth_secret="later"))
        self.assertEqual(early.returncode, 0, early.stderr)
        self.assertIn("Warning: Ingress default/early: ", early.stderr)
        self.assertIn("Service default/later does not exist", early.stderr)
        other = self.apply(of_nginx("other", "other.example.com / Prefix cart", of="nginx", limit_rps="many"))
        self.assertEqual((other.returncode, other.stderr), (0, ""), "ingress-nginx serves the class")

    def test_webhook_that_is_down_blocks_no_object_and_the_gateway_closes_the_routes(self) -> None:
        self.await_webhook()
        self.cluster.kubectl("scale", WORKLOAD, "--namespace", NAMESPACE, "--replicas=0")
        wait_until(lambda: not self.cluster.json("get", "pods", "--namespace", NAMESPACE)["items"], "the pods to end", PATIENCE, 0.2)
        self.create(of_nginx("closed", "closed.example.com / Prefix cart", auth_url="ftp://wrong/"))
        self.cluster.kubectl("scale", WORKLOAD, "--namespace", NAMESPACE, "--replicas=2")
        self.rolled_out(WORKLOAD, NAMESPACE)
        self.answers(denied, "http://closed.example.com/")

        def notes() -> list[str]:
            events = self.cluster.json("get", "events.events.k8s.io")["items"]
            return [event["note"] for event in events if event["regarding"].get("name") == "closed"]

        field = f"metadata.annotations[{PREFIX}/auth-url]"
        wait_until(lambda: any(field in note and "503" in note for note in notes()), "an Event with the reason", PATIENCE, 0.2)
        annotations = self.cluster.json("get", "ingress/closed")["metadata"]["annotations"]
        self.assertIn(field, annotations["sluicegate.dev/problems"])

    def test_pods_count_reviews_by_verdict(self) -> None:
        self.await_webhook()
        right = of_nginx("counted", "counted.example.com / Prefix cart")

        def counts() -> dict[str, int]:
            sums: dict[str, int] = {}
            for pod in self.pods():
                address = pod["status"]["podIP"]
                body = self.ask(f"http://{address}:9901/metrics", address=address).body
                for verdict, count in re.findall(r'^sluicegate_admission_reviews_total\{verdict="(\w+)"\} (\d+)$', body, re.MULTILINE):
                    sums[verdict] = sums.get(verdict, 0) + int(count)
            return sums

        before = counts()
        self.assertEqual(self.apply(right, "--dry-run=server").returncode, 0)
        after = counts()
        self.assertEqual(after["allowed"] - before["allowed"], 1)
        self.assertGreater(after["denied"], 0)
        self.assertEqual(after["failed"], 0)

    # Clients.

    def test_endpoints_receive_the_addresses_of_external_clients(self) -> None:
        """`externalTrafficPolicy: Local`: the node passes connections to its own pod, and keeps the address of the client."""
        self.create(of_nginx("client", "client.example.com / Prefix cart"))
        # The client is in the network of the first node, and so no external client of this node.
        found = self.received(STAND_IN, "client.example.com")
        self.assertIn(f"x-real-ip: {STAND_IN}\n", found, found)
        self.assertIn(f"x-forwarded-for: {STAND_IN}\n", found, found)

    def test_endpoints_receive_the_addresses_of_the_proxy_protocol(self) -> None:
        self.create(of_nginx("proxied", "proxied.example.com / Prefix cart"))
        header = b"PROXY TCP4 192.0.2.9 198.51.100.2 41000 80\r\n"
        found = self.received(BALANCER, "proxied.example.com", header)
        self.assertIn("x-real-ip: 192.0.2.9\n", found, found)
        # The header of another client is no HTTP.
        found = self.received(STAND_IN, "proxied.example.com", header)
        self.assertTrue(found.startswith("http/1.1 400 "), found)

    def received(self, source: str, host: str, before: bytes = b"") -> str:
        """Sends requests to the pod of the second node until it serves the host. Returns the response in lower case."""
        def response() -> str:
            with self.connection(source, self.cluster.nodes[1].address) as connection:
                connection.sendall(before)
                found = asked(connection, host)
            return "" if found.startswith("http/1.1 404 ") else found

        return wait_until(response, f"a route of {host} in the pod of the second node", PATIENCE, 0.1)

    @contextmanager
    def connection(self, source: str, node: str) -> Iterator[socket.socket]:
        """Connects from an address to the port of a node."""
        with self.cluster.namespace.inside():
            connection = socket.create_connection((node, NODE_PORT), timeout=10, source_address=(source, 0))
        with connection:
            yield connection


def asked(connection: socket.socket, host: str) -> str:
    """Sends a request, and returns the response in lower case."""
    connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    received = b""
    while more := connection.recv(65536):
        received += more
    return received.decode().lower().replace("\r\n", "\n")
