"""Runs the cases against nginx and the gateway, and compares what clients and endpoints observe."""

import base64
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend import Backends, Received
from case import Case, Request
from cases.access import USERS
from client import Response, ask
from differences import reason
from gateway import Gateway, service
from nginx import Nginx
from process import free_ports

SERVICES = ("web", "api", "shop", "canary", "errors", "auth")

SERVICES_PART = "Services that receive the request"

VOLATILE = {"date", "connection", "content-length", "transfer-encoding", "keep-alive", "expires"}
"""Headers of responses that are not compared. The value of `expires` is a time."""


@dataclass(frozen=True)
class Difference:
    """A part of a response, or of the request at an endpoint, that differs. A different status or Service is the only part."""

    request: str
    part: str
    nginx: str
    gateway: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.part}: nginx {self.nginx!r}, gateway {self.gateway!r}"


def certificate(folder: Path, name: str, *extensions: str, authority: str | None = None) -> tuple[Path, Path]:
    """Creates a certificate, signed by the authority or by itself, and returns it with its key. `name`.both has both."""
    file, key = folder / f"{name}.pem", folder / f"{name}.key"
    signer = ["-CA", str(folder / f"{authority}.pem"), "-CAkey", str(folder / f"{authority}.key")] if authority else []
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
                    "-subj", f"/CN={name}", *(each for one in extensions for each in ("-addext", one)), *signer,
                    "-keyout", str(key), "-out", str(file)], check=True, capture_output=True)
    (folder / f"{name}.both").write_bytes(file.read_bytes() + key.read_bytes())
    return file, key


def certificates(folder: Path) -> tuple[Path, Path]:
    """Creates the certificates of clients, and the certificate of all hosts. Returns the latter with its key."""
    certificate(folder, "ca", "basicConstraints=critical,CA:TRUE")
    usage = ("basicConstraints=critical,CA:FALSE", "extendedKeyUsage=clientAuth")
    certificate(folder, "client", *usage, authority="ca")
    certificate(folder, "foreign", *usage)
    return certificate(folder, "server", "subjectAltName=DNS:*.test,DNS:www.full.test")


def objects(cases: list[Case], ports: dict[str, int], folder: Path) -> list[dict[str, Any]]:
    """Returns the objects of all cases, and of their Services."""
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "certificate", "namespace": "default"},
              "data": {f"tls.{kind}": base64.b64encode((folder / f"server.{suffix}").read_bytes()).decode() for kind,
              suffix in (("crt", "pem"), ("key", "key"))}}
    authority = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": "default"},
                 "stringData": {"ca.crt": (folder / "ca.pem").read_text()}}
    empty = service("empty", 1)
    empty[1]["endpoints"] = []
    found = [secret, authority, *empty]
    for name, port in ports.items():
        found += service(name, port)
    for case in cases:
        for each in case.objects:
            if each["kind"] == "Ingress":
                for key_, value in each["metadata"]["annotations"].items():
                    for name, port in ports.items():
                        value = value.replace(f"@{name}@", str(port))
                    each["metadata"]["annotations"][key_] = value
            if each not in found:
                found.append(each)
    return found


def attributes(cookie: str) -> str:
    """Returns a cookie without its value, with its attributes sorted. Times are not compared."""
    name, *parts = (part.strip() for part in cookie.split(";"))
    known = sorted(re.sub(r"^(expires)=.*", r"\1=...",
        part.lower() if "=" not in part else part.split("=")[0].lower() + "=" + part.split("=", 1)[1]) for part in parts)
    return "; ".join([name.split("=")[0] + "=...", *known])


def shown(response: Response, received: list[Received], request: Request, own_ports: tuple[int, int]) -> dict[str, str]:
    """Returns the parts that are compared, as texts."""

    def text(value: str) -> str:
        for port, name in zip(own_ports, ("HTTP", "HTTPS")):
            value = re.sub(rf"(?<!\d){port}(?!\d)", name, value)
        return value if len(value) < 200 else f"{value[:80]}... ({len(value)})"

    parts: dict[str, str] = {"status": str(response.status)}
    of_endpoint = any(name == "x-service" for name, _ in response.headers)
    for name, value in response.headers:
        # The bodies of errors differ, and so do their types.
        if name in VOLATILE or (name == "content-type" and not of_endpoint and response.status >= 300):
            continue
        # The ID of a request changes from response to response. A header of the endpoint is compared as it is.
        part = "header x-request-id of an own response" if name == "x-request-id" and not of_endpoint else f"header {name}"
        value = attributes(value) if name == "set-cookie" else text(value)
        parts[part] = f"{parts[part]} | {value}" if part in parts else value
    parts[SERVICES_PART] = ", ".join(each.service for each in received)
    given = {value.strip() for line in request.headers for key, _, value in [line.partition(":")] if key.lower() == "x-request-id"}
    for each in received:
        parts[f"{each.service} receives request"] = text(f"{each.method} {each.target} and {each.body} bytes")
        for name, value in each.headers:
            if name == "x-request-id" and value not in given:
                value = "(generated)"
            if name == "connection":
                value = value.lower()
            part = f"{each.service} receives header {name}"
            parts[part] = f"{parts[part]} | {text(value)}" if part in parts else text(value)
    return parts


class Corpus:
    """nginx and the gateway with all cases."""

    def __init__(self, folder: Path, cases: list[Case], settings: dict[str, str] | None = None) -> None:
        self.cases = cases
        file, key = certificates(folder)
        self.folder = folder
        self.backends = Backends(SERVICES)
        self.backends.__enter__()
        # No server listens on this port.
        [dead] = free_ports(1)
        ports = {**self.backends.ports, "dead": dead}
        parts = {name: folder / name for name in ("nginx", "gateway")}
        for part in parts.values():
            part.mkdir()
        # The workers of nginx have no rights.
        folder.chmod(0o755)
        parts["nginx"].chmod(0o755)
        (parts["nginx"] / "users").write_text(USERS)
        (parts["nginx"] / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
        try:
            self.nginx = Nginx(parts["nginx"], "\n".join(case.http for case in cases), "\n".join(case.servers for case in cases), ports, file, key)
            try:
                self.gateway = Gateway(parts["gateway"], objects(cases, ports, folder), settings or {})
            except BaseException:
                self.nginx.stop()
                raise
        except BaseException:
            self.backends.__exit__()
            raise

    def stop(self) -> None:
        self.gateway.stop()
        self.nginx.stop()
        self.backends.__exit__()

    def differences(self, case: Case, request: Request) -> Iterator[Difference]:
        """Sends a request to both, and returns what differs."""
        host = request.host or case.host
        nginx, gateway = (self.observe(controller, request, host) for controller in (self.nginx, self.gateway))
        label = str(request).replace("://", f"://{host}", 1) if not request.host else str(request)
        decisive = [part for part in ("status", SERVICES_PART) if nginx.get(part) != gateway.get(part)]
        for part in decisive or sorted(nginx.keys() | gateway.keys()):
            old, new = nginx.get(part, "(none)"), gateway.get(part, "(none)")
            if old != new:
                yield Difference(label, part, old, new, reason(case.name, label, part))

    def observe(self, controller: Nginx | Gateway, request: Request, host: str) -> dict[str, str]:
        """Sends a request, and returns the parts of the response and of the requests at endpoints."""
        lines = [tuple(each.split(": ", 1)) if ": " in each else (each, "") for line in request.headers for each in line.split("\r\n")]
        sent: list[Any] = lines if any(name.lower() == "host" for name, _ in lines) and "other.test" not in str(lines) else [("Host", host), *lines]
        body = b"b" * request.body if request.body > 0 else b""
        if request.body < 0:
            body = chunked(-request.body)
        port = controller.https if request.tls else controller.http
        statuses = []
        for _ in range(request.times):
            self.backends.take()
            response = ask(port, f"{request.method} {request.target} {request.version}", sent, body, request.body < 0,
                host.split(":")[0] if request.tls else None,
                           self.folder / f"{request.certificate}.both" if request.certificate else None)
            statuses.append(str(response.status))
            parts = shown(response, self.backends.take(), request, (controller.http, controller.https))
        return parts if request.times == 1 else {"statuses": " ".join(statuses)}


def chunked(length: int) -> bytes:
    """Returns a body in one chunk."""
    return b"%x\r\n%s\r\n0\r\n\r\n" % (length, b"c" * length)
