"""The examples of Gateway API's own guides, applied as they are but for the names of classes, and requested with curl."""

import re
from pathlib import Path

from harness import wait_until

from .gateway import PATIENCE, Gateway, backend
from .process import gateway_api_folder, install_gateway_api, namespace_of

GROUP = "gateway.networking.k8s.io"
CLASS = re.compile(r"gatewayClassName: \S+")


class Guides(Gateway):
    examples: Path

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        install_gateway_api(cls.cluster, cls.folder)
        cls.install(service={"type": "ClusterIP"}, gatewayClass={"create": True}, gatewayServices={"type": "ClusterIP"})
        cls.examples = gateway_api_folder(cls.folder) / "examples/standard"

    def setUp(self) -> None:
        self.applied: list[str] = []

    def tearDown(self) -> None:
        for file in reversed(self.applied):
            self.cluster.kubectl("delete", "--ignore-not-found", "--filename", file)

    def example(self, *names: str) -> None:
        """Applies these files of the examples."""
        for name in names:
            parts = (self.examples / name).read_text().split("---\n")
            # The classes of some examples have parameters of another controller.
            text = "---\n".join(CLASS.sub("gatewayClassName: sluicegate", part) for part in parts if "kind: GatewayClass" not in part)
            file = self.folder / name.replace("/", "-")
            file.write_text(text)
            self.cluster.kubectl("apply", "--filename", str(file))
            self.applied.append(str(file))

    def backends(self, *services: str, namespace: str = "default") -> None:
        """Creates Services `NAME:PORT`, each with a pod of its own."""
        objects = []
        for name, port in (each.split(":") for each in services):
            deployment, of_pods = backend(name)
            of_pods["spec"]["ports"][0]["port"] = int(port)
            for each in (deployment, of_pods):
                each["metadata"]["namespace"] = namespace
            objects += [deployment, of_pods]
        self.cluster.apply(*objects)
        for name in (each.split(":")[0] for each in services):
            self.rolled_out(f"deployment/{name}", namespace)
            self.addCleanup(self.cluster.kubectl, "delete", "--ignore-not-found", f"deployment/{name}", f"service/{name}", "--namespace", namespace)

    def secret(self, name: str, *hosts: str, namespace: str = "default") -> None:
        secret = self.authority.secret(name, *hosts)
        secret["metadata"]["namespace"] = namespace
        self.cluster.apply(secret)

    def at(self, gateway: str, namespace: str = "default") -> str:
        """Waits until a Gateway is programmed, and returns its address."""
        def found() -> str | None:
            status = self.cluster.json("get", f"gateway/{gateway}", "--namespace", namespace).get("status", {})
            conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
            addresses = [each["value"] for each in status.get("addresses", [])]
            return addresses[0] if addresses and conditions.get("Programmed") == "True" else None

        address: str = wait_until(found, f"the address of {gateway}", PATIENCE, 0.2)
        return address

    def serves(self, address: str, url: str, server: str, *options: str) -> None:
        self.answers(lambda answer: (answer.status, answer.server) == (200, server), url, *options, address=address)

    def redirects(self, address: str, url: str, status: int, to: str, *options: str) -> None:
        self.answers(lambda answer: (answer.status, answer.headers.get("location")) == (status, to), url, *options, address=address)

    def refuses(self, address: str, url: str, *options: str) -> None:
        self.answers(lambda answer: answer.status == 404, url, *options, address=address)

    def test_simple_gateway(self) -> None:
        self.backends("foo-svc:8080")
        self.example("simple-gateway/gateway.yaml", "simple-gateway/httproute.yaml")
        self.serves(self.at("prod-web"), "http://any.example.com/any", "foo-svc")

    def test_http_routing(self) -> None:
        self.backends("foo-svc:8080", "bar-svc:8080", "bar-svc-canary:8080", "example-svc:80")
        self.example("http-routing/gateway.yaml", "http-routing/foo-httproute.yaml", "http-routing/bar-httproute.yaml")
        at = self.at("example-gateway")
        self.serves(at, "http://example.com/", "example-svc")
        self.serves(at, "http://foo.example.com/login", "foo-svc")
        self.refuses(at, "http://foo.example.com/other")
        self.serves(at, "http://bar.example.com/", "bar-svc")
        self.serves(at, "http://bar.example.com/", "bar-svc-canary", "--header", "env: canary")

    def test_http_redirects(self) -> None:
        self.backends("example-svc:80")
        self.secret("redirect-example", "redirect.example")
        folder = "http-redirect-rewrite"
        self.example(f"{folder}/gateway-redirect-http-https.yaml", f"{folder}/httproute-redirect-http.yaml", f"{folder}/httproute-redirect-https.yaml",
                     f"{folder}/httproute-redirect-303.yaml", f"{folder}/httproute-redirect-307.yaml", f"{folder}/httproute-redirect-308.yaml")
        at = self.at("redirect-gateway")
        self.redirects(at, "http://redirect.example/cinnamon", 301, "https://redirect.example/cinnamon")
        self.serves(at, "https://redirect.example/cinnamon", "example-svc")
        self.redirects(at, "http://forms.example.com/submit-form", 303, "http://forms.example.com/thank-you", "--request", "POST")
        self.redirects(at, "http://api.example.com/api/v1/items", 307, "http://api.example.com/api/v2")
        self.redirects(at, "http://api.example.com/old-api", 308, "http://api.example.com/new-api")

    def test_migration_from_ingress(self) -> None:
        self.backends("foo-app:80", "foo-orders-app:80", "bar-app:80")
        self.secret("example-com", "foo.example.com", "bar.example.com")
        self.example(*(f"simple-http-https/{name}.yaml" for name in ("gateway", "tls-redirect-route", "foo-route", "bar-route")))
        at = self.at("example-gateway")
        self.redirects(at, "http://foo.example.com/orders?page=2", 302, "https://foo.example.com/orders?page=2")
        self.serves(at, "https://foo.example.com/", "foo-app")
        self.serves(at, "https://foo.example.com/orders", "foo-orders-app")
        self.serves(at, "https://bar.example.com/", "bar-app")

    def test_cross_namespace_routing(self) -> None:
        self.example("cross-namespace-routing/0-namespaces.yaml")
        self.secret("foo-example-com", "foo.example.com", namespace="infra-ns")
        self.backends("home:8080", "login-v1:8080", "login-v2:8080", namespace="site-ns")
        self.backends("store:8080", namespace="store-ns")
        self.example(*(f"cross-namespace-routing/{name}.yaml" for name in ("gateway", "site-route", "store-route")))
        at = self.at("shared-gateway", "infra-ns")
        self.serves(at, "https://foo.example.com/", "home")
        for server in ("login-v1", "login-v2"):
            self.serves(at, "https://foo.example.com/login", server)
        self.serves(at, "https://foo.example.com/store/1", "store")

    def test_tcp_routing(self) -> None:
        self.backends("my-foo-service:6000")
        self.example("tcp-routing/gateway.yaml", "tcp-routing/tcp-route.yaml")
        self.serves(self.at("my-tcp-gateway"), "http://any.example.com:8080/", "my-foo-service")

    def test_tls_routing(self) -> None:
        self.backends("bar-svc:8080")
        self.secret("tls-terminate-certificate", "bar.example.com")
        self.example("tls-routing/gateway.yaml", "tls-routing/tls-route-terminate.yaml")
        self.serves(self.at("example-gateway"), "https://bar.example.com:8443/", "bar-svc")

    def test_listener_sets(self) -> None:
        for team, host in (("1", "first"), ("2", "second")):
            self.cluster.apply(namespace_of(f"team-{team}-ns"))
            self.secret(f"{host}-workload-cert", f"{host}.foo.com", namespace=f"team-{team}-ns")
            self.backends("web:80", namespace=f"team-{team}-ns")
            self.cluster.apply({"apiVersion": f"{GROUP}/v1", "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": f"team-{team}-ns"}, "spec": {
                "parentRefs": [{"group": GROUP, "kind": "ListenerSet", "name": f"{host}-workload-listeners"}],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
        self.example("listenerset/listenerset.yaml")
        at = self.at("parent-gateway")
        for host in ("first", "second"):
            self.serves(at, f"https://{host}.foo.com/", "web")

    def test_matches_by_header_and_query(self) -> None:
        self.backends("my-service1:8080", "my-service2:8080")
        self.example("basic-http.yaml")
        at = self.at("my-gateway")
        self.serves(at, "http://foo.com/bar", "my-service1")
        self.serves(at, "http://foo.com/some/thing?great=example", "my-service2", "--header", "magic: foo")
        self.refuses(at, "http://foo.com/some/thing?great=example")

    def test_wildcard_certificate(self) -> None:
        self.backends("foo-svc:8080")
        self.secret("foo-example-com-cert", "foo.example.com")
        self.secret("wildcard-example-com-cert", "*.example.com")
        self.example("wildcard-tls-gateway.yaml")
        self.cluster.apply({"apiVersion": f"{GROUP}/v1", "kind": "HTTPRoute", "metadata": {"name": "all", "namespace": "default"}, "spec": {
            "parentRefs": [{"name": "wildcard-tls-gateway"}], "rules": [{"backendRefs": [{"name": "foo-svc", "port": 8080}]}]}})
        self.addCleanup(self.cluster.kubectl, "delete", "httproute/all")
        at = self.at("wildcard-tls-gateway")
        for host in ("foo", "other"):
            self.serves(at, f"https://{host}.example.com/", "foo-svc")
