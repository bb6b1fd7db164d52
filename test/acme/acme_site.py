"""A gateway that orders its certificates from Pebble, and the endpoint behind the gateway."""

import base64
import json
import os
import ssl
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import create_connection
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(PROJECT / "test/ingress-nginx"))

from process import Program, accepts, free_ports  # noqa: E402

PROGRAM = Path(os.environ.get("SLUICEGATE") or PROJECT / "target/debug/sluicegate").resolve()
"""The program: the file of the environment variable SLUICEGATE, or the debug build."""

TOOLS = Path(os.environ.get("TOOLS") or PROJECT / "target/tools").resolve()
"""The programs of `scripts/setup acme`."""


def wait(condition: Callable[[], Any], seconds: float, what: Callable[[], str]) -> Any:
    """Waits until a condition holds, and returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(what())
        time.sleep(0.05)


def signed(folder: Path, name: str, *options: str, by: str | None = None) -> tuple[Path, Path]:
    """Makes a certificate and its key. `by` is the name of the CA certificate."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name.split('/')[0]}"]
    authority = ["-CA", str(folder / f"{by}.crt"), "-CAkey", str(folder / f"{by}.key"), "-addext", "basicConstraints=critical,CA:FALSE"] if by else []
    subprocess.run([*command, *options, *authority, "-out", str(certificate), "-keyout", str(key)], check=True, capture_output=True)
    return certificate, key


def self_signed(folder: Path, name: str, *names: str) -> tuple[Path, Path]:
    """Makes a certificate for names that is no CA certificate, and its key."""
    return signed(folder, name, "-addext", f"subjectAltName={','.join(names)}", "-addext", "basicConstraints=critical,CA:FALSE")


class Endpoint(BaseHTTPRequestHandler):
    """Responds with the path."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        body = self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


class Pebble:
    """Pebble, which validates hosts at the ports of a gateway. All names resolve to 127.0.0.1."""

    def __init__(self, folder: Path, http: int, https: int, seconds: int, blocked: list[str] | None = None, **environment: str) -> None:
        self.folder = folder
        self.certificate, key = self_signed(folder, "pebble", "DNS:localhost", "IP:127.0.0.1")
        self.port, self.management, dns = free_ports(3)
        self.resolver = Program(
            [str(TOOLS / "pebble-challtestsrv"), "-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-dnsserver", f"127.0.0.1:{dns}", "-management", "", "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""],
            folder / "resolver.log", lambda: accepts(dns))
        config = {
            "listenAddress": f"127.0.0.1:{self.port}", "managementListenAddress": f"127.0.0.1:{self.management}", "certificate": str(self.certificate), "privateKey": str(key),
            "httpPort": http, "tlsPort": https, "ocspResponderURL": "", "externalAccountBindingRequired": False, "domainBlocklist": blocked or [],
            "retryAfter": {"authz": 1, "order": 1}, "keyAlgorithm": "ecdsa", "profiles": {"default": {"description": "short", "validityPeriod": seconds}},
        }
        (folder / "pebble.json").write_text(json.dumps({"pebble": config}))
        self.command = ["env", "PEBBLE_VA_NOSLEEP=1", "PEBBLE_AUTHZREUSE=0", *(f"{name}={value}" for name, value in environment.items()),
                        str(TOOLS / "pebble"), "-config", str(folder / "pebble.json"), "-dnsserver", f"127.0.0.1:{dns}"]
        self.start()

    def start(self) -> None:
        self.program = Program(self.command, self.folder / "pebble.log", lambda: accepts(self.port) and accepts(self.management))

    @property
    def directory(self) -> str:
        return f"https://127.0.0.1:{self.port}/dir"

    def authorities(self) -> str:
        """The root certificate of the running Pebble, in PEM."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        with urllib.request.urlopen(f"https://127.0.0.1:{self.management}/roots/0", context=context, timeout=10) as response:
            return response.read().decode()

    def stop(self) -> None:
        self.program.stop()
        self.resolver.stop()


class Site:
    """A gateway, and its endpoint."""

    def __init__(self, folder: Path, hosts: list[str]) -> None:
        self.folder, self.hosts = folder, hosts
        self.manifests, self.state = folder / "manifests", folder / "state"
        self.manifests.mkdir()
        self.http, self.https, self.admin = free_ports(3)
        self.control = self.admin
        self.data: Program | None = None
        self.endpoints = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
        self.endpoints.daemon_threads = True
        threading.Thread(target=self.endpoints.serve_forever, daemon=True).start()
        self.write("site", [*self.backend(), *(self.ingress(host) for host in hosts)])

    def start(self, directory: str, authorities: Path, *options: str) -> None:
        """Starts a process with both planes."""
        self.program = Program([str(PROGRAM), "serve", *self.serving(), *self.ordering(directory, authorities), *options], self.folder / "gateway.log", self.is_ready)

    def start_planes(self, directory: str, authorities: Path, *options: str) -> None:
        """Starts a control plane and a data plane."""
        (link,) = free_ports(1)
        signed(self.folder, "ca")
        for plane, *extensions in (("control", "subjectAltName=DNS:sluicegate-control-plane"), ("data", "subjectAltName=DNS:data-plane", "extendedKeyUsage=clientAuth")):
            (self.folder / plane).mkdir()
            signed(self.folder, f"{plane}/tls", *(word for extension in extensions for word in ("-addext", extension)), by="ca")
            shutil.copy(self.folder / "ca.crt", self.folder / plane / "ca.crt")
        self.data = Program(
            [str(PROGRAM), "data-plane", "--control-plane", f"127.0.0.1:{link}", "--tls-dir", str(self.folder / "data"), *self.serving()], self.folder / "data-plane.log", lambda: accepts(self.admin))
        (self.control,) = free_ports(1)
        self.program = Program(
            [str(PROGRAM), "control-plane", "--tls-dir", str(self.folder / "control"), "--listen", f"127.0.0.1:{link}", "--admin", f"127.0.0.1:{self.control}", *self.ordering(directory, authorities), *options],
            self.folder / "gateway.log", self.is_ready)

    def serving(self) -> list[str]:
        """The options of a process that serves requests."""
        return ["--listen", f"127.0.0.1:{self.http}", "--listen-https", f"127.0.0.1:{self.https}", "--admin", f"127.0.0.1:{self.admin}", "--workers", "2", "--no-takeover", "--shutdown-grace", "0s",
                "--shutdown-idle", "0s", "--shutdown-timeout", "1s"]

    def ordering(self, directory: str, authorities: Path) -> list[str]:
        """The options of a process that orders certificates."""
        return ["--manifests", str(self.manifests), "--acme-terms-agreed", "--acme-directory", directory, "--acme-ca", str(authorities), "--acme-state-dir", str(self.state), "--acme-retry", "1s"]

    def write(self, name: str, objects: list[dict[str, Any]]) -> None:
        new = self.folder / f"{name}.new"
        new.write_text("\n---\n".join(json.dumps(each) for each in objects))
        new.rename(self.manifests / f"{name}.yaml")

    @staticmethod
    def named(kind: str, version: str, name: str, **fields: Any) -> dict[str, Any]:
        return {"apiVersion": version, "kind": kind, "metadata": {"namespace": "shop", "name": name}, **fields}

    def backend(self) -> list[dict[str, Any]]:
        port = self.endpoints.server_address[1]
        slice = self.named("EndpointSlice", "discovery.k8s.io/v1", "echo-1", addressType="IPv4", ports=[{"name": "http", "port": port}], endpoints=[{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}])
        slice["metadata"]["labels"] = {"kubernetes.io/service-name": "echo"}
        return [self.named("Service", "v1", "echo", spec={"ports": [{"name": "http", "port": 80, "targetPort": port}]}), slice]

    def ingress(self, host: str, secret: str | None = None) -> dict[str, Any]:
        rule = {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "echo", "port": {"number": 80}}}}]}}
        name = host.replace("*", "any")
        made = self.named("Ingress", "networking.k8s.io/v1", name, spec={"ingressClassName": "sluicegate", "rules": [rule], "tls": [{"hosts": [host], "secretName": secret or name}]})
        made["metadata"]["annotations"] = {"sluicegate.dev/acme": "true"}
        return made

    def secret(self, name: str, certificate: Path, key: Path) -> dict[str, Any]:
        data = {part: base64.b64encode(file.read_bytes()).decode() for part, file in (("tls.crt", certificate), ("tls.key", key))}
        return self.named("Secret", "v1", name, type="kubernetes.io/tls", data=data)

    def is_ready(self) -> bool:
        try:
            return self.get(self.admin, "/readyz")[0] == 200
        except (OSError, HTTPException):
            return False

    def get(self, port: int, path: str, **headers: str) -> tuple[int, str]:
        with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def certificate(self, host: str) -> bytes:
        """The certificate of a host, in DER."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with create_connection(("127.0.0.1", self.https), 10) as tcp, context.wrap_socket(tcp, server_hostname=host) as tls:
            return tls.getpeercert(binary_form=True) or b""

    def metric(self, name: str) -> int:
        lines = self.get(self.control, "/metrics")[1].splitlines()
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith(name) and line[len(name)] in " {")

    def problems(self) -> str:
        return (self.folder / "gateway.log").read_text(errors="replace")

    def stop(self) -> None:
        with suppress(AttributeError):
            self.program.stop()
        if self.data:
            self.data.stop()
        self.endpoints.shutdown()
        self.endpoints.server_close()


class Load:
    """Clients of all hosts of a site: some over plain HTTP to a host without redirects, some over TLS. Counts failures."""

    def __init__(self, site: Site, trusted: ssl.SSLContext | None, clients: int) -> None:
        self.site, self.trusted = site, trusted
        self.requests, self.failures, self.ended = 0, [], threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(number,), daemon=True) for number in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, number: int) -> None:
        turn = number
        while not self.ended.is_set():
            host = self.site.hosts[turn % len(self.site.hosts)]
            turn += len(self.threads)
            try:
                self.requests_at(host)
            except (OSError, HTTPException, AssertionError) as error:
                with self.lock:
                    self.failures.append(f"{host}: {error!r}")

    def requests_at(self, host: str) -> None:
        """A connection with a few requests."""
        context = self.trusted
        if context is None:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with create_connection(("127.0.0.1", self.site.https), 10) as tcp, context.wrap_socket(tcp, server_hostname=host) as tls:
            for number in range(3):
                tls.sendall(f"GET /{number} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                received = b""
                while not received.endswith(f"\r\n\r\n/{number}".encode()):
                    part = tls.recv(4096)
                    assert part, f"the connection ended after {received!r}"
                    received += part
                assert received.startswith(b"HTTP/1.1 200 "), received[:100]
                with self.lock:
                    self.requests += 1

    def stop(self) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join(30)
