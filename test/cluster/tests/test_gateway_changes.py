"""Tests of changes under load: Sluicegate as a Deployment behind a Service, on two nodes."""

import json
import signal
import unittest

from harness import wait_until

from .gateway import NAMESPACE, PATIENCE, Load, lost, restarted
from .shop import SHOP, Shop


class Changes(Shop):
    """Each test changes one part under load."""

    def test_rolling_update_of_the_gateway_loses_no_request(self) -> None:
        before = {pod["metadata"]["name"] for pod in self.pods()}
        with self.load(posts=10):
            self.cluster.kubectl("rollout", "restart", "deployment/sluicegate", "--namespace", NAMESPACE)
            self.rolled_out("deployment/sluicegate", NAMESPACE)
        after = {pod["metadata"]["name"] for pod in self.pods()}
        self.assertEqual(len(after), 2)
        self.assertTrue(before.isdisjoint(after))

    def test_scaled_and_replaced_endpoints_lose_no_request(self) -> None:
        before = {pod["metadata"]["name"] for pod in self.shops()}
        with self.load():
            for replicas in [7, 5]:
                self.cluster.kubectl("scale", "deployment/shop", f"--replicas={replicas}")
                self.rolled_out("deployment/shop")
            self.cluster.kubectl("rollout", "restart", "deployment/shop")
            self.rolled_out("deployment/shop")
        self.assertTrue(before.isdisjoint({pod["metadata"]["name"] for pod in self.shops()}))

    def test_drained_nodes_lose_no_request(self) -> None:
        # With all pods on one node and without a PodDisruptionBudget, a drain would end all pods.
        self.cluster.kubectl("create", "poddisruptionbudget", "shop", "--selector=app=shop", "--min-available=3")
        self.addCleanup(self.cluster.kubectl, "delete", "poddisruptionbudget/shop")
        with self.load():
            for drained, other in [("node-2", "node-1"), ("node-1", "node-2")]:
                self.addCleanup(self.cluster.kubectl, "uncordon", drained)
                self.cluster.kubectl("drain", drained, "--ignore-daemonsets", "--force", f"--timeout={PATIENCE}s")
                self.rolled_out("deployment/sluicegate", NAMESPACE)
                self.rolled_out("deployment/shop")
                self.assertEqual({pod["spec"]["nodeName"] for pod in [*self.pods(), *self.shops()]}, {other})
                self.cluster.kubectl("uncordon", drained)

    def test_endpoints_deleted_by_force_lose_no_request(self) -> None:
        # Responses take 100 ms, so each pod dies with requests in flight.
        with self.load(f"{SHOP}?t=100"):
            for _ in range(2):
                deleted = [pod["metadata"]["name"] for pod in self.shops()[:2]]
                self.cluster.kubectl("delete", "pods", *deleted, "--force", "--grace-period=0")
                self.rolled_out("deployment/shop")
                self.endpoints_are_in_step()

    def test_posts_are_never_delivered_twice_when_endpoints_die(self) -> None:
        options = ["--connect-to", f"{self.address}:443", "--cacert", str(self.authority.file), "--posts", "100", "--connections", "10"]
        before = set(self.journal())
        with self.load():
            # Responses take 50 ms, so each pod dies with requests in flight.
            loads = [Load(self.cluster, "posts", f"{SHOP}?t=50", "--rate", "100", *options),
                     Load(self.cluster, "posts-http2", f"{SHOP}?t=50", "--rate", "100", "--h2", "--streams", "5", *options)]
            for pod in self.shops()[:4]:
                self.process(pod).send(signal.SIGKILL)
                name = pod["metadata"]["name"]
                wait_until(lambda name=name: restarted(self.cluster.json("get", f"pod/{name}")), f"{name} to be restarted", PATIENCE, 0.2)
            forced, *_ = self.shops()
            self.cluster.kubectl("delete", "pod", forced["metadata"]["name"], "--force", "--grace-period=0")
            self.rolled_out("deployment/shop")
            self.endpoints_are_in_step()
            counted = [load.stop() for load in loads]
        delivered = [request for request in self.journal() if request not in before]
        well = sum(each["statuses"].get("200", 0) for each in counted)
        failed = [lost(each) for each in counted]
        print(f"  of {sum(each['requests']['posts'] for each in counted)} POSTs {len(set(delivered))} were delivered, {well} answered,"
              f" and these failed: {failed}", flush=True)
        self.assertEqual(len(delivered), len(set(delivered)), "POSTs were delivered twice")
        # A POST that its endpoint may have received before it died has the response 502. Its connection stays open.
        self.assertLessEqual({kind for each in failed for kind in each}, {"status 502"})
        self.assertGreaterEqual(len(delivered), well)
        self.assertGreater(well, 0)

    def journal(self) -> list[str]:
        """Returns the ids of all POSTs that backends have received so far."""
        return [line for file in sorted(self.journals.iterdir()) for line in file.read_text().splitlines()]

    def test_pods_deleted_while_their_kubelet_is_paused_lose_no_request(self) -> None:
        # A restart distributes the pods over the nodes again.
        self.cluster.kubectl("rollout", "restart", "deployment/shop")
        self.rolled_out("deployment/shop")
        self.endpoints_are_in_step()
        deleted = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in self.shops() if pod["spec"]["nodeName"] == "node-2"}
        self.assertTrue(deleted, "no pod is on node-2")
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

    def test_endpoints_that_die_during_an_outage_of_the_api_server_lose_no_request(self) -> None:
        with self.load():
            self.outlive_api_server(60)

    def test_replaced_certificate_loses_no_request(self) -> None:
        def serial() -> str:
            shown = self.cluster.run(["sh", "-c", f"openssl s_client -connect {self.address}:443 -servername shop.example.com </dev/null"
                                      " 2>/dev/null | openssl x509 -noout -serial"])
            return shown.stdout

        with self.load():
            for _ in range(3):
                before = serial()
                secret = self.authority.secret("shop", "shop.example.com")
                self.cluster.kubectl("patch", "secret/shop", "--type=merge", "--patch", json.dumps({"data": secret["data"]}))
                # If a dozen consecutive connections receive the new certificate, both pods have it.
                wait_until(lambda: all(serial() != before for _ in range(12)), "the new certificate", PATIENCE, 0.1)

    def test_another_pod_writes_status_after_the_writer_is_killed(self) -> None:
        writer = self.writer()
        kubelet = f"{writer['spec']['nodeName']}/kubelet"
        # The kubelet would restart the container, and the pod with the same name would still hold the Lease.
        self.cluster.pause(kubelet)
        self.addCleanup(self.cluster.resume, kubelet)
        self.process(writer).send(signal.SIGKILL)
        took = self.status_is_written("written", self.address)
        print(f"  after the writer's death the status of a new Ingress is written in {took:.1f} s", flush=True)
        self.assertNotEqual(self.writer()["metadata"]["name"], writer["metadata"]["name"])


if __name__ == "__main__":
    unittest.main()
