"""Network namespaces, and the network between the nodes."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import addresses
from .processes import Process, all_pids, checked, kill_all

CLONE_NEWNET = 0x40000000

BRIDGE = "nodes"
"""The bridge between nodes, in the namespace of the first node and with its address."""


class NetworkNamespace:
    """A named network namespace, as in `ip netns list`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = Path("/run/netns") / name

    @property
    def exists(self) -> bool:
        return self.path.exists()

    def create(self) -> None:
        checked(["ip", "netns", "add", self.name])
        self.sh("ip link set lo up; echo 1 >/proc/sys/net/ipv4/ip_forward")
        # Responses of a pod to a Service's client on the same bridge must pass the address translation of kube-proxy.
        self.sh("f=/proc/sys/net/bridge/bridge-nf-call-iptables; [ ! -e $f ] || echo 1 >$f")

    def enter(self) -> list[str]:
        """The prefix of a command in the namespace. `ip netns exec` mounts a new /sys, which would hide the cgroups."""
        return ["nsenter", f"--net={self.path}", "--"]

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Moves the calling thread into the namespace during the body. Sockets of the body stay in the namespace."""
        own, other = os.open("/proc/thread-self/ns/net", os.O_RDONLY), os.open(self.path, os.O_RDONLY)
        try:
            _set_namespace(other)
            try:
                yield
            finally:
                _set_namespace(own)
        finally:
            os.close(own)
            os.close(other)

    def sh(self, script: str) -> None:
        checked([*self.enter(), "sh", "-ec", script])

    def processes(self) -> list[Process]:
        """Returns the processes in the namespace."""
        try:
            namespace = self.path.stat()
        except FileNotFoundError:
            return []
        found = []
        for pid in all_pids():
            try:
                own = os.stat(f"/proc/{pid}/ns/net")
            except OSError:
                continue
            # The device in the identity of a namespace is the file system of all namespaces.
            if (own.st_dev, own.st_ino) == (namespace.st_dev, namespace.st_ino):
                process = Process.find(pid)
                if process and pid != os.getpid():
                    found.append(process)
        return found

    def delete(self) -> None:
        """Kills the processes in the namespace, and removes the namespace."""
        if self.exists:
            kill_all(self.processes, f"network namespace {self.name}")
            checked(["ip", "netns", "delete", self.name])


def _set_namespace(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class NodeNetwork:
    """The network of the nodes: a bridge in the namespace of the first node, with a veth pair to each other node."""

    def __init__(self, identity: str, nodes: int) -> None:
        self.namespaces = [NetworkNamespace(identity if node == 1 else f"{identity}-{node}") for node in range(1, nodes + 1)]

    def create(self) -> None:
        for namespace in self.namespaces:
            namespace.create()
        first = self.namespaces[0]
        first.sh(
            f"ip link add {BRIDGE} type bridge; ip address add {addresses.node_address(1)}/24 dev {BRIDGE};"
            f"ip link set {BRIDGE} up; ip route add default via {addresses.UNUSED}"
        )
        for node, namespace in enumerate(self.namespaces[1:], 2):
            port = addresses.node_name(node)
            first.sh(
                f"ip link add {port} type veth peer name eth0 netns {namespace.name};"
                f"ip link set {port} master {BRIDGE} up"
            )
            namespace.sh(
                f"ip address add {addresses.node_address(node)}/24 dev eth0; ip link set eth0 up;"
                f"ip route add default via {addresses.node_address(1)}"
            )
        for here, namespace in enumerate(self.namespaces, 1):
            for other in range(1, len(self.namespaces) + 1):
                if here != other:
                    namespace.sh(f"ip route add {addresses.pod_network(other)} via {addresses.node_address(other)}")

    def delete(self) -> None:
        for namespace in reversed(self.namespaces):
            namespace.delete()
