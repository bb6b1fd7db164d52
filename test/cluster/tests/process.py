"""Gateway processes that follow the cluster of a test, backends, and the objects that route to the backends."""

import base64
import http.client
import itertools
import json
import os
import re
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from harness import Api, Cluster, ClusterError, Running, wait_until
from harness.addresses import API_SERVER, API_SERVER_PORT
from harness.network import BRIDGE
from harness.paths import PROJECT
from harness.processes import Process, checked

Manifest = dict[str, Any]

HOME = "sluicegate"
"""The namespace of the gateways and their service accounts."""

CONTROLLER = "sluicegate.dev/ingress-controller"
BACKEND_PORT = 9000
GATEWAY_API = "sigs.k8s.io/gateway-api"
GATEWAY_API_RELEASE = "1.6.3"

READ = ["get", "list", "watch"]
NAMESPACED = [
    {"apiGroups": [""], "resources": ["services", "secrets", "configmaps"], "verbs": READ},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": READ},
    {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": READ},
    {"apiGroups": ["gateway.networking.k8s.io"],
     "resources": ["gateways", "listenersets", "httproutes", "grpcroutes", "tlsroutes", "tcproutes", "udproutes", "backendtlspolicies",
                   "referencegrants"],
     "verbs": READ},
    {"apiGroups": ["gateway.networking.x-k8s.io"], "resources": ["xbackends", "xbackendtrafficpolicies"], "verbs": READ},
    {"apiGroups": ["sluicegate.dev"], "resources": ["securitypolicies", "consumers", "ratelimitpolicies", "trafficpolicies", "apis", "plans", "subscriptions"],
     "verbs": READ},
]
CLUSTER_WIDE = [
    {"apiGroups": ["networking.k8s.io"], "resources": ["ingressclasses"], "verbs": READ},
    {"apiGroups": ["gateway.networking.k8s.io"], "resources": ["gatewayclasses"], "verbs": READ},
    {"apiGroups": ["gateway.networking.k8s.io"], "resources": ["gatewayclasses/status"], "verbs": ["patch"]},
    {"apiGroups": ["certificates.k8s.io"], "resources": ["clustertrustbundles"], "verbs": READ},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": READ},
]
WRITE = [
    {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses/status"], "verbs": ["patch"]},
    {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": ["patch"]},
    {"apiGroups": ["gateway.networking.k8s.io"],
     "resources": [f"{kind}/status" for kind in ["gateways", "listenersets", "httproutes", "grpcroutes", "tlsroutes", "tcproutes", "udproutes",
                                                     "backendtlspolicies"]], "verbs": ["patch"]},
    {"apiGroups": ["gateway.networking.x-k8s.io"], "resources": ["xbackends/status", "xbackendtrafficpolicies/status"],
     "verbs": ["patch"]},
    {"apiGroups": ["sluicegate.dev"],
     "resources": ["securitypolicies/status", "consumers/status", "ratelimitpolicies/status", "trafficpolicies/status", "apis/status",
                   "plans/status", "subscriptions/status"], "verbs": ["patch"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
]
NODES = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
AT_HOME = [{"apiGroups": [""], "resources": ["pods"], "verbs": READ}]


def lease_rules(name: str) -> list[Manifest]:
    group = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    return [{**group, "verbs": ["create"]}, {**group, "resourceNames": [name], "verbs": ["get", "update"]}]


def program(name: str) -> Path:
    """Returns the newest build of a program of the project."""
    found = [path for path in (PROJECT / "target" / profile / name for profile in ["debug", "local", "release"]) if path.exists()]
    if not found:
        raise ClusterError(f"{name} is not built: cargo build --package sluicegate --package sluicegate-lab")
    return max(found, key=lambda path: path.stat().st_mtime)


def gateway_api_folder(folder: Path, release: str = GATEWAY_API_RELEASE) -> Path:
    """Returns the folder of a release of Gateway API in the module cache."""
    # The release may need a newer Go to compile. Go unpacks the module and then fails.
    subprocess.run(["go", "mod", "download", f"{GATEWAY_API}@v{release}"], cwd=folder, env={**os.environ, "GOTOOLCHAIN": "local"}, check=False,
                   capture_output=True)
    return Path(checked(["go", "env", "GOMODCACHE"], cwd=str(folder)).strip(), f"{GATEWAY_API}@v{release}")


def install_gateway_api(cluster: Cluster, folder: Path, release: str = GATEWAY_API_RELEASE, channel: str = "experimental") -> None:
    """Installs the CRDs of a release of Gateway API. The policy that denies other releases and channels is not installed."""
    found = gateway_api_folder(folder, release) / "config/crd" / channel
    crds = [file for file in sorted(found.glob("gateway.networking.*.yaml")) if "_vap_" not in file.name]
    if not crds:
        raise ClusterError(f"Gateway API {release} has no CRDs in {found}")
    cluster.kubectl("apply", "--server-side", "--force-conflicts", *(f"--filename={file}" for file in crds))
    names = [re.search(r"^  name: (\S+)$", file.read_text(), re.MULTILINE) for file in crds]
    cluster.wait_for_definitions(*(name[1] for name in names if name))


# Objects.

def metadata(namespace: str, name: str, annotations: dict[str, str] | None = None) -> Manifest:
    return {"namespace": namespace, "name": name, **({"annotations": annotations} if annotations else {})}


def ingress(
    namespace: str, name: str, host: str, service: str = "web", class_name: str | None = "sluicegate",
    annotations: dict[str, str] | None = None, tls: str | None = None, path_type: str = "Prefix",
) -> Manifest:
    backend = {"service": {"name": service, "port": {"number": 80}}}
    spec: Manifest = {"rules": [{"host": host, "http": {"paths": [{"path": "/", "pathType": path_type, "backend": backend}]}}]}
    if class_name:
        spec["ingressClassName"] = class_name
    if tls:
        spec["tls"] = [{"hosts": [host], "secretName": tls}]
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata(namespace, name, annotations),
            "spec": spec}


def service(namespace: str, name: str = "web") -> Manifest:
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata(namespace, name),
            "spec": {"ports": [{"port": 80, "targetPort": BACKEND_PORT}]}}


def endpoints(addresses: list[str]) -> list[Manifest]:
    return [{"addresses": [address], "conditions": {"ready": True}} for address in addresses]


def endpoint_slice(namespace: str, addresses: list[str], name: str = "web") -> Manifest:
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {**metadata(namespace, f"{name}-1"), "labels": {"kubernetes.io/service-name": name}},
            "endpoints": endpoints(addresses), "ports": [{"port": BACKEND_PORT, "protocol": "TCP"}]}


def secret(namespace: str, name: str, data: dict[str, bytes], kind: str = "Opaque") -> Manifest:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata(namespace, name), "type": kind,
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()}}


def config_map(namespace: str, name: str, data: dict[str, str] | None = None) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(namespace, name), "data": data or {}}


def namespace_of(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def lease(name: str) -> Manifest:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata(HOME, name)}


@dataclass
class Pair:
    """A certificate and its key."""

    certificate: bytes
    key: bytes

    @classmethod
    def create(cls, folder: Path, name: str, authority: "Pair | None" = None) -> "Pair":
        """Creates a certificate for a name, signed by a CA or self-signed."""
        certificate, key = folder / "made.crt", folder / "made.key"
        argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "2",
                "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate)]
        if authority:
            (folder / "by.crt").write_bytes(authority.certificate)
            (folder / "by.key").write_bytes(authority.key)
            argv += ["-CA", str(folder / "by.crt"), "-CAkey", str(folder / "by.key"),
                     "-addext", "basicConstraints=critical,CA:FALSE", "-addext", f"subjectAltName=DNS:{name}"]
        subprocess.run(argv, check=True, capture_output=True)
        return cls(certificate.read_bytes(), key.read_bytes())

    @property
    def der(self) -> bytes:
        return ssl.PEM_cert_to_DER_cert(self.certificate.decode())

    def secret(self, namespace: str, name: str) -> Manifest:
        return secret(namespace, name, {"tls.crt": self.certificate, "tls.key": self.key}, "kubernetes.io/tls")


# Processes.

class Site:
    """A cluster with service accounts for gateways, and addresses for backends."""

    def __init__(self, cluster: Cluster, folder: Path, build: Callable[[str], Path] = program) -> None:
        """`build` returns the file of a program of the project."""
        self.cluster = cluster
        self.api = Api(cluster)
        self.folder = folder
        self._build = build
        self._numbers = itertools.count(1)
        self._addresses = itertools.count(1)
        self.api.create(namespace_of(HOME))

    def number(self) -> int:
        return next(self._numbers)

    def namespace(self) -> str:
        """Creates a new namespace."""
        name = f"shop-{self.number()}"
        self.api.create(namespace_of(name))
        return name

    def backend(self, name: str) -> str:
        """Starts a backend that responds with its name. Returns its address, which is valid in EndpointSlices."""
        address = f"198.18.255.{next(self._addresses)}"
        self.cluster.namespace.sh(f"ip address add {address}/32 dev {BRIDGE}")
        running = self.cluster.popen([str(self._build("sluicegate-lab")), "backend", "--name", name,
                                      "--listen", f"{address}:{BACKEND_PORT}"], name=f"backend-{address}")
        wait_until(lambda: "serves at" in running.output(), f"the backend {name}: {running.output()}")
        return address

    def account(self, rules: list[Manifest], at_home: list[Manifest] | None = None) -> str:
        """Creates a service account with these rights in all namespaces and in its own namespace."""
        name = f"gateway-{self.number()}"
        self.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(HOME, name)})
        self.allow(name, rules)
        if at_home:
            self.allow(name, at_home, HOME)
        return name

    def allow(self, account: str, rules: list[Manifest], namespace: str | None = None) -> Manifest:
        """Grants rights to a service account in a namespace, or in all namespaces. Returns the binding."""
        kind, rbac = ("Role" if namespace else "ClusterRole"), "rbac.authorization.k8s.io"
        meta = {"name": f"{account}-{self.number()}", **({"namespace": namespace} if namespace else {})}
        binding = {
            "apiVersion": f"{rbac}/v1", "kind": f"{kind}Binding", "metadata": meta,
            "roleRef": {"apiGroup": rbac, "kind": kind, "name": meta["name"]},
            "subjects": [{"kind": "ServiceAccount", "namespace": HOME, "name": account}],
        }
        self.api.create({"apiVersion": f"{rbac}/v1", "kind": kind, "metadata": meta, "rules": rules}, binding)
        return binding

    def kubeconfig(self, account: str) -> tuple[Path, str]:
        """Returns a kubeconfig with a token of the service account, and the token."""
        path = f"/api/v1/namespaces/{HOME}/serviceaccounts/{account}/token"
        token = self.api.ask("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
        file = self.folder / f"{account}.kubeconfig"
        file.touch(mode=0o600)
        file.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "cluster",
            "clusters": [{"name": "cluster", "cluster": {
                "server": f"https://{API_SERVER}:{API_SERVER_PORT}",
                "certificate-authority": str(self.cluster.folder.certificates / "ca.crt")}}],
            "users": [{"name": account, "user": {"token": token["status"]["token"]}}],
            "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": account}}],
        }))
        return file, token["status"]["token"]

    def gateway(self, *options: str, account: str | None = None, lease_name: str | None = None) -> "Gateway":
        """Starts a gateway. Without an account, the gateway has all rights that it needs."""
        number = self.number()
        lease_name = lease_name or f"lease-{number}"
        account = account or self.account(NAMESPACED + CLUSTER_WIDE + WRITE, lease_rules(lease_name))
        kubeconfig, token = self.kubeconfig(account)
        gateway = Gateway(self.cluster, number, token, self._build("sluicegate"))
        gateway.start([
            "--kubeconfig", str(kubeconfig), "--pod-namespace", HOME, "--pod-name", gateway.name,
            "--lease-name", lease_name, *options,
        ])
        return gateway


@dataclass
class Answer:
    status: int
    text: str
    headers: http.client.HTTPMessage

    @property
    def backend(self) -> str | None:
        """The name of the backend that responded."""
        found = re.search(r"^Server name: (\S+)", self.text, re.MULTILINE)
        return found[1] if found else None


@dataclass
class Gateway:
    """A gateway process with its own ports."""

    cluster: Cluster
    number: int
    token: str
    build: Path = field(default_factory=lambda: program("sluicegate"))
    running: Running = field(init=False)

    @property
    def name(self) -> str:
        return f"gateway-pod-{self.number}"

    @property
    def port(self) -> int:
        return 20000 + 10 * self.number

    def start(self, options: list[str]) -> None:
        self.running = self.cluster.popen([
            str(self.build), "serve", "--kubernetes", "--workers", "1", "--listen", f"127.0.0.1:{self.port}",
            "--listen-https", f"127.0.0.1:{self.port + 1}", "--admin", f"127.0.0.1:{self.port + 2}", *options,
        ], name=self.name)

    @property
    def pid(self) -> int:
        return self.running.process.pid

    def log(self) -> str:
        return self.running.output()

    def lines(self, *parts: str) -> list[str]:
        """Returns the lines of the log that contain all these texts."""
        return [line for line in self.log().splitlines() if all(part in line for part in parts)]

    def await_line(self, *parts: str, timeout: float = 30) -> str:
        return wait_until(lambda: self.lines(*parts), f"{parts} in the log of {self.name}:\n{self.log()}", timeout, 0.02)[0]

    def ask(self, host: str, path: str = "/", port: int | None = None, method: str = "GET", body: bytes | None = None,
            headers: dict[str, str] | None = None, address: str = "127.0.0.1") -> Answer:
        """Sends a request over a new HTTP connection. Without a response, the status is 0."""
        connection = http.client.HTTPConnection(address, port or self.port, timeout=5)
        try:
            with self.cluster.namespace.inside():
                connection.connect()
            connection.request(method, path, body, {"Host": host, "Connection": "close", **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, answer.read().decode(errors="replace"), answer.headers)
        except OSError as error:
            return Answer(0, str(error), http.client.HTTPMessage())
        finally:
            connection.close()

    def admin(self, path: str) -> Answer:
        return self.ask("localhost", path, self.port + 2)

    def is_ready(self) -> bool:
        return self.admin("/readyz").status == 200

    def await_ready(self, timeout: float = 30) -> None:
        def ready() -> bool:
            if not self.running.running:
                raise ClusterError(f"{self.name} ended:\n{self.log()}")
            return self.is_ready()

        try:
            wait_until(ready, "readiness", timeout, 0.01)
        except ClusterError as error:
            raise ClusterError(f"{error}; the log of {self.name}:\n{self.log()[-3000:]}") from None

    def await_status(self, host: str, status: int = 200, timeout: float = 30) -> Answer:
        def wanted() -> Answer | None:
            answer = self.ask(host)
            return answer if answer.status == status else None

        try:
            found = wait_until(wanted, f"{status} for {host}", timeout, 0.002)
        except ClusterError as error:
            raise ClusterError(f"{error}, not {self.ask(host)}; the log of {self.name}:\n{self.log()[-3000:]}") from None
        assert found is not None
        return found

    def await_backend(self, host: str, backend: str, timeout: float = 30) -> None:
        try:
            wait_until(lambda: self.ask(host).backend == backend, f"{backend} for {host}", timeout, 0.002)
        except ClusterError as error:
            raise ClusterError(f"{error}, not {self.ask(host)}; the log of {self.name}:\n{self.log()[-3000:]}") from None

    def tls(self, host: str, client: tuple[Path, Path] | None = None) -> ssl.SSLSocket:
        """Opens a TLS connection for a name. The client verifies no certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if client:
            context.load_cert_chain(*client)
        with self.cluster.namespace.inside():
            connection = socket.create_connection(("127.0.0.1", self.port + 1), timeout=5)
        return context.wrap_socket(connection, server_hostname=host)

    def certificate(self, host: str) -> bytes:
        """Returns the presented certificate for a name, in DER."""
        with self.tls(host) as connection:
            return connection.getpeercert(binary_form=True) or b""

    def ask_tls(self, host: str, over: ssl.SSLSocket | None = None, client: tuple[Path, Path] | None = None) -> int:
        """Returns the status of a request over HTTPS, on a new connection or on the given connection, which stays open."""
        connection = over or self.tls(host, client)
        try:
            connection.sendall(f"GET /?s=1 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            answer.read()
            return answer.status
        finally:
            if not over:
                connection.close()

    def metric(self, name: str) -> float:
        """Returns the sum of a metric over all labels."""
        found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", self.admin("/metrics").text, re.MULTILINE)
        return sum(float(value) for value in found)

    def pause(self) -> None:
        """Pauses the process (SIGSTOP) until `resume`."""
        process = Process.find(self.pid)
        assert process
        self.running.send(signal.SIGSTOP)
        wait_until(lambda: process.stopped, "the gateway to stand still", 10, 0.01)

    def resume(self) -> None:
        self.running.send(signal.SIGCONT)

    def leaderships(self) -> list[tuple[datetime, datetime | None]]:
        """Returns the periods in which the process held the Lease, from its log."""
        found: list[tuple[datetime, datetime | None]] = []
        for line in self.lines("the Lease", "this process") + self.lines("is given up"):
            when = datetime.fromisoformat(line.split()[0])
            if "does not hold" in line or "is given up" in line:
                if found and found[-1][1] is None:
                    found[-1] = (found[-1][0], when)
            else:
                found.append((when, None))
        return found

    def memory(self) -> float:
        """Returns the resident memory, in MiB."""
        found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        assert found
        return int(found[1]) / 1024

    def cpu(self) -> float:
        """Returns the CPU time so far, in seconds."""
        return cpu_of(self.pid)


def cpu_of(pid: int) -> float:
    """Returns the CPU time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
