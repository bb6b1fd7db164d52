"""The common part of tests on two nodes: a shop of several pods, and Sluicegate as a Deployment behind a Service."""

import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Api, wait_until
from harness.addresses import CHOSEN_SERVICES
from harness.processes import checked

from .gateway import NAMESPACE, PATIENCE, Gateway, backend, ingress, well

SHOP = "https://shop.example.com/"


def keep_journals(deployment: dict[str, Any], folder: Path) -> None:
    """Configures each pod of the lab's backend to write the ids of POSTs to a file, which survives the pod."""
    folder.mkdir()
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container["args"] += ["--journal", "/journals/$(POD)"]
    container["env"] = [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    container["volumeMounts"] = [{"name": "journals", "mountPath": "/journals"}]
    pod["volumes"] = [{"name": "journals", "hostPath": {"path": str(folder)}}]


@dataclass
class Returned:
    """The delays of the gateway after the return of the API server, in seconds."""

    served: float
    """The time until each pod served a new Ingress."""
    in_step: float
    """The time until each pod had the endpoints of the slices."""


class Shop(Gateway):
    """Five or seven backends, two pods of Sluicegate with the times of the chart, and the address of the Service."""

    nodes = 2
    journals: Path
    """A file for each backend, with the ids of the POSTs that it received."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.address = CHOSEN_SERVICES[0]
        cls.install(service={"type": "NodePort", "clusterIP": cls.address})
        cls.cluster.apply(cls.authority.secret("shop", "shop.example.com"))
        cls.journals = cls.cluster.folder.path / "journals"
        shop = backend("shop", 5)
        keep_journals(shop[0], cls.journals)
        cls.follow([*shop, ingress("shop", "shop.example.com / Prefix shop", tls={"shop": ["shop.example.com"]})])

    def setUp(self) -> None:
        # The changes of the previous test have ended.
        self.rolled_out("deployment/sluicegate", NAMESPACE)
        self.rolled_out("deployment/shop")
        self.endpoints_are_in_step()
        self.answers(well, SHOP)

    def endpoints_are_in_step(self) -> None:
        """Waits until the slices contain exactly the existing pods."""

        def same() -> bool:
            pods = self.shops()
            return len(pods) == 5 and self.ready_shops() == {pod["status"].get("podIP") for pod in pods}

        wait_until(same, "the endpoints to be the pods", PATIENCE, 0.2)

    def shops(self) -> list[dict[str, Any]]:
        """Returns the pods of the backend."""
        found: list[dict[str, Any]] = self.cluster.json("get", "pods", "--selector=app=shop")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def ready_shops(self) -> set[str]:
        """Returns the addresses of the ready backends according to the slices."""
        slices = self.cluster.json("get", "endpointslices", "--selector=kubernetes.io/service-name=shop")["items"]
        return {address for each in slices for endpoint in each.get("endpoints") or [] if endpoint["conditions"]["ready"]
                for address in endpoint["addresses"]}

    def outlive_api_server(self, away: float) -> Returned:
        """Kills backends during an outage of the API server of this many seconds. Returns the delays of the gateway after the outage."""
        silent, refusing, late, *_ = self.shops()
        processes = {pod["metadata"]["name"]: self.process(pod) for pod in (silent, refusing, late)}
        kubelets = [f"{node.name}/kubelet" for node in self.cluster.nodes]
        for kubelet in kubelets:
            self.addCleanup(self.cluster.resume, kubelet)
        self.addCleanup(self.cluster.start, "kube-apiserver")
        self.cluster.kill("kube-apiserver")
        # With several replicas, these processes end when they cannot renew their Lease. A process that continued would
        # declare all nodes lost when the API server returns, before a node has reported.
        ending = ["kube-controller-manager", "kube-scheduler"]
        for part in ending:
            self.addCleanup(self.cluster.start, part)
            self.cluster.kill(part)
        # The kubelets would restart the containers.
        for kubelet in kubelets:
            self.cluster.pause(kubelet)
        time.sleep(5)
        # From now on, one address drops packets, and the other address refuses connections.
        of_silent = processes[silent["metadata"]["name"]]
        checked(["nsenter", f"--target={of_silent.pid}", "--net", "ip", "link", "set", "eth0", "down"])
        of_silent.send(signal.SIGKILL)
        processes[refusing["metadata"]["name"]].send(signal.SIGKILL)
        # The test waits for the given duration, not for a condition.
        time.sleep(away / 2)
        processes[late["metadata"]["name"]].send(signal.SIGKILL)
        time.sleep(away / 2 - 5)
        for kubelet in kubelets:
            self.cluster.resume(kubelet)
        self.cluster.start("kube-apiserver")
        back = time.monotonic()
        served = self.served_by_each("returned")
        in_step = self.in_step(back)
        print(f"  after {away:.0f} s without an API server a new Ingress is served by all in {served:.2f} s, and the endpoints are"
              f" those of the slices {in_step:.2f} s after its return", flush=True)
        # The pause between the retries of the other processes has grown to a minute, so the test restarts the
        # processes.
        for node in self.cluster.nodes:
            self.cluster.kill(f"{node.name}/kube-proxy")
            ending.append(f"{node.name}/kube-proxy")
        for part in ending:
            self.cluster.start(part)
        self.cluster.kubectl("delete", "pod", silent["metadata"]["name"])
        self.endpoints_are_in_step()
        self.in_step(time.monotonic())
        return Returned(served, in_step)

    def served_by_each(self, name: str) -> float:
        """Creates an Ingress, and returns the seconds until each pod of the gateway serves it."""
        made = ingress(name, f"{name}.example.com / Prefix shop")
        pods = [pod["status"]["podIP"] for pod in self.pods()]
        api = Api(self.cluster)
        started = time.monotonic()
        api.create(made)
        self.addCleanup(api.delete, made)
        for pod in pods:
            self.answers(well, f"http://{name}.example.com:8080/", address=pod)
        return time.monotonic() - started

    def in_step(self, since: float) -> float:
        """Waits until each pod of the gateway has the endpoints of the slices. Returns the seconds since the given time."""
        pods = [pod["status"]["podIP"] for pod in self.pods()]

        def same() -> bool:
            return all(self.ready_in(pod) == self.ready_shops() for pod in pods)

        wait_until(same, "the gateway to be in step with the slices", PATIENCE, 0.05)
        return time.monotonic() - since

    def ready_in(self, pod: str) -> set[str]:
        """Returns the addresses of the ready backends according to a pod of the gateway."""
        (shop,) = [each for each in json.loads(self.ask(f"http://{pod}:9901/upstreams", address=pod).body)
                   if each["upstream"].startswith("default/shop:")]
        return {each["address"].rpartition(":")[0] for each in shop["endpoints"] if each["ready"]}
