"""Endpoints of Services: each answers with its name and with the request that it received, and records the request."""

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    """A request as an endpoint received it. The names of headers are in lower case."""

    service: str
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: int


class Handler(BaseHTTPRequestHandler):
    """Answers any method. The headers `X-SERVICE-Status: 404`, `X-SERVICE-Header: Name: value` and `X-SERVICE-Delay: 0.5` of the request ask
    for another response."""

    protocol_version = "HTTP/1.1"
    server: "Backend"

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def answer(self) -> None:
        service = self.server.service
        # The base class changes paths that begin with two slashes.
        method, target, _ = self.requestline.split(" ", 2)
        body = self.body()
        headers = tuple((name.lower(), value) for name, value in self.headers.items())
        self.server.record(Received(service, method, target, headers, len(body)))
        wish = f"x-{service}-"
        status = int(self.headers.get(wish + "status", "200"))
        time.sleep(float(self.headers.get(wish + "delay", "0")))
        text = json.dumps({"service": service, "method": method, "target": target}).encode()
        self.send_response_only(status)
        self.send_header("X-Service", service)
        for wanted in self.headers.get_all(wish + "header", []):
            name, _, value = wanted.partition(":")
            self.send_header(name, value.strip())
        if status == 204 or status == 304:
            text = b""
        else:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if method != "HEAD":
            self.wfile.write(text)

    def body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", "0")))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


class Backend(ThreadingHTTPServer):
    """The endpoint of a Service at a free port of 127.0.0.1."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, service: str, record: Callable[[Received], None]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.service, self.record = service, record
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that a gateway closes is no error."""


@dataclass
class Backends:
    """The endpoints of all Services."""

    services: Iterable[str]
    received: list[Received] = field(default_factory=list)

    def __enter__(self) -> "Backends":
        self.lock = threading.Lock()
        self.servers = [Backend(service, self.record) for service in self.services]
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def record(self, request: Received) -> None:
        with self.lock:
            self.received.append(request)

    def take(self) -> list[Received]:
        """Returns the requests since the last call."""
        with self.lock:
            taken, self.received = self.received, []
        return taken

    @property
    def ports(self) -> dict[str, int]:
        return {server.service: server.port for server in self.servers}
