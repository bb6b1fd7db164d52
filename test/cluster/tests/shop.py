"""What tests on two nodes share: a shop of several pods, and Sluicegate before it as a Deployment behind a Service."""

import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Api, wait_until
from harness.processes import checked

from .gateway import NAMESPACE, PATIENCE, Gateway, backend, ingress, well

SHOP = "https://shop.example.com/"


def keep_journals(deployment: dict[str, Any], folder: Path) -> None:
    """Lets each pod of the lab's back end write what it is given that must not come twice into a file of its own, which outlives it."""
    folder.mkdir()
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container["args"] += ["--journal", "/journals/$(POD)"]
    container["env"] = [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    container["volumeMounts"] = [{"name": "journals", "mountPath": "/journals"}]
    pod["volumes"] = [{"name": "journals", "hostPath": {"path": str(folder)}}]


@dataclass
class Returned:
    """How the gateway came back after the API server did, in seconds."""

    served: float
    """Until each of its pods served a new Ingress that was made right then."""
    in_step: float
    """Until each of its pods had the endpoints that the slices have."""


class Shop(Gateway):
    """Seven back ends or five, two pods of Sluicegate with the chart's own times, and a stable address: that of the Service."""

    nodes = 2
    journals: Path
    """A file for each back end, with the ids of the POSTs that it was delivered."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.address = "203.0.113.80"
        cls.install(service={"type": "NodePort", "clusterIP": cls.address})
        cls.cluster.apply(cls.authority.secret("shop", "shop.example.com"))
        cls.journals = cls.cluster.folder.path / "journals"
        shop = backend("shop", 5)
        keep_journals(shop[0], cls.journals)
        cls.follow([*shop, ingress("shop", "shop.example.com / Prefix shop", tls={"shop": ["shop.example.com"]})])

    def setUp(self) -> None:
        # What the last test left is over.
        self.rolled_out("deployment/sluicegate", NAMESPACE)
        self.rolled_out("deployment/shop")
        self.endpoints_are_in_step()
        self.answers(well, SHOP)

    def endpoints_are_in_step(self) -> None:
        """Waits until the slices have the pods that there are, and no others."""

        def same() -> bool:
            pods = self.shops()
            return len(pods) == 5 and self.ready_shops() == {pod["status"].get("podIP") for pod in pods}

        wait_until(same, "the endpoints to be the pods", PATIENCE, 0.2)

    def shops(self) -> list[dict[str, Any]]:
        """The pods of the back end."""
        found: list[dict[str, Any]] = self.cluster.json("get", "pods", "--selector=app=shop")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def ready_shops(self) -> set[str]:
        """The addresses of the back ends that are ready, as the slices say."""
        slices = self.cluster.json("get", "endpointslices", "--selector=kubernetes.io/service-name=shop")["items"]
        return {address for each in slices for endpoint in each.get("endpoints") or [] if endpoint["conditions"]["ready"]
                for address in endpoint["addresses"]}

    def outlive_api_server(self, away: float) -> Returned:
        """Lets back ends die while there is no API server for so many seconds, and tells how the gateway came back."""
        silent, refusing, late, *_ = self.shops()
        processes = {pod["metadata"]["name"]: self.process(pod) for pod in (silent, refusing, late)}
        kubelets = [f"{node.name}/kubelet" for node in self.cluster.nodes]
        for kubelet in kubelets:
            self.addCleanup(self.cluster.resume, kubelet)
        self.addCleanup(self.cluster.start, "kube-apiserver")
        self.cluster.kill("kube-apiserver")
        # Where there are several of each, these end when they cannot renew their Lease, and start anew. One that went on would
        # take all nodes for lost as soon as the API server is back, before it has heard of a node again.
        ending = ["kube-controller-manager", "kube-scheduler"]
        for part in ending:
            self.addCleanup(self.cluster.start, part)
            self.cluster.kill(part)
        # They would start containers again.
        for kubelet in kubelets:
            self.cluster.pause(kubelet)
        time.sleep(5)
        # The address of one swallows packets from now on, and that of the other refuses.
        of_silent = processes[silent["metadata"]["name"]]
        checked(["nsenter", f"--target={of_silent.pid}", "--net", "ip", "link", "set", "eth0", "down"])
        of_silent.send(signal.SIGKILL)
        processes[refusing["metadata"]["name"]].send(signal.SIGKILL)
        # What is awaited is nothing but the time.
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
        # The others ask again once a minute by now, unless they are started again.
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
        """Makes an Ingress, and returns after how many seconds each pod of the gateway served it."""
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
        """Waits until each pod of the gateway has the endpoints that the slices have; returns how long since a moment."""
        pods = [pod["status"]["podIP"] for pod in self.pods()]

        def same() -> bool:
            return all(self.ready_in(pod) == self.ready_shops() for pod in pods)

        wait_until(same, "the gateway to be in step with the slices", PATIENCE, 0.05)
        return time.monotonic() - since

    def ready_in(self, pod: str) -> set[str]:
        """The addresses of the back ends that are ready, as a pod of the gateway says."""
        (shop,) = [each for each in json.loads(self.ask(f"http://{pod}:9901/upstreams", address=pod).body)
                   if each["upstream"].startswith("default/shop:")]
        return {each["address"].rpartition(":")[0] for each in shop["endpoints"] if each["ready"]}
