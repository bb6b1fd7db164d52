"""Everything changes while requests come: Sluicegate as a Deployment behind a Service, on two nodes."""

import json
import signal
import time
import unittest
from typing import Any

from harness import wait_until
from harness.processes import checked

from .gateway import NAMESPACE, PATIENCE, Gateway, backend, ingress, well

SHOP = "https://shop.example.com/"


class Changes(Gateway):
    """Seven back ends or five, two pods of Sluicegate with the chart's own times, and a stable address: that of the Service."""

    nodes = 2

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.address = "203.0.113.80"
        cls.install(service={"type": "NodePort", "clusterIP": cls.address})
        cls.cluster.apply(cls.authority.secret("shop", "shop.example.com"))
        cls.follow([*backend("shop", 5), ingress("shop", "shop.example.com / Prefix shop", tls={"shop": ["shop.example.com"]})])

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

    def test_a_rolling_update_of_the_gateway_loses_no_request(self) -> None:
        before = {pod["metadata"]["name"] for pod in self.pods()}
        with self.load(posts=10):
            self.cluster.kubectl("rollout", "restart", "deployment/sluicegate", "--namespace", NAMESPACE)
            self.rolled_out("deployment/sluicegate", NAMESPACE)
        after = {pod["metadata"]["name"] for pod in self.pods()}
        self.assertEqual(len(after), 2)
        self.assertTrue(before.isdisjoint(after))

    def test_back_ends_are_scaled_and_replaced_without_a_lost_request(self) -> None:
        before = {pod["metadata"]["name"] for pod in self.shops()}
        with self.load():
            for replicas in [7, 5]:
                self.cluster.kubectl("scale", "deployment/shop", f"--replicas={replicas}")
                self.rolled_out("deployment/shop")
            self.cluster.kubectl("rollout", "restart", "deployment/shop")
            self.rolled_out("deployment/shop")
        self.assertTrue(before.isdisjoint({pod["metadata"]["name"] for pod in self.shops()}))

    def test_a_node_is_drained_without_a_lost_request(self) -> None:
        self.addCleanup(self.cluster.kubectl, "uncordon", "node-2")
        # Whoever has all pods on one node and no such budget is left without any.
        self.cluster.kubectl("create", "poddisruptionbudget", "shop", "--selector=app=shop", "--min-available=3")
        self.addCleanup(self.cluster.kubectl, "delete", "poddisruptionbudget/shop")
        with self.load():
            self.cluster.kubectl("drain", "node-2", "--ignore-daemonsets", "--force", f"--timeout={PATIENCE}s")
            self.rolled_out("deployment/sluicegate", NAMESPACE)
            self.rolled_out("deployment/shop")
        self.assertEqual({pod["spec"]["nodeName"] for pod in [*self.pods(), *self.shops()]}, {"node-1"})

    def test_pods_deleted_while_their_kubelet_stands_still_cost_no_request(self) -> None:
        # A restart spreads them over the nodes again.
        self.cluster.kubectl("rollout", "restart", "deployment/shop")
        self.rolled_out("deployment/shop")
        self.endpoints_are_in_step()
        deleted = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in self.shops() if pod["spec"]["nodeName"] == "node-2"}
        self.assertTrue(deleted, "no back end is on node-2")
        self.addCleanup(self.cluster.resume, "node-2/kubelet")
        with self.load():
            self.cluster.pause("node-2/kubelet")
            self.cluster.kubectl("delete", "pods", *deleted, "--wait=false")
            wait_until(lambda: not self.ready_shops() & set(deleted.values()), "the endpoints to go", PATIENCE, 0.2)
            took = self.served("meanwhile")
            print(f"  while a kubelet stands still a new Ingress is served in {took:.2f} s", flush=True)
            self.cluster.resume("node-2/kubelet")
            self.rolled_out("deployment/shop")
            self.endpoints_are_in_step()

    def test_back_ends_that_die_while_the_api_server_is_away_cost_no_request(self) -> None:
        silent, refusing, *_ = self.shops()
        processes = {pod["metadata"]["name"]: self.process(pod) for pod in (silent, refusing)}
        kubelets = [f"{node.name}/kubelet" for node in self.cluster.nodes]
        for kubelet in kubelets:
            self.addCleanup(self.cluster.resume, kubelet)
        self.addCleanup(self.cluster.start, "kube-apiserver")
        with self.load():
            self.cluster.kill("kube-apiserver")
            # They would start containers again.
            for kubelet in kubelets:
                self.cluster.pause(kubelet)
            time.sleep(5)
            # The address of one swallows packets from now on, and that of the other refuses.
            checked(["nsenter", f"--target={processes[silent['metadata']['name']].pid}", "--net", "ip", "link", "set", "eth0", "down"])
            for process in processes.values():
                process.send(signal.SIGKILL)
            # A minute without an API server; what is awaited is nothing but the time.
            time.sleep(55)
            for kubelet in kubelets:
                self.cluster.resume(kubelet)
            self.cluster.start("kube-apiserver")
            took = self.served("returned")
            print(f"  after the API server's return a new Ingress is served in {took:.2f} s", flush=True)
            # Kubernetes' own parts ask again once a minute by now, unless they are started again.
            for part in ["kube-controller-manager", "kube-scheduler", *(f"{node.name}/kube-proxy" for node in self.cluster.nodes)]:
                self.cluster.kill(part)
                self.cluster.start(part)
            self.cluster.kubectl("delete", "pod", silent["metadata"]["name"])
            self.endpoints_are_in_step()

    def test_a_certificate_is_replaced_without_a_lost_request(self) -> None:
        def serial() -> str:
            shown = self.cluster.run(["sh", "-c", f"openssl s_client -connect {self.address}:443 -servername shop.example.com </dev/null"
                                      " 2>/dev/null | openssl x509 -noout -serial"])
            return shown.stdout

        with self.load():
            for _ in range(3):
                before = serial()
                secret = self.authority.secret("shop", "shop.example.com")
                self.cluster.kubectl("patch", "secret/shop", "--type=merge", "--patch", json.dumps({"data": secret["data"]}))
                # Both pods have it once a dozen connections in turn are shown another.
                wait_until(lambda: all(serial() != before for _ in range(12)), "the new certificate", PATIENCE, 0.1)

    def test_another_pod_writes_status_when_the_writer_is_killed(self) -> None:
        (writer,) = [pod for pod in self.pods() if pod["metadata"]["name"] == self.holder()]
        kubelet = f"{writer['spec']['nodeName']}/kubelet"
        # It would start the container again, and the pod of the same name holds the Lease still.
        self.cluster.pause(kubelet)
        self.addCleanup(self.cluster.resume, kubelet)
        self.process(writer).send(signal.SIGKILL)
        took = self.status_is_written("written", self.address)
        print(f"  after the writer's death the status of a new Ingress is written in {took:.1f} s", flush=True)
        self.assertNotEqual(self.holder(), writer["metadata"]["name"])


if __name__ == "__main__":
    unittest.main()
