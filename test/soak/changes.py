"""The changes of the soak: a plan from a seed, and the code of each change.

Each lane makes its changes one after the other, and all lanes run at the same time. The kind and the parameters of each change depend only on the seed,
and so does its time, unless the previous change of the lane takes longer."""

from __future__ import annotations

import random
import ssl
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from attack import ATTACKS
from client import HTTP, HTTPS
from soak_site import (
    HERE, NAMESPACE, PATIENCE, ROUTES, VERSION, ClusterError, Pod, Plane, Soak, Workload, base64, ingress, metadata, secret, signal, wait_until,
)

LAST, LAST_SECONDS = 0.1, 60.0
"""The share of the duration at the end in which no change begins, and its longest time."""


@dataclass(frozen=True)
class Lane:
    """A lane: the mean time between two changes in seconds, and the kinds of changes with their weights."""

    gap: float
    kinds: dict[str, int]


LANES = {
    "web": Lane(20, {"scale pods": 3, "rolling restart": 2}),
    "other": Lane(35, {"scale pods": 2, "rolling restart": 1}),
    "tools": Lane(35, {"scale pods": 1, "rolling restart": 1}),
    "fragile": Lane(20, {"kill a pod": 2, "cut a pod off": 2, "freeze a pod": 1}),
    "routes": Lane(15, {"replace 20 hosts": 2, "move a route to another Service": 2, "change the weights of an HTTPRoute": 2, "add and remove an HTTPRoute": 1}),
    "certificates": Lane(25, {"renew the certificate": 2, "rotate the keys of TLS tickets": 1}),
    "policies": Lane(15, {"change a TrafficPolicy": 2, "change a RateLimitPolicy": 1, "change a SecurityPolicy": 1, "add and remove a Consumer": 1}),
    "replaced": Lane(60, {"take over the gateway": 1}),
    "control plane": Lane(60, {"restart the control plane": 2, "kill the control plane": 1}),
    "API server": Lane(100, {"take the API server away": 1}),
    "attacks": Lane(20, {f"attack: {name}": 1 for name in ATTACKS}),
}


@dataclass(frozen=True)
class Change:
    """A planned change: its time since the start, in seconds."""

    at: float
    lane: str
    kind: str
    seed: str


@dataclass
class Done:
    """A change that was made."""

    began: float
    """The time since the start of the load, in seconds."""
    lane: str
    kind: str
    about: str = ""
    took: float = 0.0
    error: str = ""


def plan(seed: int, seconds: float) -> list[Change]:
    """Returns the changes of a soak, by time. Each lane has at least one change."""
    found = []
    for name, lane in LANES.items():
        draw = random.Random(f"{seed}/{name}")
        last = seconds - min(seconds * LAST, LAST_SECONDS)
        at = draw.uniform(0.1, 1) * min(lane.gap, last / 2)
        bag: list[str] = []
        while at < last or not bag:
            if not bag:
                # A bag, so that each kind occurs before a kind occurs again and again.
                bag = [kind for kind, weight in lane.kinds.items() for _ in range(weight)]
                draw.shuffle(bag)
            kind = bag.pop()
            found.append(Change(at, name, kind, f"{seed}/{name}/{len(found)}"))
            at += draw.uniform(0.5, 1.5) * lane.gap
            if at >= last:
                break
    return sorted(found, key=lambda change: change.at)


class Changes:
    """Makes the planned changes. `done` lists the changes so far."""

    def __init__(self, soak: Soak, changes: list[Change], began: float, say: Callable[[str], None]) -> None:
        """`began`: the start of the load, as `time.monotonic`."""
        self.soak, self._began, self._say = soak, began, say
        self.done: list[Done] = []
        self._stop = threading.Event()
        self._hosts: list[str] = []
        self._moves, self._outages = 0, 0
        self._threads = [threading.Thread(target=self._run, args=([change for change in changes if change.lane == lane],), daemon=True) for lane in LANES]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Waits until all changes are made."""
        for thread in self._threads:
            while thread.is_alive():
                # With a timeout, so that a signal ends the wait.
                thread.join(0.5)

    def stop(self) -> None:
        """No further change begins."""
        self._stop.set()

    def _run(self, changes: list[Change]) -> None:
        for change in changes:
            if self._stop.wait(max(0.0, self._began + change.at - time.monotonic())):
                return
            self._make(change)

    def _make(self, change: Change) -> None:
        done = Done(time.monotonic() - self._began, change.lane, change.kind)
        draw = random.Random(change.seed)
        try:
            done.about = self._how(change, draw)
        except Exception as error:  # A failed change must not end its lane: the verdict reports the change.
            done.error = f"{type(error).__name__}: {error}"
        done.took = time.monotonic() - self._began - done.began
        if not self._stop.is_set():
            self.done.append(done)
            self._say(f"{done.began:7.1f} s  {done.kind}: {done.about}  {done.took:.1f} s{'  FAILED: ' + done.error if done.error else ''}")

    def _how(self, change: Change, draw: random.Random) -> str:
        soak = self.soak
        workloads = {"web": soak.web, "other": soak.other, "tools": soak.tools, "fragile": soak.fragile}
        match change.kind:
            case "scale pods":
                return self.scale(workloads[change.lane], draw.randint(2, 6 if change.lane == "web" else 4))
            case "rolling restart":
                return self.roll(workloads[change.lane])
            case "kill a pod" | "cut a pod off" | "freeze a pod":
                return self.die(change.kind, draw)
            case "replace 20 hosts":
                return self.hosts(draw)
            case "move a route to another Service":
                return self.move()
            case "change the weights of an HTTPRoute":
                return self.weights(draw)
            case "add and remove an HTTPRoute":
                return self.http_route(draw)
            case "renew the certificate":
                return self.certificate()
            case "rotate the keys of TLS tickets":
                soak.rotate_tickets()
                return "the old key still opens tickets"
            case "change a TrafficPolicy":
                return self.header(draw)
            case "change a RateLimitPolicy":
                soak.apply(soak.limit(draw.randint(500_000, 1_000_000)))
                return "the limit of the route with keys"
            case "change a SecurityPolicy":
                return self.security(draw)
            case "add and remove a Consumer":
                return self.consumer(draw)
            case "take over the gateway":
                return self.take_over()
            case "restart the control plane" | "kill the control plane":
                return self.control(signal.SIGKILL if change.kind.startswith("kill") else signal.SIGTERM)
            case "take the API server away":
                return self.away(draw.uniform(10, 60))
        return self.attack(change.kind.removeprefix("attack: "), draw)

    # Pods.

    def scale(self, workload: Workload, replicas: int) -> str:
        before = len(workload.pods)
        if replicas == before:
            replicas = before + 1
        if replicas < before:
            # Kubernetes prefers young pods, and the lane has no two changes at once.
            workload.remove(workload.pods[replicas:])
        else:
            for _ in range(replicas - before):
                workload.start()
            with self.soak.gate.open():
                workload.publish()
        return f"{workload.name} from {before} to {replicas}"

    def roll(self, workload: Workload) -> str:
        old = list(workload.pods)
        for each in old:
            workload.start()
            with self.soak.gate.open():
                workload.publish()
            workload.remove([each])
        return f"{len(old)} pods of {workload.name}"

    def die(self, how: str, draw: random.Random) -> str:
        """A pod fails without notice: killed, so that its address refuses connects; cut off, so that its address drops packets; or frozen, so that it
        accepts connects and does not respond. The slices follow seconds later, as they do after a failed probe."""
        workload = self.soak.fragile
        victim: Pod = draw.choice(workload.pods)
        if how == "cut a pod off":
            workload.drop(victim)
        victim.running.send(signal.SIGSTOP if how == "freeze a pod" else signal.SIGKILL)
        time.sleep(draw.uniform(2, 8))
        victim.conditions = {"ready": False, "serving": False, "terminating": False}
        with self.soak.gate.open():
            workload.publish()
        victim.running.kill()
        workload.start()
        workload.forget([victim])
        return victim.name

    # Routes, certificates and policies.

    def number(self, draw: random.Random) -> str:
        return f"{draw.randrange(16 ** 8):08x}"

    def hosts(self, draw: random.Random) -> str:
        """New Ingresses, which the gateways must serve; the previous ones go."""
        added = [f"host-{self.number(draw)}" for _ in range(20)]
        self.soak.apply(*(ingress(NAMESPACE, name, f"{name}.soak.test", tls="web") for name in added))
        for name in added[::10]:
            self.soak.serves(f"{name}.soak.test")
        self.soak.delete(*(ingress(NAMESPACE, name, "") for name in self._hosts))
        removed, self._hosts = len(self._hosts), added
        return f"20 new, {removed} removed"

    def move(self) -> str:
        self._moves += 1
        to = ("web", "other")[self._moves % 2]
        self.soak.apply(ingress(NAMESPACE, "moved", "moved.soak.test", to))
        self.soak.serves("moved.soak.test", pods=to)
        return f"to {to}"

    def weights(self, draw: random.Random) -> str:
        share = draw.randint(1, 99)
        self.soak.apply(self.soak.route({"web": share, "other": 100 - share}))
        return f"{share} : {100 - share}"

    def http_route(self, draw: random.Random) -> str:
        name = f"route-{self.number(draw)}"
        made = self.soak.route({"web": 1})
        made["metadata"]["name"], made["spec"]["hostnames"] = name, [f"{name}.soak.test"]
        self.soak.apply(made)
        self.soak.serves(f"{name}.soak.test", ROUTES)
        self.soak.delete(made)
        return name

    def certificate(self) -> str:
        made = self.soak.certificate()
        wanted = ssl.PEM_cert_to_DER_cert(base64.b64decode(made["data"]["tls.crt"]).decode())
        self.soak.apply(made)

        def presented(gateway: Plane) -> bool:
            with self.soak.cluster.namespace.inside():
                plain = socket.create_connection((gateway.address, HTTPS), timeout=15)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(plain, server_hostname="web.soak.test") as connection:
                return connection.getpeercert(binary_form=True) == wanted

        self.soak.everywhere(presented, "the new certificate")
        return "presented by each gateway"

    def header(self, draw: random.Random) -> str:
        value = self.number(draw)
        self.soak.apply(self.soak.header(value))
        self.soak.everywhere(lambda gateway: gateway.ask("/", "policy.soak.test", HTTP)[2].get("X-Soak") == value, f"the header {value}")
        return "each gateway sends the new header"

    def security(self, draw: random.Random) -> str:
        """The route with keys accepts a second header for keys, or no longer."""
        names = ["X-API-Key", "X-Other-Key"][:draw.randint(1, 2)]
        sources = [{"header": {"name": name}} for name in names]
        self.soak.apply({"apiVersion": VERSION, "kind": "SecurityPolicy", "metadata": metadata(NAMESPACE, "key"), "spec": {
            "targetRefs": [{"group": "networking.k8s.io", "kind": "Ingress", "name": "key"}], "authentication": {"apiKey": {"from": sources}}}})
        return f"keys in {' and '.join(names)}"

    def consumer(self, draw: random.Random) -> str:
        """A new caller, whose key each gateway accepts, and later rejects."""
        name = f"caller-{self.number(draw)}"
        key = secret(NAMESPACE, name, {"key": f"key-of-{name}".encode()})
        caller = {"apiVersion": VERSION, "kind": "Consumer", "metadata": metadata(NAMESPACE, name), "spec": {"apiKeys": [{"secretRef": {"name": name}}]}}

        def awaits(status: int) -> None:
            self.soak.everywhere(lambda gateway: gateway.ask("/", "key.soak.test", HTTP, {"X-API-Key": f"key-of-{name}"})[0] == status, f"{status} for {name}")

        self.soak.apply(key, caller)
        awaits(200)
        self.soak.delete(caller, key)
        awaits(401)
        return name

    # Processes.

    def take_over(self) -> str:
        """A new process takes over the sockets, and the old process drains and exits with 0."""
        plane = self.soak.replaced
        old = plane.running
        assert old
        with self.soak.gate.open():
            new = plane.start()
            wait_until(lambda: "draining" in old.output() or not old.running or not new.running, "the old process to drain", PATIENCE, 0.1)
        code = old.wait(60)
        if code or not new.running:
            raise ClusterError(f"the old process exited with {code}; the new process {'runs' if new.running else 'ended'}")
        plane.await_ready()
        return f"process {plane.generation}"

    def control(self, how: signal.Signals) -> str:
        plane = self.soak.control
        assert plane.running
        with self.soak.gate.open():
            plane.running.send(how)
            code = plane.running.wait(60)
            if code != (0 if how is signal.SIGTERM else -how):
                raise ClusterError(f"the control plane exited with {code}")
            plane.start()
            plane.await_ready()
            wait_until(lambda: self.soak.data.metrics().get("sluicegate_control_connected") == 1, "the data plane to connect", PATIENCE, 0.2)
        return how.name

    def away(self, seconds: float) -> str:
        with self.soak.gate.closed():
            self.soak.cluster.kill("kube-apiserver")
            time.sleep(seconds)
            self.soak.cluster.start("kube-apiserver")
            self._outages += 1
            back = time.monotonic()
            self.soak.in_step(f"back-{self._outages}")
        return f"for {seconds:.0f} s; each gateway in step after {time.monotonic() - back:.1f} s"

    def attack(self, name: str, draw: random.Random) -> str:
        gateway, seconds = draw.choice(self.soak.gateways), draw.uniform(3, 8)
        running = self.soak.popen([sys.executable, str(HERE / "attack.py"), name, "--gateway", gateway.address, "--seconds", f"{seconds:.1f}"],
                                  self.soak.logs / f"attacks/{name}.log")
        if code := running.wait(60):
            raise ClusterError(f"the attack exited with {code}: {running.output()[-500:]}")
        return f"{gateway.name} for {seconds:.0f} s"
