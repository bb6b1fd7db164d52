"""A name server for the given names: dns.py ADDRESS NAME IPV4 [NAME IPV4]...

The server prints `ready` when it listens, and ends when its standard input ends.
"""

import socket
import sys
import threading


def answer(query: bytes, addresses: dict[str, str]) -> bytes:
    """Returns the response to a query with one question (RFC 1035, 4)."""
    end, labels = 12, []
    while length := query[end]:
        labels.append(query[end + 1 : end + 1 + length].decode("ascii", "replace"))
        end += 1 + length
    kind = int.from_bytes(query[end + 1 : end + 3], "big")
    address = addresses.get(".".join(labels).lower())
    answers = b""
    if address and kind == 1:  # A, for one second
        answers = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x01\x00\x04" + socket.inet_aton(address)
    flags = b"\x81\x80" if address else b"\x81\x83"
    counts = b"\x00\x01" + (b"\x00\x01" if answers else b"\x00\x00") + b"\x00\x00\x00\x00"
    return query[:2] + flags + counts + query[12 : end + 5] + answers


def main() -> None:
    at, *names = sys.argv[1:]
    addresses = dict(zip(names[::2], names[1::2], strict=True))
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((at, 53))

    def serve() -> None:
        while True:
            query, client = server.recvfrom(512)
            server.sendto(answer(query, addresses), client)

    threading.Thread(target=serve, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


main()
