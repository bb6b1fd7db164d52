"""Tests of Sluicegate as a DaemonSet on the network of the nodes. A new pod takes over the sockets of the old pod."""

import signal
import time
import unittest
from typing import Any

from harness import wait_until
from harness.paths import CLUSTER
from images import standard

from .gateway import NAMESPACE, PATIENCE, Gateway, Load, Tunnel, backend, ingress, lost, ready, restarted, well

SHOP = "https://shop.example.com/"
ECHO = "sluicegate.dev/cluster/echo:1"


class Nodes(Gateway):
    """Ports 80 and 443 of two nodes."""

    nodes = 2

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.address = "198.51.100.1"
        cls.install(kind="DaemonSet", hostNetwork=True, service={"enabled": False}, status={"source": "Nodes"},
                    shutdown={"graceSeconds": 3, "idleSeconds": 3, "timeoutSeconds": 12})
        cls.cluster.apply(cls.authority.secret("shop", "shop.example.com"))
        cls.follow([*backend("shop", 3), ingress("shop", "shop.example.com / Prefix shop", tls={"shop": ["shop.example.com"]})])

    def setUp(self) -> None:
        self.rolled_out("daemonset/sluicegate", NAMESPACE)
        for node in self.cluster.nodes:
            self.answers(well, SHOP, address=node.address)

    def test_takeover_by_the_new_pod_of_a_node_loses_no_request(self) -> None:
        before = {pod["metadata"]["name"] for pod in self.pods()}
        with self.load(posts=10):
            self.cluster.kubectl("rollout", "restart", "daemonset/sluicegate", "--namespace", NAMESPACE)
            self.rolled_out("daemonset/sluicegate", NAMESPACE)
        after = {pod["metadata"]["name"] for pod in self.pods()}
        self.assertEqual(len(after), 2)
        self.assertTrue(before.isdisjoint(after))

    def test_old_pod_finishes_its_request_in_flight_and_closes_the_connection(self) -> None:
        (old,) = [pod for pod in self.pods() if pod["spec"]["nodeName"] == "node-1"]
        slow = self.cluster.popen(["curl", "--silent", "--show-error", "--include", "--http1.1", "--cacert", str(self.authority.file),
                                   "--connect-to", f"::{self.address}:", f"{SHOP}?t=6000"], name="slow")
        self.cluster.kubectl("delete", "pod", old["metadata"]["name"], "--namespace", NAMESPACE, "--wait=false")
        self.assertEqual(slow.wait(PATIENCE), 0, slow.output())
        self.assertIn("200 OK", slow.output())
        self.assertIn("connection: close", slow.output().lower())

    def test_tunnel_survives_changes_of_endpoints_and_ends_with_its_gateway(self) -> None:
        echo = backend("echo", 2)
        (container,) = echo[0]["spec"]["template"]["spec"]["containers"]
        container |= {"image": ECHO, "args": []}
        self.cluster.import_image(standard.compiled(CLUSTER / "tests/echo.c", ECHO, self.folder))
        self.follow([*echo, ingress("echo", "shop.example.com /echo Prefix echo", tls={"shop": ["shop.example.com"]})])
        self.addCleanup(self.cluster.kubectl, "delete", "ingress/echo", "service/echo", "deployment/echo")
        self.answers(well, f"{SHOP}echo")
        tunnel = Tunnel(self.cluster, self.address, self.authority, "shop.example.com", "/echo")
        self.addCleanup(tunnel.close)

        def pods() -> dict[str, dict[str, Any]]:
            tunnel.echo()
            found = self.cluster.json("get", "pods", "--selector=app=echo")["items"]
            return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

        def scale(replicas: int) -> None:
            self.cluster.kubectl("scale", "deployment/echo", f"--replicas={replicas}")
            wait_until(lambda: len(pods()) == replicas and all(map(ready, pods().values())), f"{replicas} pods", PATIENCE, 0.1)

        # The pod of the tunnel is removed last.
        self.cluster.kubectl("annotate", "pod", tunnel.pod, "controller.kubernetes.io/pod-deletion-cost=100")
        scale(4)
        other = next(pod for name, pod in pods().items() if name != tunnel.pod)
        self.process(other).send(signal.SIGKILL)
        wait_until(lambda: restarted(pods()[other["metadata"]["name"]]), "the pod to be restarted", PATIENCE, 0.1)
        scale(1)
        self.assertEqual(set(pods()), {tunnel.pod})

        (old,) = [pod for pod in self.pods() if pod["spec"]["nodeName"] == "node-1"]
        started = time.monotonic()
        self.cluster.kubectl("delete", "pod", old["metadata"]["name"], "--namespace", NAMESPACE, "--wait=false")
        for _ in range(10):
            tunnel.echo()
            time.sleep(0.5)
        self.assertTrue(tunnel.ended(), "the tunnel was cut off")
        print(f"  its gateway told to end, the tunnel stayed for {time.monotonic() - started:.1f} s", flush=True)
        self.answers(well, f"{SHOP}echo")

    def test_killed_process_drops_its_connections_and_restarts(self) -> None:
        (pod,) = [pod for pod in self.pods() if pod["spec"]["nodeName"] == "node-1"]
        options = ["--cacert", str(self.authority.file), "--rate", "100", "--connections", "20"]
        here = Load(self.cluster, "killed", SHOP, "--connect-to", "198.51.100.1:443", *options)
        there = Load(self.cluster, "other-node", SHOP, "--connect-to", "198.51.100.2:443", *options)
        process = self.process(pod)
        started = time.monotonic()
        process.send(signal.SIGKILL)
        wait_until(lambda: not process.running, "the process to end")
        self.answers(well, SHOP)
        took = time.monotonic() - started
        counted, beside = here.stop(), there.stop()
        print(f"  killed: served again after {took:.1f} s; of {counted['requests']['sent']} requests lost: {lost(counted)}", flush=True)
        self.assertEqual(lost(beside), {}, "the other node")
        self.assertLessEqual(set(lost(counted)) - {"unsent"}, {
            "read_closed", "read_reset", "write", "connect_refused", "connect_other", "tls_closed", "tls_handshake", "read_truncated",
        }, "what is lost other than connections")
        self.answers(well, SHOP)


if __name__ == "__main__":
    unittest.main()
