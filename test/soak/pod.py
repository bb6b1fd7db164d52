"""A pod with the protocols that the backend of the lab does not have: cacheable and compressible responses over HTTP, WebSocket, and echo over TCP
and UDP.

On SIGTERM the pod accepts no more connections, serves its open connections to their end, and exits. The process of a pod of `soak_site.py`."""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import signal
from typing import Any

HTTP, TCP, UDP = 9000, 9001, 9002
"""The ports."""

DRAIN = 30.0
"""The time in seconds in which open connections must end."""
UDP_DRAIN = 6.0
"""The time in seconds for which the pod serves datagrams after SIGTERM."""

WEBSOCKET = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""The constant of RFC 6455, 1.3."""


def cached(path: str) -> bytes:
    """Returns the cacheable body of a path."""
    return f"the cached text of {path}\n".encode() * 40


def text() -> bytes:
    """Returns the compressible body."""
    return b"".join(f"line {number} of a text that compresses well\n".encode() for number in range(400))


def frame(opcode: int, data: bytes, mask: bytes = b"") -> bytes:
    """Returns a final frame of WebSocket (RFC 6455, 5.2) with at most 125 bytes of data."""
    if not mask:
        return bytes([0x80 | opcode, len(data)]) + data
    return bytes([0x80 | opcode, 0x80 | len(data)]) + mask + masked(data, mask)


def masked(data: bytes, mask: bytes) -> bytes:
    return bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


class Pod:
    def __init__(self, address: str, wrong: int) -> None:
        self.address, self.wrong = address, wrong
        self.draining = asyncio.Event()
        self.connections: set[asyncio.Task[Any]] = set()
        self.responses = 0

    async def run(self) -> None:
        servers = [await asyncio.start_server(self._tracked(serve), self.address, port, backlog=512)
                   for port, serve in ((HTTP, self._http), (TCP, self._tcp))]
        loop = asyncio.get_running_loop()
        datagrams, _ = await loop.create_datagram_endpoint(Echo, local_addr=(self.address, UDP))
        loop.add_signal_handler(signal.SIGTERM, self.draining.set)
        print("serves at", self.address, flush=True)
        await self.draining.wait()
        for server in servers:
            server.close()
        # Connections that the kernel had accepted become tasks first.
        await asyncio.sleep(0.1)
        await asyncio.gather(asyncio.sleep(UDP_DRAIN), asyncio.wait(self.connections, timeout=DRAIN) if self.connections else asyncio.sleep(0))
        datagrams.close()

    def _tracked(self, serve: Any) -> Any:
        async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task
            self.connections.add(task)
            try:
                await serve(reader, writer)
            except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                pass
            finally:
                self.connections.discard(task)
                writer.close()
        return connection

    async def _tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async def _http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await self._head(reader):
            line, *fields = head.decode("latin-1").split("\r\n")
            path = line.split(" ")[1]
            headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
            if "websocket" in headers.get("upgrade", "").lower():
                accept = base64.b64encode(hashlib.sha1(headers["sec-websocket-key"].encode() + WEBSOCKET).digest()).decode()
                writer.write(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode())
                return await self._websocket(reader, writer)
            await reader.readexactly(int(headers.get("content-length", 0)))
            self.responses += 1
            wrong = self.wrong and self.responses % self.wrong == 0 and path != "/healthz"
            body = cached(path) if path.startswith("/cached/") else text()
            fresh = "Cache-Control: max-age=5\r\n" if path.startswith("/cached/") and not wrong else ""
            last = "Connection: close\r\n" if self.draining.is_set() else ""
            status = "500 Internal Server Error" if wrong else "200 OK"
            writer.write(f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n{fresh}{last}\r\n".encode() + body)
            await writer.drain()
            if last:
                return

    async def _head(self, reader: asyncio.StreamReader) -> bytes:
        """Returns the next head, or nothing at the end of the connection. A draining pod closes a connection that is idle for 100 ms."""
        head = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
        draining = asyncio.ensure_future(self.draining.wait())
        await asyncio.wait([head, draining], return_when=asyncio.FIRST_COMPLETED)
        if not head.done():
            await asyncio.wait([head], timeout=0.1)
        draining.cancel()
        if not head.done():
            head.cancel()
            return b""
        try:
            return head.result().removesuffix(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""

    async def _websocket(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            first, length = await reader.readexactly(2)
            mask = await reader.readexactly(4)
            data = masked(await reader.readexactly(length & 0x7f), mask)
            writer.write(frame(first & 0xf, data))
            await writer.drain()
            if first & 0xf == 8:
                return


class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.transport.sendto(data, addr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True, help="the address of the pod")
    parser.add_argument("--wrong", type=int, default=0, metavar="N", help="respond to each Nth request with 500 (0: never)")
    options = parser.parse_args()
    asyncio.run(Pod(options.address, options.wrong).run())


if __name__ == "__main__":
    main()
