"""A client of HTTP/3 by aioquic."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, ErrorCode, FrameType, H3Connection, Setting
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, ProtocolNegotiated, QuicEvent, StreamReset

LIMIT = 20.0
"""The timeout of every wait in seconds."""

Headers = list[tuple[bytes, bytes]]


class Rejected(Exception):
    """The gateway has not processed the request."""


class Closed(Exception):
    """The connection ended before the response."""


@dataclass
class Response:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    trailers: dict[str, str] = field(default_factory=dict)


class Http(H3Connection):
    """HTTP/3 that notes a GOAWAY, which aioquic ignores."""

    goaway = False

    def _handle_control_frame(self, frame_type: int, frame_data: bytes) -> None:
        self.goaway |= frame_type == FrameType.GOAWAY
        super()._handle_control_frame(frame_type, frame_data)


class Client(QuicConnectionProtocol):
    """A connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.http = Http(self._quic)
        self.streams: dict[int, tuple[Response, asyncio.Future[Response]]] = {}
        self.termination: ConnectionTerminated | None = None
        self.protocol: str | None = None
        self.received = asyncio.Event()

    def quic_event_received(self, event: QuicEvent) -> None:
        match event:
            case ProtocolNegotiated():
                self.protocol = event.alpn_protocol
            case ConnectionTerminated():
                self.termination = event
                self.received.set()
                for _, done in self.streams.values():
                    if not done.done():
                        done.set_exception(Closed(f"{event.error_code:#x} {event.reason_phrase}"))
            case StreamReset() if event.stream_id in self.streams:
                error = Rejected() if event.error_code == ErrorCode.H3_REQUEST_REJECTED else Closed(f"reset {event.error_code:#x}")
                _, done = self.streams[event.stream_id]
                if not done.done():
                    done.set_exception(error)
        for of_http in self.http.handle_event(event):
            self.received.set()
            if not isinstance(of_http, HeadersReceived | DataReceived) or of_http.stream_id not in self.streams:
                continue
            response, done = self.streams[of_http.stream_id]
            if isinstance(of_http, DataReceived):
                response.body += of_http.data
            else:
                values = {name.decode(): value.decode() for name, value in of_http.headers}
                if ":status" in values:
                    response.status = int(values.pop(":status"))
                    response.headers = values
                else:
                    response.trailers = values
            if of_http.stream_ended and not done.done():
                done.set_result(response)

    def begin(self, method: str, path: str, *headers: tuple[str, str], ends: bool, protocol: str | None = None) -> int:
        """Sends the head of a request. Returns its stream."""
        stream = self._quic.get_next_available_stream_id()
        self.streams[stream] = (Response(), asyncio.get_running_loop().create_future())
        pseudo = {":method": method, ":scheme": "https", ":authority": "localhost", ":path": path}
        if protocol:
            pseudo[":protocol"] = protocol
        fields = [(name.encode(), value.encode()) for name, value in (*pseudo.items(), *headers)]
        self.http.send_headers(stream, fields, end_stream=ends)
        self.transmit()
        return stream

    def send(self, stream: int, data: bytes, ends: bool) -> None:
        self.http.send_data(stream, data, end_stream=ends)
        self.transmit()

    async def finish(self, stream: int) -> Response:
        """Waits for the end of a response."""
        try:
            return await asyncio.wait_for(self.streams[stream][1], LIMIT)
        finally:
            del self.streams[stream]

    async def until(self, condition: Any) -> None:
        """Waits until a condition over what has arrived is true."""
        async with asyncio.timeout(LIMIT):
            while not condition():
                self.received.clear()
                await self.received.wait()

    async def get(self, path: str = "/", *headers: tuple[str, str]) -> Response:
        return await self.finish(self.begin("GET", path, *headers, ends=True))

    async def post(self, body: bytes, path: str = "/", *headers: tuple[str, str]) -> Response:
        stream = self.begin("POST", path, *headers, ends=False)
        self.send(stream, body, True)
        return await self.finish(stream)

    async def move(self) -> None:
        """Continues from another port, with another connection ID, as after a change of the network (RFC 9000, 9)."""
        old = self._transport
        sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(("::", 0))
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: Forward(self), sock=sock)
        self._transport = transport
        old.close()
        self.change_connection_id()

    @property
    def accepts_websockets(self) -> bool:
        settings = self.http.received_settings or {}
        return settings.get(Setting.ENABLE_CONNECT_PROTOCOL) == 1


class Forward(asyncio.DatagramProtocol):
    """Passes the datagrams of a new socket to a connection."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.client.datagram_received(data, addr)


@asynccontextmanager
async def client(port: int, host: str = "127.0.0.1", wait: bool = True, tickets: list[Any] | None = None, tokens: list[bytes] | None = None, **options: Any) -> AsyncIterator[Client]:
    """A connection to the gateway, which verifies no certificate. `tickets` are filled, and the last is used."""
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="localhost", verify_mode=ssl.CERT_NONE, **options)
    if tickets:
        configuration.session_ticket = tickets[-1]
    handler = None if tickets is None else tickets.append
    token_handler = None if tokens is None else tokens.append
    async with asyncio.timeout(LIMIT * 3):
        async with connect(host, port, configuration=configuration, create_protocol=Client, session_ticket_handler=handler, token_handler=token_handler, wait_connected=wait) as protocol:
            assert isinstance(protocol, Client)
            yield protocol
