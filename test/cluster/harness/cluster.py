"""The cluster: start, use and stop."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from images import standard

from . import addresses, tools
from .certificates import Certificates
from .control_plane import ControlPlane
from .errors import ClusterError
from .kwok import Kwok
from .network import NodeNetwork
from .node import CNI_PLUGINS, Node
from .part import Part
from .paths import BIN, RUN, RunFolder
from .processes import Process, kill_all, wait_until
from .running import Running

PROGRAMS = ["ip", "nsenter", "unshare", "openssl"]
NODE_PROGRAMS = ["containerd", "runc", "ctr", "nft", "gcc"]


def silent(_line: str) -> None:
    """Prints nothing."""


class Cluster:
    """A cluster with a name. The cluster starts with `up`, or as a context manager."""

    def __init__(
        self, name: str = "default", nodes: int = 1, api_only: bool = False, controllers: bool = False,
        say: Callable[[str], None] = silent, manager_flags: Sequence[str] = (),
    ) -> None:
        """`api_only`: only etcd and the API server, without nodes; with `controllers` also the controller manager and the
        scheduler, which a cluster with nodes always has. `say` receives each line of progress. `manager_flags`: further
        flags of the controller manager."""
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?", name):
            raise ClusterError(f"{name!r} is no name for a cluster: it has up to 30 lower-case letters, digits and dashes")
        if not 1 <= nodes <= addresses.MAX_NODES:
            raise ClusterError(f"a cluster has 1 to {addresses.MAX_NODES} nodes, not {nodes}")
        self.name = name
        self.shape = {"nodes": 0 if api_only else nodes, "controllers": controllers or not api_only}
        self.folder = RunFolder(name)
        self._say = say
        self._running: list[Running] = []
        self._certificates = Certificates(self.folder.certificates)
        self.network = NodeNetwork(self.folder.identity, max(self.shape["nodes"], 1))
        self.namespace = self.network.namespaces[0]
        """The network namespace of the control plane, the first node and commands."""
        self.nodes = [
            Node(number, self.folder, self.network.namespaces[number - 1], self._certificates)
            for number in range(1, self.shape["nodes"] + 1)
        ]
        self.control_plane = ControlPlane(
            self.folder, self._certificates, self.namespace.enter, self._api_answers,
            self.shape["controllers"], self.shape["controllers"], manager_flags,
        )
        self.kwok = Kwok(self)

    @classmethod
    def load(cls, name: str = "default", say: Callable[[str], None] = silent) -> "Cluster":
        """Returns the running cluster with this name."""
        cluster = cls(name, say=say)
        state = cluster._state()
        if state is None:
            raise ClusterError(f"no cluster {name} is up: test/cluster/cluster up --name {name}")
        nodes = state["shape"]["nodes"]
        return cls(name, max(nodes, 1), api_only=nodes == 0, controllers=state["shape"]["controllers"], say=say)

    # Start and stop.

    def up(self) -> None:
        """Starts the cluster or its missing parts. Stops the cluster again if a part fails."""
        self._check()
        with self._locked():
            self._bring_up(owner=None)

    def down(self) -> None:
        """Removes all parts of the cluster, also of a cluster with other options or of a failed start."""
        _need_root()
        with self._locked():
            self._take_down()

    def __enter__(self) -> "Cluster":
        """Starts the cluster only for this process. Removes the remains of an ended process first."""
        self._check()
        with self._locked():
            state = self._state()
            if state and not (state["owner"] and not Process(*state["owner"]).running):
                raise ClusterError(f"cluster {self.name} is up already, and not for this test:"
                                   f" test/cluster/cluster down --name {self.name}")
            self._take_down()
            self._bring_up(owner=Process.find(os.getpid()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.down()

    def _check(self) -> None:
        """Checks the requirements before the first change."""
        _need_root()
        needed = PROGRAMS + (NODE_PROGRAMS if self.nodes else [])
        missing = [program for program in needed if not shutil.which(program)]
        if self.nodes and not CNI_PLUGINS.exists():
            missing.append(f"CNI's plugins ({CNI_PLUGINS})")
        if missing:
            raise ClusterError(f"not installed: {', '.join(missing)}: scripts/setup cluster")
        tools.require([part.name for part in self.control_plane.parts] + ["kubectl"]
                      + (["kubelet", "kube-proxy"] if self.nodes else []))

    def _bring_up(self, owner: Process | None) -> None:
        started = time.monotonic()
        state = self._state()
        if state and state["shape"] != self.shape:
            raise ClusterError(f"cluster {self.name} is up with {_told(state['shape'])}, not {_told(self.shape)}:"
                               f" test/cluster/cluster down --name {self.name}, or use another --name")
        if state and not all(namespace.exists for namespace in self.network.namespaces):
            self._say(f"cluster {self.name} did not outlive the machine's restart, or was half removed")
            self._take_down()
            state = None
        if state and all(part.running for part in self.parts()):
            self._say(f"cluster {self.name} is up")
            return
        if not state:
            shutil.rmtree(self.folder.path, ignore_errors=True)
        try:
            self._start_all(fresh=state is None, owner=owner)
        except BaseException:
            if state is None:
                self._take_down(keep_logs=True)
            raise
        self._say(f"cluster {self.name} is up: {_told(self.shape)}  {time.monotonic() - started:.1f} s")

    def _start_all(self, fresh: bool, owner: Process | None) -> None:
        if fresh:
            with self._step("network and certificates"):
                self.folder.path.mkdir(parents=True)
                self._write_state(owner)
                self.network.create()
                self._certificates.create(self.shape["nodes"])
                self._certificates.kubeconfig("admin", self.folder.kubeconfig)
                self.control_plane.write_files()
        with ThreadPoolExecutor() as pool:
            self.control_plane.etcd.launch()
            self.control_plane.api_server.launch()
            # Concurrently, because the API server takes longest.
            nodes = [pool.submit(node.start_containerd, [standard.pause()]) for node in self.nodes]
            with self._step("etcd, the API server, containerd" if nodes else "etcd and the API server"):
                self.control_plane.api_server.wait_ready()
                for part in self.control_plane.parts[2:]:
                    part.launch()
                for future in nodes:
                    future.result()
            for node in self.nodes:
                node.kubelet.launch()
                node.proxy.launch()
        for node in self.nodes:
            with self._step(f"{node.name}: kubelet and kube-proxy"):
                node.kubelet.wait_ready()
                self._node_is_ready(node)
                node.proxy.wait_ready()
        if self.shape["controllers"]:
            with self._step("controllers"):
                # The first pod of a namespace needs its service account, which the controllers create.
                self._until("default's service account", self.control_plane.controller_manager,
                            lambda: self._kubectl("get", "serviceaccount", "default").returncode == 0)
                for part in self.control_plane.parts[2:]:
                    part.wait_ready()

    def _node_is_ready(self, node: Node) -> None:
        self._until(f"{node.name} to be Ready", node.kubelet, lambda: "True" in self._kubectl(
            "get", "node", node.name, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}").stdout)

    def _until(self, what: str, part: Part, probe: Callable[[], bool]) -> None:
        """Waits for the effect of a part. Shows the log of the part on a timeout."""

        def done() -> bool:
            if not part.running:
                raise part.failed("ended")
            return probe()

        try:
            wait_until(done, what, 60, 0.1)
        except ClusterError as error:
            raise error if "ended" in str(error) else part.failed(f"does not bring {what} about") from None

    def _take_down(self, keep_logs: bool = False) -> None:
        started = time.monotonic()
        for running in self._running:
            running.kill()
        self._running.clear()
        # The largest number of nodes, because a cluster with other options may have left more nodes.
        network = NodeNetwork(self.folder.identity, addresses.MAX_NODES)
        nodes = [Node(number, self.folder, network.namespaces[number - 1], self._certificates)
                 for number in range(1, addresses.MAX_NODES + 1)]
        was = self.folder.path.exists() or any(namespace.exists for namespace in network.namespaces)
        # This includes the first processes of nodes, even without files of their ids. The pods end with these
        # processes.
        kill_all(lambda: [process for each in network.namespaces for process in each.processes()], f"cluster {self.name}", 30)
        for node in nodes:
            node.stop()
        network.delete()
        for part in self.parts():
            part.kill()
        if keep_logs and self.folder.logs.exists():
            for entry in self.folder.path.iterdir():
                if entry != self.folder.logs:
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            self._say(f"cluster {self.name} is taken down, its logs are in {self.folder.logs}")
            return
        if self.folder.path.exists():
            shutil.rmtree(self.folder.path)
        if was:
            self._say(f"cluster {self.name} is down  {time.monotonic() - started:.1f} s")

    # Use.

    def kubectl(self, *argv: str, input: str | None = None, timeout: float = 120) -> str:
        """Returns the output of kubectl with the rights of the administrator. A failure is an error with its message."""
        done = self._kubectl(*argv, input=input, timeout=timeout)
        if done.returncode != 0:
            raise ClusterError(f"kubectl {' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def json(self, *argv: str) -> Any:
        """Returns the parsed output of commands such as `kubectl get`."""
        return json.loads(self.kubectl(*argv, "--output=json"))

    def apply(self, *objects: str | dict[str, Any]) -> None:
        """Applies objects: dictionaries, or YAML with any number of objects."""
        for given in objects:
            self.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-",
                         input=given if isinstance(given, str) else json.dumps(given))

    def wait(self, resource: str, condition: str, namespace: str = "default", timeout: float = 60) -> None:
        """Waits like `kubectl wait --for`: `wait("deployment/web", "condition=Available")`, `wait("pod/a", "delete")`."""
        self.kubectl("wait", resource, f"--for={condition}", f"--namespace={namespace}", f"--timeout={timeout:g}s",
                     timeout=timeout + 10)

    def wait_for_definitions(self, *names: str, timeout: float = 60) -> None:
        """Waits until the API server serves these CustomResourceDefinitions. `kubectl wait` fails for a definition without
        conditions."""
        definitions = [f"crd/{name}" for name in names]
        wait_until(lambda: self._kubectl("wait", "--for=condition=Established", "--timeout=5s", *definitions).returncode == 0,
                   f"{', '.join(definitions)} to be established", timeout, 0.1)

    def run(self, argv: list[str], timeout: float = 60, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a command in the cluster's network, and returns its output."""
        try:
            done = subprocess.run([*self.namespace.enter(), *argv], env=self.environment(), capture_output=True, text=True,
                                  timeout=timeout, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            raise ClusterError(f"`{' '.join(argv)}` did not end in {timeout:g} s") from None
        if check and done.returncode != 0:
            raise ClusterError(f"`{' '.join(argv)}` ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return done

    def popen(self, argv: list[str], name: str | None = None, env: dict[str, str] | None = None) -> Running:
        """Starts a command in the cluster's network. The command is killed when the cluster stops. `name` is the name of its log."""
        name = name or f"{Path(argv[0]).name}-{len(self._running) + 1}"
        running = Running(argv, self.namespace.enter(), self.folder.logs / f"commands/{name}.log",
                          {**self.environment(), **(env or {})})
        self._running.append(running)
        return running

    def environment(self) -> dict[str, str]:
        """The environment of commands with the kubeconfig of the cluster."""
        path = f"{BIN}:{os.environ.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}"
        return {**os.environ, "KUBECONFIG": str(self.folder.kubeconfig), "PATH": path}

    def import_image(self, tar: Path) -> None:
        """Imports a docker-archive or an OCI archive into all nodes."""
        if not self.nodes:
            raise ClusterError(f"cluster {self.name} has no nodes to import images into")
        if not tar.exists():
            raise ClusterError(f"there is no {tar}")
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.import_image(tar), self.nodes))

    # Parts.

    def parts(self) -> list[Part]:
        """Returns all parts."""
        return [*self.control_plane.parts, *(part for node in self.nodes for part in node.parts)]

    def part(self, name: str) -> Part:
        """Returns the part with this name, such as `kube-apiserver` or `node-1/kubelet`."""
        named = {part.name: part for part in [*self.parts(), self.kwok.part]}
        if name not in named:
            raise ClusterError(f"cluster {self.name} has no {name}; it has {', '.join(named)}")
        return named[name]

    def pause(self, part: str) -> None:
        """Pauses a part (SIGSTOP)."""
        self.part(part).pause()

    def resume(self, part: str) -> None:
        """Resumes a part (SIGCONT)."""
        self.part(part).resume()

    def kill(self, part: str) -> None:
        """Kills a part (SIGKILL), and waits for its end."""
        self.part(part).kill()

    def start(self, part: str) -> None:
        """Starts a killed part, and waits until it is ready."""
        self.part(part).start()

    def logs(self, part: str) -> str:
        """Returns the log of a part so far."""
        log = self.part(part).log
        return log.read_text(errors="replace") if log.exists() else ""

    # State.

    def _kubectl(self, *argv: str, input: str | None = None, timeout: float = 30) -> subprocess.CompletedProcess[str]:
        command = [*self.namespace.enter(), str(BIN / "kubectl"), *argv]
        try:
            return subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=timeout,
                                  input=input if input is not None else "")
        except subprocess.TimeoutExpired:
            raise ClusterError(f"kubectl {' '.join(argv)} did not end in {timeout:g} s") from None

    def _api_answers(self, path: str) -> bool:
        return self._kubectl("get", f"--raw={path}", "--request-timeout=2s").returncode == 0

    def _state(self) -> dict[str, Any] | None:
        try:
            state: dict[str, Any] = json.loads(self.folder.state.read_text())
            return state
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def _write_state(self, owner: Process | None) -> None:
        self.folder.state.write_text(json.dumps({
            "shape": self.shape, "identity": self.folder.identity,
            # The process that owns the cluster, if the cluster does not outlive its process.
            "owner": [owner.pid, owner.started] if owner else None,
        }))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Locks the cluster, so that only one `up` or `down` runs at a time."""
        RUN.mkdir(parents=True, exist_ok=True)
        folder = os.open(RUN, os.O_RDONLY)

        def lock() -> bool:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                return False

        try:
            wait_until(lock, "another up or down of this project to end", 180, 0.1)
            yield
        finally:
            os.close(folder)

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self._say(f"  {what}  {time.monotonic() - started:.1f} s")


def _need_root() -> None:
    if os.geteuid() != 0:
        raise ClusterError("the cluster needs root, for its network namespaces and containers")


def _told(shape: dict[str, Any]) -> str:
    nodes = shape["nodes"]
    if nodes:
        return f"{nodes} node{'s' if nodes > 1 else ''}"
    return "an API server and controllers" if shape["controllers"] else "an API server"
