"""A gateway that uses all features, a control plane with a data plane, their endpoints, traffic, and Prometheus."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ingress-nginx"))

from expressions import PROJECT  # noqa: E402
from process import Program, accepts, free_ports  # noqa: E402

PROGRAM = Path(os.environ.get("SLUICEGATE") or PROJECT / "target/debug/sluicegate").resolve()
"""The program: the file of the environment variable SLUICEGATE, or the debug build."""

SHUTDOWN = ["--shutdown-grace", "0s", "--shutdown-idle", "0s", "--shutdown-timeout", "1s"]
KEY = "key-of-the-mobile-app"
TOKEN = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "EdDSA", "kid": "one"}, {"iss": "https://issuer.example", "exp": 4102444800})) + ".AA"
DOCUMENT = """openapi: 3.1.0
info: {title: Orders, version: "1"}
paths:
  /orders:
    get:
      operationId: listOrders
      parameters: [{name: customer, in: query, required: true, schema: {type: integer}}]
      responses: {"200": {description: Orders., content: {application/json: {schema: {type: array}, example: []}}}}
"""


class Endpoint(BaseHTTPRequestHandler):
    """An endpoint, an authorization service, and the issuer of tokens."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urllib.parse.urlparse(self.path).path
        if path == "/reset":
            # The client has sent the request, and receives no response.
            self.close_connection = True
            return
        body: Any = {"path": path}
        if path == "/jwks":
            body = {"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": "Cmtel8gbHLR-i_CaxcgmEcTCXBnD9_LDu2WJOgQVaoA"}]}
        self.send_response({"/failed": 500, "/missing": 404, "/denied": 403}.get(path, 200))
        body = json.dumps(body).encode()
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if path == "/cached":
            self.send_header("Cache-Control", "max-age=60")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


class Endpoints(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Reports nothing: clients close connections at any time."""


def named(kind: str, name: str, spec: dict[str, Any], version: str = "sluicegate.dev/v1alpha1") -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"namespace": "shop", "name": name}, "spec": spec}


def service(name: str, addresses: list[str], port: int) -> list[dict[str, Any]]:
    return [{"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": name}, "spec": {"ports": [{"name": "http", "port": 80}]}},
            {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "metadata": {"namespace": "shop", "name": name, "labels": {"kubernetes.io/service-name": name}},
             "ports": [{"name": "http", "port": port}], "endpoints": [{"addresses": [address]} for address in addresses]}]


def ingress(name: str, paths: dict[str, str], secret: str | None = None) -> dict[str, Any]:
    host = f"{name}.example"
    backends = [{"path": path, "pathType": "Prefix", "backend": {"service": {"name": to, "port": {"name": "http"}}}} for path, to in paths.items()]
    tls = {"tls": [{"hosts": [host], "secretName": secret}]} if secret else {}
    return named("Ingress", name, {"ingressClassName": "sluicegate", "rules": [{"host": host, "http": {"paths": backends}}], **tls}, "networking.k8s.io/v1")


def of_ingress(name: str) -> list[dict[str, str]]:
    return [{"group": "networking.k8s.io", "kind": "Ingress", "name": name}]


def of_service(name: str) -> list[dict[str, str]]:
    return [{"group": "", "kind": "Service", "name": name}]


def secret(name: str, values: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "shop", "name": name}, "stringData": values}


def manifests(folder: Path, *, endpoint: int, redis: int, tcp: int, closed: int) -> list[dict[str, Any]]:
    base = f"http://127.0.0.1:{endpoint}"
    certificate(folder, "shop", ["-subj", "/CN=secure.example", "-addext", "subjectAltName=DNS:secure.example"])
    return [
        *service("web", ["127.0.0.1", "127.0.0.2"], endpoint), *service("cached", ["127.0.0.1"], endpoint), *service("only", ["127.0.0.1"], endpoint), *service("pair", ["127.0.0.1", "127.0.0.3"], endpoint), *service("tcp", ["127.0.0.1"], endpoint), *service("empty", [], endpoint), *service("closed", ["127.0.0.1"], closed),
        {**secret("shop", {"tls.crt": (folder / "shop.crt").read_text(), "tls.key": (folder / "shop.key").read_text()}), "type": "kubernetes.io/tls"},
        ingress("web", {"/": "web", "/empty": "empty", "/reset": "pair", "/cached": "cached"}),
        ingress("secure", {"/": "only"}, "shop"),
        named("TrafficPolicy", "web", {"targetRefs": of_ingress("web"), "mirror": {"serviceRef": {"name": "only", "port": 80}, "percent": 50}, "fault": {"delay": {"percent": 10, "time": "1ms"}},
              "split": {"weight": 90, "backends": [{"serviceRef": {"name": "only", "port": 80}, "weight": 10}]}}),
        named("TrafficPolicy", "cached", {"targetRefs": of_service("cached"), "cache": {"maxSize": "8Mi", "staleIfError": "1h"}}),
        named("TrafficPolicy", "checked", {"targetRefs": of_service("only"), "healthCheck": {"type": "HTTP", "path": "/healthz", "interval": "1s"}}),
        ingress("limited", {"/": "only"}),
        named("RateLimitPolicy", "limited", {"targetRefs": of_ingress("limited"), "limits": [{"name": "all", "requests": 1, "per": "1m"}], "shared": {"redis": {"address": f"127.0.0.1:{redis}"}}}),
        ingress("tokens", {"/": "only"}),
        named("SecurityPolicy", "tokens", {"targetRefs": of_ingress("tokens"), "authentication": {"jwt": {"providers": [{"name": "issuer", "issuer": "https://issuer.example", "audiences": ["shop"], "keys": {"remote": {"url": f"{base}/jwks"}}}]}}}),
        ingress("external", {"/": "only"}),
        named("SecurityPolicy", "external", {"targetRefs": of_ingress("external"), "authentication": {"extAuth": {"url": f"{base}/check"}}}),
        ingress("login", {"/": "only"}),
        secret("login", {"client-secret": "secret-of-the-gateway", "cookie-secret": base64.b64encode(bytes(32)).decode()}),
        named("SecurityPolicy", "login", {"targetRefs": of_ingress("login"), "authentication": {"oidc": {"issuer": f"http://127.0.0.1:{closed}", "clientId": "shop", "clientSecretRef": {"name": "login"}, "cookieSecretRef": {"name": "login"}}}}),
        ingress("broken", {"/": "only"}),
        named("SecurityPolicy", "broken", {"targetRefs": of_ingress("broken"), "authentication": {"introspection": {"url": f"{base}/introspect", "clientId": "gateway", "clientSecretRef": {"name": "nowhere"}}}}),
        secret("mobile", {"key": KEY}),
        named("Consumer", "mobile", {"username": "mobile", "apiKeys": [{"secretRef": {"name": "mobile"}}]}),
        named("Api", "orders", {"document": {"inline": DOCUMENT}, "validation": {"request": "Enforce", "response": "Report"}, "environments": [
              {"name": "production", "hosts": ["orders.example"], "backend": {"service": "only", "port": "http"}}, {"name": "mock", "hosts": ["mock.example"]}]}),
        named("SecurityPolicy", "orders", {"targetRefs": [{"group": "sluicegate.dev", "kind": "Api", "name": "orders"}], "authentication": {"apiKey": {}}}),
        named("Gateway", "edge", {"gatewayClassName": "sluicegate", "listeners": [{"name": "tcp", "protocol": "TCP", "port": tcp}]}, "gateway.networking.k8s.io/v1"),
        named("TCPRoute", "tcp", {"parentRefs": [{"name": "edge", "sectionName": "tcp"}], "rules": [{"backendRefs": [{"name": "tcp", "port": 80, "weight": 1}, {"name": "closed", "port": 80, "weight": 1}]}]}, "gateway.networking.k8s.io/v1alpha2"),
    ]


def certificate(folder: Path, name: str, options: list[str], ca: str | None = None) -> None:
    signed = ["-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-addext", "basicConstraints=critical,CA:FALSE"] if ca else []
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "90", "-keyout", f"{name}.key", "-out", f"{name}.crt", *options, *signed], check=True, capture_output=True, cwd=folder)


class Site:
    """The programs. `stop` ends those that run, also after a failed start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs: list[Program] = []
        self.stopping = threading.Event()
        self.endpoints = [Endpoints(("127.0.0.1", 0), Endpoint)]
        self.endpoint = self.endpoints[0].server_address[1]
        self.endpoints.append(Endpoints(("127.0.0.3", self.endpoint), Endpoint))
        self.http, self.https, self.admin, self.tcp, self.redis, self.link, self.control_admin, self.data, self.data_admin, self.prometheus, closed = free_ports(11)
        try:
            for each in self.endpoints:
                threading.Thread(target=each.serve_forever, daemon=True).start()
            self.run(["redis-server", "--port", str(self.redis), "--save", "", "--dir", str(folder)], "redis.log", lambda: accepts(self.redis))
            self.gateway(closed)
            self.planes()
            self.sender = threading.Thread(target=self.traffic, daemon=True)
            self.sender.start()
        except BaseException:
            self.stop()
            raise

    def run(self, command: list[str], log: str, is_ready: Any) -> Program:
        program = Program(command, self.folder / log, is_ready)
        self.programs.append(program)
        return program

    def gateway(self, closed: int) -> None:
        objects = manifests(self.folder, endpoint=self.endpoint, redis=self.redis, tcp=self.tcp, closed=closed)
        (self.folder / "manifests").mkdir()
        (self.folder / "manifests/shop.yaml").write_text("\n---\n".join(json.dumps(each) for each in objects))
        self.run([str(PROGRAM), "serve", "--manifests", str(self.folder / "manifests"), "--listen", f"127.0.0.1:{self.http}", "--listen-https", f"127.0.0.1:{self.https}", "--gateway-address", "127.0.0.1", "--admin", f"127.0.0.1:{self.admin}",
                  "--workers", "2", "--no-takeover", "--compression", "gzip", "--endpoint-wait", "0s", "--access-log", str(self.folder / "access.log"), "--analytics", "--audit", "--analytics-database", f"sqlite:{self.folder / 'analytics.db'}",
                  "--acme-terms-agreed", "--acme-state-dir", str(self.folder / "acme"), *SHUTDOWN],
                 "gateway.log", lambda: self.is_ready(self.admin))

    def planes(self) -> None:
        """Starts a control plane with a data plane."""
        certificate(self.folder, "ca", ["-subj", "/CN=planes"])
        for plane, name, more in [("control", "sluicegate-control-plane", []), ("data", "data-plane-1", ["-addext", "extendedKeyUsage=clientAuth"])]:
            (self.folder / plane).mkdir()
            certificate(self.folder, f"{plane}/tls", ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", *more], ca="ca")
            shutil.copy(self.folder / "ca.crt", self.folder / plane / "ca.crt")
        self.run([str(PROGRAM), "control-plane", "--manifests", str(PROJECT / "examples/quickstart"), "--tls-dir", str(self.folder / "control"), "--listen", f"127.0.0.1:{self.link}", "--admin", f"127.0.0.1:{self.control_admin}"],
                 "control-plane.log", lambda: accepts(self.link))
        self.run([str(PROGRAM), "data-plane", "--control-plane", f"127.0.0.1:{self.link}", "--tls-dir", str(self.folder / "data"), "--listen", f"127.0.0.1:{self.data}", "--admin", f"127.0.0.1:{self.data_admin}", "--workers", "1", "--no-takeover", *SHUTDOWN],
                 "data-plane.log", lambda: self.is_ready(self.data_admin))

    def start_prometheus(self, rules: Path) -> None:
        """Starts Prometheus, which scrapes all programs every second and evaluates the rules every second."""
        targets = {"sluicegate-1": self.admin, "sluicegate-control-plane-1": self.control_admin, "sluicegate-data-plane-1": self.data_admin}
        settings = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}, "rule_files": [str(rules)],
            # As the ServiceMonitor of the chart: the labels of the pod, and `honorLabels`.
            "scrape_configs": [{"job_name": "sluicegate-metrics", "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {"pod": pod, "namespace": "sluicegate", "container": "sluicegate", "service": "sluicegate-metrics"}} for pod, port in targets.items()]}],
        }
        (self.folder / "prometheus.yaml").write_text(json.dumps(settings))
        self.run(["prometheus", f"--config.file={self.folder / 'prometheus.yaml'}", f"--storage.tsdb.path={self.folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{self.prometheus}"], "prometheus.log", lambda: self.is_ready(self.prometheus, "/-/ready"))

    def is_ready(self, port: int, path: str = "/readyz") -> bool:
        try:
            return self.get(port, path)[0] == 200
        except OSError:
            return False

    def get(self, port: int, path: str, *, method: str = "GET", body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return response.status, response.read()

    def send(self, host: str, path: str = "/", *, method: str = "GET", body: bytes | None = None, **headers: str) -> int:
        return self.get(self.http, path, method=method, body=body, headers={"Host": f"{host}.example", **{name.replace("_", "-"): value for name, value in headers.items()}})[0]

    def traffic(self) -> None:
        """Sends requests of all kinds, and changes the configuration every 5 s, until the site stops."""
        changed = 0.0
        while not self.stopping.is_set():
            with suppress(OSError, http.client.HTTPException):
                self.round()
            if time.monotonic() - changed > 5:
                changed = time.monotonic()
                (self.folder / "manifests/more.yaml").write_text(json.dumps(ingress(f"more-{int(changed)}", {"/": "only"})))
            time.sleep(0.05)

    def round(self) -> None:
        for path in ("/", "/a", "/b", "/cached", "/cached", "/failed", "/missing", "/empty"):
            self.send("web", path, Accept_Encoding="gzip")
        for method in ("GET", "POST"):
            with suppress(http.client.HTTPException):
                self.send("web", "/reset", method=method, body=b"x" if method == "POST" else None)
        self.send("nowhere")
        for _ in range(3):
            self.send("limited")
        for host in ("tokens", "external", "broken"):
            self.send(host, Authorization=f"Bearer {TOKEN}")
        self.send("login", Accept="text/html")
        self.send("orders", "/orders")
        for customer in ("7", "seven"):
            self.send("orders", f"/orders?customer={customer}", X_API_Key=KEY)
        self.send("mock", "/orders?customer=7", X_API_Key=KEY)
        self.get(self.data, "/")
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.tcp), 2) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            connection.recv(100)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.https), 2) as connection:
            with context.wrap_socket(connection, server_hostname="secure.example") as tls:
                tls.sendall(b"GET / HTTP/1.1\r\nHost: secure.example\r\nConnection: close\r\n\r\n")
                tls.recv(100)
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.https), 2) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            connection.recv(100)
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.http), 2) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
            connection.recv(100)

    def series(self) -> dict[str, list[dict[str, str]]]:
        """Returns the labels of each series of all programs, by the name of the metric."""
        found: dict[str, list[dict[str, str]]] = {}
        for port in (self.admin, self.control_admin, self.data_admin):
            for line in self.get(port, "/metrics")[1].decode().splitlines():
                if line and not line.startswith("#"):
                    name, labels = re.match(r"(\w+)(?:{(.*)})? ", line).groups()  # type: ignore[union-attr]
                    found.setdefault(name, []).append({label: value for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")})
        return found

    def ask(self, path: str, **parameters: str) -> Any:
        """Asks Prometheus, and returns the data."""
        status, body = self.get(self.prometheus, f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        answer = json.loads(body)
        if status != 200 or answer["status"] != "success":
            raise AssertionError(f"Prometheus responds with {status} to {parameters}: {answer.get('error')}")
        return answer["data"]

    def stop(self) -> None:
        self.stopping.set()
        for program in reversed(self.programs):
            program.stop()
        for each in self.endpoints:
            each.shutdown()
            each.server_close()
