"""HTTP/3 with aioquic, which shares no code with the gateway."""

from __future__ import annotations

import asyncio
import json
import unittest
from contextlib import suppress
from typing import Any

from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import CipherSuite
from client import LIMIT, Rejected, Response, client
from site_of_test import Program, Site, metric, site

BODY = bytes(at % 251 for at in range(2_000_000))


class Http3(unittest.IsolatedAsyncioTestCase):
    """Each test has a gateway of its own."""

    options: list[str] = []

    def setUp(self) -> None:
        self.site: Site = self.enterContext(site())
        self.gateway: Program = self.site.start(*self.options)
        self.addCleanup(lambda: self.gateway.stop())

    def connect(self, **options: Any) -> Any:
        return client(self.site.https, **options)

    def check(self, response: Response) -> dict[str, Any]:
        """Checks that the endpoint has responded. Returns what it received."""
        self.assertEqual(response.status, 200, response)
        return json.loads(response.body)


class Requests(Http3):
    async def test_request_reaches_the_endpoint(self) -> None:
        async with self.connect() as connection:
            self.assertEqual(connection.protocol, "h3")
            response = await connection.get("/a?b=c", ("x-own", "1"))
            seen = self.check(response)
        self.assertEqual((seen["method"], seen["path"]), ("GET", "/a?b=c"))
        self.assertEqual(seen["headers"]["x-own"], "1")
        self.assertEqual(seen["headers"]["x-forwarded-proto"], "https")
        self.assertNotIn("transfer-encoding", seen["headers"])
        self.assertEqual(response.headers["alt-svc"], f'h3=":{self.site.https}"; ma=86400')

    async def test_large_bodies_pass_both_ways(self) -> None:
        async with self.connect() as connection:
            for headers in ([], [("content-length", str(len(BODY)))]):
                response = await connection.post(BODY, "/echo", *headers)
                self.assertEqual(response.status, 200)
                self.assertEqual(response.body, BODY)

    async def test_many_requests_share_a_connection(self) -> None:
        async with self.connect() as connection:
            responses = await asyncio.gather(*(connection.get(f"/{number}") for number in range(100)))
        self.assertEqual([self.check(response)["path"] for response in responses], [f"/{number}" for number in range(100)])

    async def test_websocket_passes_bytes_both_ways(self) -> None:
        async with self.connect() as connection:
            await connection.get()
            self.assertTrue(connection.accepts_websockets)
            stream = connection.begin("CONNECT", "/", ("sec-websocket-version", "13"), ends=False, protocol="websocket")
            response, _ = connection.streams[stream]
            await connection.until(lambda: response.status)
            self.assertEqual(response.status, 200)
            connection.send(stream, b"hello", False)
            await connection.until(lambda: response.body == b"hello")
            connection.send(stream, b" again", True)
            self.assertEqual((await connection.finish(stream)).body, b"hello again")


class Quic(Http3):
    async def test_every_cipher_suite_is_served(self) -> None:
        for suite in (CipherSuite.AES_128_GCM_SHA256, CipherSuite.AES_256_GCM_SHA384, CipherSuite.CHACHA20_POLY1305_SHA256):
            with self.subTest(suite):
                async with self.connect(cipher_suites=[suite]) as connection:
                    self.check(await connection.get())

    async def test_client_of_another_version_changes_to_version_1(self) -> None:
        async with self.connect(original_version=0x1A2A3A4A, supported_versions=[0x1A2A3A4A, QuicProtocolVersion.VERSION_1]) as connection:
            self.check(await connection.get())

    async def test_keys_change_during_a_connection(self) -> None:
        async with self.connect() as connection:
            for _ in range(3):
                self.check(await connection.get())
                connection.request_key_update()
                self.check(await connection.get())

    async def test_connection_moves_to_another_port_during_requests(self) -> None:
        async with self.connect() as connection:
            self.check(await connection.get())
            for _ in range(5):
                upload = connection.begin("POST", "/echo", ends=False)
                connection.send(upload, BODY[:10_000], False)
                await connection.move()
                connection.send(upload, BODY[10_000:], True)
                self.assertEqual((await connection.finish(upload)).body, BODY)
        self.assertEqual(metric(self.site, "sluicegate_http3_connections_total"), 1)

    async def test_client_may_end_its_connection(self) -> None:
        async with self.connect() as connection:
            self.check(await connection.get())
        async with asyncio.timeout(LIMIT):
            while metric(self.site, "sluicegate_connections_open"):
                await asyncio.sleep(0.05)

    async def test_server_name_without_certificate_receives_the_default_certificate(self) -> None:
        async with self.connect() as connection:
            self.assertTrue(connection._quic.tls._peer_certificate)


class Resumption(Http3):
    async def test_session_is_resumed_without_early_data(self) -> None:
        tickets: list[Any] = []
        async with self.connect(tickets=tickets) as connection:
            self.check(await connection.get())
            await connection.until(lambda: tickets)
        self.assertEqual(tickets[-1].max_early_data_size, None)
        async with self.connect(tickets=tickets) as connection:
            self.check(await connection.get())
            self.assertTrue(connection._quic.tls.session_resumed)


class EarlyData(Http3):
    options = ["--http3-early-data"]

    async def early(self, tickets: list[Any], method: str) -> dict[str, Any]:
        async with self.connect(tickets=tickets, wait=False) as connection:
            stream = connection.begin(method, "/", ends=True)
            seen = self.check(await connection.finish(stream))
            self.accepted = connection._quic.tls.early_data_accepted
            return seen

    async def test_safe_request_is_served_in_the_first_packets(self) -> None:
        tickets: list[Any] = []
        async with self.connect(tickets=tickets) as connection:
            self.check(await connection.get())
            await connection.until(lambda: tickets)
        ticket = tickets[-1]
        self.assertEqual(ticket.max_early_data_size, 0xFFFFFFFF)
        self.assertEqual((await self.early(tickets, "GET"))["method"], "GET")
        self.assertTrue(self.accepted)
        self.assertGreaterEqual(metric(self.site, "sluicegate_http3_early_requests_total"), 1)
        # A ticket is accepted once: an attacker cannot replay the packets.
        await self.early([ticket], "GET")
        self.assertFalse(self.accepted)

    async def test_unsafe_request_waits_for_the_handshake(self) -> None:
        tickets: list[Any] = []
        async with self.connect(tickets=tickets) as connection:
            self.check(await connection.get())
            await connection.until(lambda: tickets)
        seen = await self.early(tickets, "POST")
        self.assertTrue(self.accepted)
        self.assertNotIn("early-data", seen["headers"])


class Retry(Http3):
    options = ["--http3-max-handshakes", "1", "--workers", "1"]

    async def test_client_proves_its_address_while_handshakes_are_in_progress(self) -> None:
        loop = asyncio.get_running_loop()
        first: asyncio.Future[bytes] = loop.create_future()

        class Trap(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: Any) -> None:
                if not first.done():
                    first.set_result(data)

        trap, _ = await loop.create_datagram_endpoint(Trap, local_addr=("127.0.0.1", 0))
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(1):
                async with client(trap.get_extra_info("sockname")[1]):
                    pass
        # The packet begins a handshake that does not end.
        silent, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=("127.0.0.1", self.site.https))
        silent.sendto(await first)
        async with asyncio.timeout(LIMIT):
            while not metric(self.site, "sluicegate_http3_handshakes_in_progress"):
                await asyncio.sleep(0.02)
        async with self.connect() as connection:
            self.check(await connection.get())
        self.assertGreaterEqual(metric(self.site, "sluicegate_http3_retries_total"), 1)
        silent.close()
        trap.close()


class Takeover(Http3):
    async def load(self, id: int) -> int:
        """Sends requests, and opens a new connection when the gateway ends a connection. Returns the number of responses."""
        served = 0
        while not self.is_over:
            async with self.connect() as connection:
                while not self.is_over and connection.termination is None:
                    path = f"/{id}/{served}"
                    if connection.http.goaway:
                        break
                    try:
                        response = await (connection.post(b"x" * 3000, path) if served % 3 == 0 else connection.get(path))
                    except Rejected:
                        # The gateway has not processed the request, and the client may send it again.
                        break
                    self.assertEqual(self.check(response)["path"], path)
                    served += 1
                    self.served += 1
        return served

    async def test_takeovers_lose_no_request(self) -> None:
        self.is_over, self.served = False, 0
        tasks = [asyncio.create_task(self.load(id)) for id in range(6)]
        try:
            for round in range(1, 4):
                async with asyncio.timeout(LIMIT):
                    while self.served < round * 200:
                        for task in tasks:
                            if task.done():
                                task.result()
                        await asyncio.sleep(0.02)
                before, self.gateway = self.gateway, await asyncio.to_thread(self.site.start)
                self.assertEqual(await asyncio.to_thread(before.process.wait, LIMIT), 0)
        finally:
            self.is_over = True
        for task in tasks:
            self.assertGreater(await task, 0)


if __name__ == "__main__":
    unittest.main()
