"""A client that sends the bytes of a request unchanged."""

import socket
import ssl
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from pathlib import Path

TIMEOUT = 10.0
"""The time in seconds for each step of a request."""


@dataclass(frozen=True)
class Response:
    """A response. The names of headers are in lower case. Status 0 is a connection that ended without a response."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = field(default=b"", compare=False)


def ask(port: int, line: str, headers: list[tuple[str, str]], body: bytes, is_chunked: bool, tls_name: str | None,
        certificate: Path | None = None) -> Response:
    """Sends a request to a port of 127.0.0.1 on a connection of its own. `line` is the request line.

    With `tls_name`, the request uses TLS with this server name, and with the certificate and key of the file `certificate`."""
    head = [line, *(f"{name}: {value}" if value else name for name, value in headers)]
    if body and not is_chunked:
        head.append(f"Content-Length: {len(body)}")
    data = "\r\n".join([*head, "", ""]).encode("latin-1") + body
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as plain:
        connection = plain
        if tls_name is not None:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if certificate is not None:
                context.load_cert_chain(certificate)
            try:
                connection = context.wrap_socket(plain, server_hostname=tls_name)
            except OSError:
                return Response(0)
        try:
            connection.sendall(data)
        except OSError:
            pass  # A gateway may respond before it has read the body.
        response = HTTPResponse(connection, method=line.split(" ")[0])
        try:
            response.begin()
            content = response.read()
        except (HTTPException, OSError):
            return Response(0)
        finally:
            response.close()
            connection.close()
        return Response(response.status, tuple((name.lower(), value) for name, value in response.getheaders()), content)
