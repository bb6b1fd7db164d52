"""Sends requests to one gateway by the protocols that the load of the lab does not have, until SIGTERM, and writes all counts as JSON. Each thread is a
client with one protocol. Runs inside the network of the soak."""

from __future__ import annotations

import argparse
import gzip
import http.client
import itertools
import json
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pod import cached, frame, masked, text

TIMEOUT = 15.0
"""The timeout of each read, in seconds. A request that takes longer failed."""
RECORDED = 100
"""The number of failures of a protocol that are stored with their text."""

HTTP, HTTPS, TCP, UDP = 8080, 8443, 7000, 7001
"""The ports of each gateway."""

ended = threading.Event()


@dataclass
class Counts:
    """The requests of a protocol."""

    requests: int = 0
    failures: int = 0
    recorded: list[tuple[float, str]] = field(default_factory=list)
    """The first failures: the time, as `time.time`, and the reason."""
    notes: dict[str, int] = field(default_factory=dict)

    def fail(self, reason: str) -> None:
        self.failures += 1
        if len(self.recorded) < RECORDED:
            self.recorded.append((time.time(), reason))

    def note(self, what: str) -> None:
        self.notes[what] = self.notes.get(what, 0) + 1


class Wrong(Exception):
    """A response that differs from the expected response."""


class Client:
    """The clients of one gateway. Each method is a session: it returns when its requests have succeeded, and raises otherwise."""

    def __init__(self, gateway: str, authority: Path) -> None:
        self.gateway = gateway
        self.tls = ssl.create_default_context(cafile=str(authority))
        self.tls.minimum_version = ssl.TLSVersion.TLSv1_3
        self.session: ssl.SSLSession | None = None
        self.kept: dict[str, http.client.HTTPConnection] = {}
        self.udp_ports = itertools.cycle(range(20_000, 60_000))
        self.numbers = itertools.count()

    def resumed(self, counts: Counts) -> None:
        """A new connection over TLS 1.3, which resumes the previous session."""
        with socket.create_connection((self.gateway, HTTPS), TIMEOUT) as plain, \
                self.tls.wrap_socket(plain, server_hostname="web.soak.test", session=self.session) as connection:
            counts.requests += 1
            counts.note("resumed" if connection.session_reused else "full handshakes")
            connection.sendall(b"GET /?s=100 HTTP/1.1\r\nHost: web.soak.test\r\nConnection: close\r\n\r\n")
            response = http.client.HTTPResponse(connection)
            response.begin()
            body = response.read()
            if (response.status, len(body)) != (200, 100):
                raise Wrong(f"{response.status} {body[:60]!r}")
            self.session = connection.session

    def cached(self, counts: Counts) -> None:
        path = f"/cached/{next(self.numbers) % 4}"
        response, body = self._get("cached", path, counts, {})
        if body != cached(path):
            raise Wrong(f"the body of {path} begins with {body[:60]!r}")
        counts.note("from the cache" if "hit" in response.headers.get("Cache-Status", "") else "from endpoints")

    def compressed(self, counts: Counts) -> None:
        response, body = self._get("compressed", "/text", counts, {"Accept-Encoding": "gzip"})
        coding = response.headers.get("Content-Encoding", "identity")
        counts.note(coding)
        if (gzip.decompress(body) if coding == "gzip" else body) != text():
            raise Wrong(f"the body ({coding}) begins with {body[:60]!r}")

    def _get(self, name: str, path: str, counts: Counts, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
        counts.requests += 1
        connection = self.kept.setdefault(name, http.client.HTTPConnection(self.gateway, HTTP, timeout=TIMEOUT))
        try:
            connection.request("GET", path, headers={"Host": "tools.soak.test", **headers})
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise
        if response.status != 200:
            raise Wrong(f"{response.status} {body[:60]!r}")
        return response, body

    def websocket(self, counts: Counts) -> None:
        """A WebSocket with a dozen messages."""
        with self._websocket(counts) as connection:
            for number in range(12):
                counts.requests += 1
                self._echo_frame(connection, 1, f"message {number}".encode())
                if ended.wait(0.5):
                    break
            self._echo_frame(connection, 8, b"\x03\xe8")

    def held(self, counts: Counts) -> None:
        """The planted leak: a WebSocket that nothing closes."""
        counts.requests += 1
        HELD.append(self._websocket(counts))

    def _websocket(self, counts: Counts) -> socket.socket:
        counts.requests += 1
        connection = socket.create_connection((self.gateway, HTTP), TIMEOUT)
        connection.sendall(b"GET /ws HTTP/1.1\r\nHost: tools.soak.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                           b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += receive(connection, 1)
        if not head.startswith(b"HTTP/1.1 101 "):
            raise Wrong(repr(head[:60]))
        return connection

    def _echo_frame(self, connection: socket.socket, opcode: int, data: bytes) -> None:
        mask = os.urandom(4)
        connection.sendall(frame(opcode, data, mask))
        expected = frame(opcode, data)
        back = receive(connection, len(expected))
        if back != expected:
            raise Wrong(f"{back!r} for {masked(expected, mask)!r}")

    def tcp(self, counts: Counts) -> None:
        """A TCP connection with a dozen echoes."""
        with socket.create_connection((self.gateway, TCP), TIMEOUT) as connection:
            for number in range(12):
                counts.requests += 1
                data = f"{number} of a connection ".encode() * 40
                connection.sendall(data)
                if receive(connection, len(data)) != data:
                    raise Wrong("another echo")
                if ended.wait(0.5):
                    break
            connection.shutdown(socket.SHUT_WR)
            if connection.recv(1):
                raise Wrong("surplus bytes")

    def udp(self, counts: Counts) -> None:
        """Five datagrams of a new client. A port is used again hours later, so that its flow at the gateway has ended."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(TIMEOUT)
            # Each gateway has clients of its own address, so that their ports do not collide.
            client.bind((self.gateway.replace("127.0.", "127.1.", 1), next(self.udp_ports)))
            client.connect((self.gateway, UDP))
            for number in range(5):
                counts.requests += 1
                data = f"datagram {number}".encode()
                client.send(data)
                if client.recv(1000) != data:
                    raise Wrong("another datagram")
                ended.wait(0.1)


HELD: list[socket.socket] = []


def receive(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise Wrong(f"the connection ended after {data[:60]!r}")
        data += more
    return data


def repeat(session: Callable[[Counts], None], counts: Counts, pause: float) -> None:
    """Repeats a session until the end."""
    while not ended.wait(pause):
        try:
            session(counts)
        except Exception as error:  # Any error fails the request, and must not end the client.
            counts.fail(f"{type(error).__name__}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateway", required=True, help="the address of the gateway")
    parser.add_argument("--authority", type=Path, required=True, help="the CA certificate of the gateway")
    parser.add_argument("--output", type=Path, required=True, help="the file for the counts")
    parser.add_argument("--rate", type=float, default=1.0, help="a factor for all rates (1)")
    parser.add_argument("--leak", action="store_true", help="also open WebSockets that nothing closes, four a second")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    client = Client(options.gateway, options.authority)
    sessions: dict[str, tuple[Callable[[Counts], None], float]] = {
        "TLS 1.3, resumed": (client.resumed, 1.0), "cached responses": (client.cached, 0.5), "compressed responses": (client.compressed, 0.7),
        "WebSocket": (client.websocket, 0.3), "TCP": (client.tcp, 0.3), "UDP": (client.udp, 0.5),
    }
    if options.leak:
        sessions["leak"] = (client.held, 0.25)
    counts = {name: Counts() for name in sessions}
    threads = [threading.Thread(target=repeat, args=(session, counts[name], pause / options.rate)) for name, (session, pause) in sessions.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for connection in client.kept.values():
        connection.close()
    options.output.write_text(json.dumps({name: asdict(each) for name, each in counts.items()}))


if __name__ == "__main__":
    main()
