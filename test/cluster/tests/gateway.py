"""Sluicegate in a cluster, installed like by users: from the archive of the image and the packaged chart."""

import base64
import functools
import json
import os
import signal
import socket
import ssl
import sys
import tempfile
import time
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Cluster, ClusterError, wait_until
from harness.paths import PROJECT
from harness.processes import Process, all_pids, checked
from images import standard

HELM = PROJECT / "target/tools/helm"
CHART = PROJECT / "charts/sluicegate"
NAMESPACE = "sluicegate"
"""The namespace of the chart."""
PATIENCE = 60
"""The timeout of each wait, in seconds. No test measures these waits."""
POD = "app.kubernetes.io/name=sluicegate"
"""The label of all pods of the chart."""


@functools.cache
def image() -> Path:
    """Returns the archive of the image: the archive in SLUICEGATE_IMAGE, or a new build without optimisation."""
    if given := os.environ.get("SLUICEGATE_IMAGE"):
        return Path(PROJECT, given).resolve()
    archive = PROJECT / "target/image/check.tar"
    checked([str(PROJECT / "scripts/image"), "--profile", "dev", "--output", str(archive)], cwd=PROJECT)
    return archive


def chart(folder: Path) -> Path:
    """Packages the chart into a folder."""
    checked([str(HELM), "package", str(CHART), "--destination", str(folder)])
    (package,) = folder.glob("sluicegate-*.tgz")
    return package


class Authority:
    """A CA and its certificates, as files and as Secrets."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self.name = name
        self.file = folder / f"{name}.crt"
        self._key = folder / f"{name}.key"
        self._request(self.file, self._key, name, ["keyUsage=critical,keyCertSign,cRLSign"])

    def _request(self, certificate: Path, key: Path, name: str, extensions: list[str], *signed: str) -> None:
        checked(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "30",
                 "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate), *signed,
                 *(option for each in extensions for option in ("-addext", each))])

    def sign(self, *names: str) -> tuple[Path, Path]:
        """Creates a new certificate for these names, and its key."""
        number = len(list(self.folder.iterdir()))
        certificate, key = (self.folder / f"{self.name}-{number}.{kind}" for kind in ("crt", "key"))
        alternatives = ",".join(f"DNS:{name}" for name in names)
        self._request(certificate, key, names[0].replace("*", "any"), [
            "basicConstraints=critical,CA:FALSE", f"subjectAltName={alternatives}", "extendedKeyUsage=serverAuth,clientAuth",
        ], "-CA", str(self.file), "-CAkey", str(self._key))
        return certificate, key

    def secret(self, secret: str, *names: str) -> dict[str, Any]:
        """Returns a Secret with a new certificate for these names, and with the CA certificate."""
        certificate, key = self.sign(*names)
        files = {"tls.crt": certificate, "tls.key": key, "ca.crt": self.file}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "type": "kubernetes.io/tls",
                "data": {name: base64.b64encode(file.read_bytes()).decode() for name, file in files.items()}}


def name_control_plane(cluster: Cluster, *more: str) -> None:
    """Starts a name server at the address of the first node: the cluster has no DNS for Services. The server has the name of the control plane,
    and `more` names, each with its address."""
    address = cluster.json("get", "service/sluicegate-control-plane", "--namespace", NAMESPACE)["spec"]["clusterIP"]
    server = [sys.executable, str(PROJECT / "test/image/dns.py"), cluster.nodes[0].address,
              f"sluicegate-control-plane.{NAMESPACE}.svc", address, *more]
    # The name server ends with its standard input.
    cluster.popen(["sh", "-c", 'sleep infinity | exec "$@"', "sh", *server], name="dns")


def backend(name: str, replicas: int = 1, port: int = 9000, **more: Any) -> list[dict[str, Any]]:
    """Returns a Deployment of the lab's backend, which responds with `Server name: NAME`, and its Service with port 80. `more` sets
    `annotations` of the Service and `appProtocol` of its port."""
    labels = {"app": name}
    container = {"name": "backend", "image": standard.BACKEND, "args": ["backend", "--listen", f"0.0.0.0:{port}", "--name", name],
                 "readinessProbe": {"httpGet": {"path": "/healthz", "port": port}, "periodSeconds": 1, "timeoutSeconds": 5}}
    application = {"appProtocol": more["appProtocol"]} if "appProtocol" in more else {}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 5}}}},
        service(name, name, port, **more.get("annotations", {})) | {
            "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": port, **application}]}},
    ]


def service(name: str, app: str, target: int, **annotations: str) -> dict[str, Any]:
    """Returns a Service with port 80 for the pods of an app. Keyword arguments are annotations of Sluicegate, with underscores."""
    return {"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "annotations": annotated(annotations)},
            "spec": {"selector": {"app": app}, "ports": [{"name": "http", "port": 80, "targetPort": target}]}}


def ingress(name: str, *rules: str, tls: dict[str, list[str]] | None = None, default: str = "", of: str = "sluicegate",
            **annotations: str) -> dict[str, Any]:
    """Returns an Ingress. A rule is `HOST PATH TYPE SERVICE`; the host may be `*`. `tls` maps Secrets to hosts."""
    spec: dict[str, Any] = {"ingressClassName": of}
    if default:
        spec["defaultBackend"] = _to(default)
    if rules:
        spec["rules"] = [_rule(*rule.split()) for rule in rules]
    if tls:
        spec["tls"] = [{"secretName": secret, "hosts": hosts} for secret, hosts in tls.items()]
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": name, "annotations": annotated(annotations)}, "spec": spec}


def _rule(host: str, path: str, kind: str, target: str) -> dict[str, Any]:
    rule: dict[str, Any] = {"http": {"paths": [{"path": path, "pathType": kind, "backend": _to(target)}]}}
    return rule if host == "*" else {"host": host, **rule}


def _to(target: str) -> dict[str, Any]:
    return {"service": {"name": target, "port": {"number": 80}}}


def annotated(annotations: dict[str, str]) -> dict[str, str]:
    return {f"sluicegate.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}


@dataclass
class Answer:
    """The response that curl received. Without a response, the status is 0 and the body is the error of curl."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def server(self) -> str:
        """The name of the backend that responded."""
        return self.line("Server name")

    def line(self, name: str) -> str:
        """Returns the value of the line with this name in the response of the backend."""
        lines = (line.partition(": ") for line in self.body.splitlines())
        return next((value for key, _, value in lines if key.lower() == name.lower()), "")


def well(answer: Answer) -> bool:
    return answer.status == 200


def ready(pod: dict[str, Any]) -> bool:
    """Returns whether all containers of a pod are ready."""
    statuses = pod["status"].get("containerStatuses", [])
    return bool(statuses) and all(status["ready"] for status in statuses)


def restarted(pod: dict[str, Any]) -> bool:
    """Returns whether a pod is ready again after a restart of a container."""
    return ready(pod) and any(status["restartCount"] for status in pod["status"]["containerStatuses"])


class Load:
    """Requests at a constant rate from outside of all pods."""

    def __init__(self, cluster: Cluster, name: str, url: str, *options: str, duration: str = "10m") -> None:
        self.name = name
        self._file = cluster.folder.path / f"load-{name}.json"
        self._file.unlink(missing_ok=True)
        program = max((path for path in standard.LAB if path.exists()), key=lambda path: path.stat().st_mtime)
        self._running = cluster.popen(
            # A request that waits for 5 s is lost. A busy machine alone does not delay a request that long.
            [str(program), "load", url, "--json", str(self._file), "--duration", duration, "--timeout", "5s",
             "--verify", "--threads", "1", *options], name=f"load-{name}")

    def stop(self) -> dict[str, Any]:
        """Ends the load, and returns its counts."""
        self._running.send(signal.SIGINT)
        return self.counted()

    def counted(self) -> dict[str, Any]:
        """Waits for the end of the load, and returns its counts."""
        self._running.wait(PATIENCE)
        if not self._file.exists():
            raise ClusterError(f"the load {self.name} failed: {self._running.output()}")
        counted: dict[str, Any] = json.loads(self._file.read_text())
        return counted

    def kill(self) -> None:
        self._running.kill()


class Tunnel:
    """An upgraded connection over HTTPS to a backend that echoes (`echo.c`)."""

    def __init__(self, cluster: Cluster, address: str, authority: Authority, host: str, path: str) -> None:
        tls = ssl.create_default_context(cafile=str(authority.file))
        with cluster.namespace.inside():
            connection = socket.create_connection((address, 443), timeout=5)
        # A connection that ends without close_notify of TLS is an error, not an end.
        self._connection = tls.wrap_socket(connection, server_hostname=host, suppress_ragged_eofs=False)
        self._connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n".encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            more = self._connection.recv(1)
            if not more:
                raise ClusterError(f"no tunnel to {host}: {answer!r}")
            answer += more
        head = answer.decode()
        if not head.startswith("HTTP/1.1 101 "):
            raise ClusterError(f"no tunnel to {host}: {head}")
        self.pod = next(line.partition(": ")[2] for line in head.splitlines() if line.lower().startswith("x-pod:"))
        """The backend of the tunnel."""
        self._sent = 0

    def echo(self) -> None:
        """Sends data, and waits for the echo."""
        self._sent += 1
        sent, back = f"{self._sent} of {self.pod}".encode() * 50, b""
        self._connection.sendall(sent)
        while len(back) < len(sent):
            more = self._connection.recv(len(sent) - len(back))
            if not more:
                raise ClusterError(f"the tunnel to {self.pod} ended after {self._sent - 1} echoes")
            back += more
        if back != sent:
            raise ClusterError(f"the tunnel to {self.pod} gave back {back!r} for {sent!r}")

    def ended(self) -> bool:
        """Waits until the peer ends the connection. Returns whether the end was graceful and without further bytes."""
        self._connection.settimeout(PATIENCE)
        try:
            return self._connection.recv(1) == b""
        except OSError as error:
            print(f"  the tunnel to {self.pod}: {error}", flush=True)
            return False

    def close(self) -> None:
        self._connection.close()


def lost(counted: dict[str, Any]) -> dict[str, int]:
    """Returns the failures of a load by kind. A late response is no failure, because a busy machine is late."""
    errors = counted["errors"]
    found = {**errors["kinds"], **errors["wrong"],
             **{f"status {status}": count for status, count in counted["statuses"].items() if status != "200"}}
    found = {kind: count for kind, count in found.items() if count}
    return found or ({"other": errors["total"]} if errors["total"] else {})


class Gateway(unittest.TestCase):
    """A cluster with one installation of Sluicegate for all tests of a class."""

    cluster: Cluster
    folder: Path
    authority: Authority
    nodes = 1
    """The number of nodes of the cluster."""
    logged = (NAMESPACE,)
    """The namespaces with pods of Sluicegate."""
    address = ""
    """The address of Sluicegate for clients outside of the pods: HTTP at port 80, HTTPS at port 443."""

    @classmethod
    def setUpClass(cls) -> None:
        name = "test-" + cls.__name__.lower()
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.authority = Authority(cls.folder)
        cls.cluster = cls.enterClassContext(Cluster(name, nodes=cls.nodes))
        for archive in (image(), standard.backend()):
            cls.cluster.import_image(archive)

    # The installation.

    @classmethod
    def helm(cls, *argv: str) -> str:
        return cls.cluster.run([str(HELM), *argv, "--namespace", NAMESPACE], timeout=120).stdout

    @classmethod
    def install(cls, wait: bool = True, **values: Any) -> str:
        """Installs the chart, waits until its pods are ready, and returns its notes."""
        file = cls.folder / "values.json"
        file.write_text(json.dumps(values))
        waiting = ["--wait", "--timeout", "90s"] if wait else []
        said = cls.helm("install", "sluicegate", str(chart(cls.folder)), "--create-namespace", "--values", str(file), *waiting)
        return said.partition("NOTES:\n")[2]

    @classmethod
    def pods(cls, *selectors: str) -> list[dict[str, Any]]:
        """Returns the pods of Sluicegate that are not terminating."""
        found = cls.cluster.json("get", "pods", "--namespace", NAMESPACE, "--selector", ",".join([POD, *selectors]))["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    @classmethod
    def rolled_out(cls, workload: str, namespace: str = "default") -> None:
        """Waits until all pods of a workload are current and ready, and the old pods are gone."""
        cls.cluster.kubectl("rollout", "status", workload, "--namespace", namespace, f"--timeout={PATIENCE}s")
        wanted = cls.cluster.json("get", workload, "--namespace", namespace)
        labels = ",".join(f"{key}={value}" for key, value in wanted["spec"]["selector"]["matchLabels"].items())

        def alone() -> bool:
            pods = cls.cluster.json("get", "pods", "--namespace", namespace, "--selector", labels)["items"]
            return not [pod for pod in pods if "deletionTimestamp" in pod["metadata"]]

        wait_until(alone, f"the old pods of {workload} to end", PATIENCE, 0.2)

    @classmethod
    def process(cls, pod: dict[str, Any]) -> Process:
        """Returns the first process of the pod's only container, with its process id on the machine."""
        (container,) = wait_until(lambda: cls.cluster.json(
            "get", f"pod/{pod['metadata']['name']}", "--namespace", pod["metadata"]["namespace"],
        )["status"].get("containerStatuses"), "a container", PATIENCE)
        identity = container["containerID"].rpartition("/")[2]
        for pid in all_pids():
            try:
                inside = identity in Path(f"/proc/{pid}/cgroup").read_text()
            except OSError:
                continue
            process = Process.find(pid) if inside else None
            if process:
                return process
        raise ClusterError(f"no process of {pod['metadata']['name']} runs")

    @classmethod
    def follow(cls, objects: list[dict[str, Any]]) -> None:
        """Applies objects in the namespace `default`, and waits for their Deployments."""
        cls.cluster.apply(*objects)
        for each in objects:
            if each["kind"] == "Deployment":
                cls.rolled_out(f"deployment/{each['metadata']['name']}")

    # The client.

    @classmethod
    def ask(cls, url: str, *options: str, address: str = "") -> Answer:
        """Sends a request with curl, which trusts only the CA."""
        done = cls.cluster.run(["curl", "--silent", "--show-error", "--include", "--max-time", "10", "--cacert", str(cls.authority.file),
                                "--connect-to", f"::{address or cls.address}:", *options, url], check=False)
        if done.returncode:
            return Answer(0, {}, done.stderr)
        head, _, body = done.stdout.replace("\r\n", "\n").partition("\n\n")
        first, *lines = head.splitlines()
        fields = (line.partition(": ") for line in lines)
        return Answer(int(first.split()[1]), {name.lower(): value for name, _, value in fields}, body)

    @classmethod
    def answers(cls, expected: Callable[[Answer], bool], url: str, *options: str, address: str = "") -> Answer:
        """Sends requests until the response is as expected. Fails with the last response."""
        found: list[Answer] = []

        def right() -> bool:
            found[:] = [cls.ask(url, *options, address=address)]
            return expected(found[0])

        try:
            wait_until(right, url, 30, 0.1)
        except ClusterError:
            raise AssertionError(f"{url} {' '.join(options)} is answered {found[0]}") from None
        return found[0]

    def served(self, name: str) -> float:
        """Creates an Ingress, and returns the seconds until the gateway serves it."""
        started = time.monotonic()
        self.cluster.apply(ingress(name, f"{name}.example.com / Prefix shop"))
        self.addCleanup(self.cluster.kubectl, "delete", f"ingress/{name}")
        self.answers(well, f"http://{name}.example.com/")
        return time.monotonic() - started

    def writer(self, *selectors: str) -> dict[str, Any]:
        """Returns the pod that writes into the cluster: the holder of the Lease. A killed pod holds the Lease for some more seconds."""
        def holding() -> dict[str, Any] | None:
            leases = self.cluster.json("get", "leases", "--namespace", NAMESPACE, "--field-selector=metadata.name=sluicegate")["items"]
            holders = {lease["spec"].get("holderIdentity") for lease in leases}
            return next((pod for pod in self.pods(*selectors) if pod["metadata"]["name"] in holders), None)

        found = wait_until(holding, "a holder of the Lease", PATIENCE, 0.2)
        assert found is not None
        return found

    def status_is_written(self, name: str, address: str) -> float:
        """Creates an Ingress, and returns the seconds until its status has the address."""
        started = time.monotonic()
        self.cluster.apply(ingress(name, f"{name}.example.com / Prefix shop"))
        self.addCleanup(self.cluster.kubectl, "delete", f"ingress/{name}")

        def status() -> Any:
            return self.cluster.json("get", f"ingress/{name}")["status"].get("loadBalancer", {}).get("ingress")

        self.assertEqual(wait_until(status, "the status of a new Ingress", PATIENCE, 0.2), [{"ip": address}])
        return time.monotonic() - started

    @contextmanager
    def load(self, url: str = "https://shop.example.com/", rate: int = 50, posts: int = 0, address: str = "",
             trusted: Path | None = None) -> Iterator[None]:
        """Runs loads during its body: on persistent connections, on new connections and by HTTP/2. No request may be lost. `trusted` is the
        CA certificate of HTTPS, by default the certificate of `authority`."""
        port = "443" if url.startswith("https") else "80"
        trust = ["--cacert", str(trusted or self.authority.file)] if port == "443" else []
        common = ["--connect-to", f"{address or self.address}:{port}", *trust, "--posts", str(posts)]
        kinds = {
            "kept": ["--connections", "10", "--rate", str(rate)],
            "new": ["--connections", "20", "--rate", str(rate // 5), "--new-connections"],
            "http2": ["--connections", "4", "--streams", "5", "--h2", "--rate", str(rate // 2)],
        }
        test = self.id().rpartition(".")[2]
        loads = [Load(self.cluster, f"{test}-{kind}", url, *common, *options) for kind, options in kinds.items()]
        try:
            yield
        except BaseException:
            for load in loads:
                load.kill()
            raise
        counted = {load.name.rpartition("-")[2]: load.stop() for load in loads}
        told = ", ".join(f"{each['requests']['answered']} {kind}" for kind, each in counted.items())
        longest = max(each["latency"]["max_us"] for each in counted.values()) / 1000
        print(f"  {test}: {told}; at most {longest:.0f} ms", flush=True)
        failed = {kind: lost(each) for kind, each in counted.items() if lost(each)}
        self.assertEqual(failed, {})
        for kind, each in counted.items():
            self.assertGreater(each["requests"]["answered"], 0, kind)

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Runs the test. The report of a failure has the state of the cluster, which ends with the class."""
        result = result or self.defaultTestResult()
        lists = (result.errors, result.failures)
        before = [len(each) for each in lists]
        super().run(result)
        for each, count in zip(lists, before, strict=True):
            each[count:] = [(test, text + self.complaints()) for test, text in each[count:]]
        return result

    def complaints(self) -> str:
        """Returns the pods, the warnings of Kubernetes and the logs of the gateway, for the analysis of a failure."""
        questions = {
            "pods": ("get", "pods", "--all-namespaces", "--no-headers", "--output=wide"),
            "events": ("get", "events", "--all-namespaces", "--field-selector=type=Warning", "--sort-by=.lastTimestamp", "--no-headers"),
        } | {f"logs in {namespace}": ("logs", "--namespace", namespace, "--selector", POD, "--prefix", "--tail=12") for namespace in self.logged}
        parts = []
        for name, question in questions.items():
            try:
                found = self.cluster.kubectl(*question).splitlines()
            except ClusterError as error:
                found = [str(error)]
            parts += [f"{name}:", *(line[:300] for line in found[-30:])]
        return "\n".join(["", *parts, ""])
