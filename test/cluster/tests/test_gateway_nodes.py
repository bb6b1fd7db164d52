"""Sluicegate as a DaemonSet on the network of nodes, where a new pod takes over the sockets of the old one."""

import signal
import time
import unittest

from harness import wait_until

from .gateway import NAMESPACE, PATIENCE, Gateway, Load, backend, ingress, lost, well

SHOP = "https://shop.example.com/"


class Nodes(Gateway):
    """Ports 80 and 443 of two nodes."""

    nodes = 2

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.address = "198.51.100.1"
        cls.install(kind="DaemonSet", hostNetwork=True, service={"enabled": False}, status={"source": "Nodes"},
                    shutdown={"graceSeconds": 3, "idleSeconds": 3, "timeoutSeconds": 30})
        cls.cluster.apply(cls.authority.secret("shop", "shop.example.com"))
        cls.follow([*backend("shop", 3), ingress("shop", "shop.example.com / Prefix shop", tls={"shop": ["shop.example.com"]})])

    def setUp(self) -> None:
        self.rolled_out("daemonset/sluicegate", NAMESPACE)
        for node in self.cluster.nodes:
            self.answers(well, SHOP, address=node.address)

    def test_the_new_pod_of_a_node_takes_over_without_a_lost_request(self) -> None:
        before = {pod["metadata"]["name"] for pod in self.pods()}
        with self.load(posts=10):
            self.cluster.kubectl("rollout", "restart", "daemonset/sluicegate", "--namespace", NAMESPACE)
            self.rolled_out("daemonset/sluicegate", NAMESPACE)
        after = {pod["metadata"]["name"] for pod in self.pods()}
        self.assertEqual(len(after), 2)
        self.assertTrue(before.isdisjoint(after))

    def test_a_request_under_way_is_finished_by_the_old_pod_and_its_connection_closed(self) -> None:
        (old,) = [pod for pod in self.pods() if pod["spec"]["nodeName"] == "node-1"]
        slow = self.cluster.popen(["curl", "--silent", "--show-error", "--include", "--http1.1", "--cacert", str(self.authority.file),
                                   "--connect-to", f"::{self.address}:", f"{SHOP}?t=6000"], name="slow")
        self.cluster.kubectl("delete", "pod", old["metadata"]["name"], "--namespace", NAMESPACE, "--wait=false")
        self.assertEqual(slow.wait(PATIENCE), 0, slow.output())
        self.assertIn("200 OK", slow.output())
        self.assertIn("connection: close", slow.output().lower())

    def test_a_killed_process_takes_its_connections_with_it_and_is_started_again(self) -> None:
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
