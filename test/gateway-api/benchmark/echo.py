"""Endpoints in this process that record when requests arrive."""

import asyncio
import socket
import threading
import time
from collections import Counter

from harness import Cluster
from harness.network import BRIDGE
from tests.process import BACKEND_PORT

END_OF_HEAD = b"\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Echo:
    """HTTP/1.1 endpoints at addresses of a cluster. The endpoints respond to requests without a body."""

    def __init__(self, cluster: Cluster, addresses: list[str]) -> None:
        self.last: dict[str, float] = {}
        """The time of the last request of each address, as `time.monotonic`."""
        self.requests: Counter[str] = Counter()
        self._listeners = []
        for address in addresses:
            cluster.namespace.sh(f"ip address add {address}/32 dev {BRIDGE}")
            with cluster.namespace.inside():
                self._listeners.append((address, socket.create_server((address, BACKEND_PORT), backlog=1024)))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Echo":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for _address, listener in self._listeners:
            listener.close()
        self._loop.close()

    def record(self, address: str, requests: int) -> None:
        self.requests[address] += requests
        self.last[address] = time.monotonic()

    def _run(self) -> None:
        for address, listener in self._listeners:
            self._loop.run_until_complete(self._loop.create_server(lambda address=address: _Connection(self, address), sock=listener))
        self._loop.run_forever()


class _Connection(asyncio.Protocol):
    """A connection to an endpoint."""

    def __init__(self, echo: Echo, address: str) -> None:
        self._echo, self._address, self._rest = echo, address, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        heads, end, self._rest = (self._rest + data).rpartition(END_OF_HEAD)
        if end:
            count = heads.count(END_OF_HEAD) + 1
            self._echo.record(self._address, count)
            self._transport.write(ANSWER * count)
