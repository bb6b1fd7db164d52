"""Starts Sluicegate and other gateways side by side on 127.0.0.1, each with one worker and one route, for a comparison."""

import base64
import re
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = "beside.example"

MANIFESTS = """
apiVersion: v1
kind: Service
metadata: {{name: beside}}
spec: {{ports: [{{port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: beside-1, labels: {{kubernetes.io/service-name: beside}}}}
addressType: IPv4
ports: [{{port: {backend}}}]
endpoints: [{{addresses: [127.0.0.1]}}]
---
apiVersion: v1
kind: Secret
metadata: {{name: beside}}
type: kubernetes.io/tls
data: {{tls.crt: {certificate}, tls.key: {key}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: beside, annotations: {{sluicegate.dev/ssl-redirect: "false"}}}}
spec:
  tls: [{{hosts: [{host}], secretName: beside}}]
  rules:
  - host: {host}
    http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: beside, port: {{number: 80}}}}}}}}]}}
"""


@dataclass(frozen=True)
class Gateway:
    name: str
    process: "subprocess.Popen[bytes]"
    http: int
    https: int

    def cpu(self) -> float:
        """The CPU time of all its threads, in seconds."""
        return sum(map(cpu, self._processes()))

    def memory(self) -> int:
        """Its resident memory, in KiB."""
        return sum(map(memory, self._processes()))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def _processes(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [self.process.pid, *map(int, children.split())]


def cpu(pid: int) -> float:
    """The CPU time of all threads of a process, in seconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def memory(pid: int) -> int:
    """The resident memory of a process, in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return sum(int(number) for number in re.findall(r"^VmRSS:\s+(\d+)", status, re.MULTILINE))


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def certificate(folder: Path, key: Sequence[str]) -> None:
    """Writes crt.pem and key.pem for the host, with a key of these options of `openssl req`."""
    subprocess.run(["openssl", "req", "-x509", *key, "-nodes", "-days", "2", "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}",
                    "-keyout", str(folder / "key.pem"), "-out", str(folder / "crt.pem")], check=True, capture_output=True)


def sluicegate(program: Path, folder: Path, backend: int, *options: str, before: Sequence[str] = ()) -> Gateway:
    """Starts Sluicegate with one worker and the certificate of the folder. The command may have another command `before` it."""
    http, https, admin = free_ports(3)
    encoded = {part: base64.b64encode((folder / f"{part}.pem").read_bytes()).decode() for part in ("crt", "key")}
    (folder / "manifests").mkdir()
    manifests = MANIFESTS.format(backend=backend, host=HOST, certificate=encoded["crt"], key=encoded["key"])
    (folder / "manifests/beside.yaml").write_text(manifests)
    command = [*before, str(program), "serve", f"--manifests={folder / 'manifests'}", f"--listen=127.0.0.1:{http}", f"--listen-https=127.0.0.1:{https}",
               f"--admin=127.0.0.1:{admin}", "--workers=1", "--no-takeover", *options]
    return started("Sluicegate", command, folder, http, https)


def nginx(configuration: str, folder: Path, backend: int, before: Sequence[str] = ()) -> Gateway:
    """Starts nginx with a configuration that has places for folder, backend, http and https."""
    http, https = free_ports(2)
    (folder / "nginx.conf").write_text(configuration.format(folder=folder, backend=backend, http=http, https=https))
    return started("nginx", [*before, "nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)], folder, http, https)


def started(name: str, command: Sequence[str], folder: Path, http: int, https: int) -> Gateway:
    """Starts a gateway, and waits until it serves the host."""
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    gateway = Gateway(name, process, http, https)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        answer = subprocess.run(["curl", "--silent", "--insecure", "--connect-to", "::127.0.0.1:", "--output", "/dev/null", "--write-out", "%{http_code}",
                                 f"https://{HOST}:{https}/?s=1"], capture_output=True, text=True, timeout=30)
        if answer.stdout == "200":
            return gateway
        time.sleep(0.1)
    gateway.stop()
    sys.exit(f"{name} does not start:\n{log.read_text()[-2000:]}")
