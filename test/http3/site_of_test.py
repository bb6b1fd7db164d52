"""A gateway process and its endpoint."""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "test/ingress-nginx"))

from process import Program, free_ports  # noqa: E402

PROGRAM = Path(os.environ.get("SLUICEGATE") or PROJECT / "target/debug/sluicegate").resolve()
"""The program: the file of the environment variable SLUICEGATE, or the debug build."""


SHUTDOWN = ["--shutdown-grace", "0s", "--shutdown-idle", "500ms", "--shutdown-timeout", "10s"]


class Endpoint(BaseHTTPRequestHandler):
    """Returns what it received."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.received()
        if self.headers.get("Upgrade"):
            return self.echo()
        if self.path != "/echo":
            body = json.dumps({"method": self.command, "path": self.path, "headers": {name.lower(): value for name, value in self.headers.items()}, "length": len(body)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def received(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while length := int(self.rfile.readline(), 16):
            body += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def echo(self) -> None:
        """Echoes bytes after a change of the protocol."""
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", self.headers["Upgrade"])
        self.end_headers()
        while data := self.connection.recv(65536):
            self.connection.sendall(data)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


class Endpoints(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Reports nothing: the gateway closes connections at any time."""


MANIFESTS = """
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec:
  ports: [{{name: http, port: 80}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{name: http, port: {port}}}]
endpoints: [{{addresses: [127.0.0.1]}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: web}}
spec:
  ingressClassName: sluicegate
  rules:
  - http:
      paths:
      - {{path: /, pathType: Prefix, backend: {{service: {{name: web, port: {{name: http}}}}}}}}
"""


class Site:
    """A directory of manifests, and the ports of the gateway that serves it."""

    def __init__(self, folder: Path, endpoint: int) -> None:
        (folder / "all.yaml").write_text(MANIFESTS.format(port=endpoint))
        self.folder = folder
        self.starts = 0
        self.http, self.https, self.admin = free_ports(3)

    def start(self, *options: str) -> Program:
        """Starts a gateway, which takes over the sockets of the gateway before. Returns once it is ready."""
        self.starts += 1
        workers = [] if "--workers" in options else ["--workers", "2"]
        command = [str(PROGRAM), "serve", "--manifests", str(self.folder), "--listen", f"127.0.0.1:{self.http}", "--admin", f"127.0.0.1:{self.admin}", "--listen-https", f"127.0.0.1:{self.https}", *workers, "--http3", *SHUTDOWN, *options]
        return Program(command, self.folder / f"log-{self.starts}", lambda: is_ready(self.admin))


@contextmanager
def site() -> Iterator[Site]:
    server = Endpoints(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with TemporaryDirectory() as folder:
        yield Site(Path(folder), server.server_address[1])
    server.shutdown()
    server.server_close()
    thread.join()


def is_ready(admin: int) -> bool:
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", admin, timeout=1)) as connection:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
    except OSError:
        return False


def metric(site: Site, name: str) -> float:
    """The sum of a metric over its series."""
    with closing(http.client.HTTPConnection("127.0.0.1", site.admin, timeout=5)) as connection:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith((name + " ", name + "{")))
