"""Tests of the harness with real pods."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

from harness import Cluster, ClusterError, wait_until
from harness.cgroups import ControlGroup
from harness.machine import KUBELET_SYSCTLS
from harness.paths import CLUSTER
from harness.processes import Process, command
from images import standard
from images.image import Image

PROGRAM_SOURCE = CLUSTER / "tests/answer.c"
IMAGE = "sluicegate.dev/cluster/answer:1"
"""The image of a pod that responds to each connection at port 8080 with its name. With the argument `hang`, it ignores SIGTERM."""


def answer_image(folder: Path) -> Path:
    return standard.compiled(PROGRAM_SOURCE, IMAGE, folder)


def deployment(name: str, replicas: int, **pod: Any) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "answer", "image": IMAGE, "ports": [{"name": "tcp", "containerPort": 8080}],
                 "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}, **pod.pop("container", {})}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **pod}}},
    }


def service(name: str, node_port: int | None = None) -> dict[str, Any]:
    port: dict[str, Any] = {"port": 80, "targetPort": "tcp"}
    kind = "ClusterIP"
    if node_port:
        port["nodePort"], kind = node_port, "NodePort"
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": kind, "selector": {"app": name}, "ports": [port]}}


def ready_addresses(cluster: Cluster, name: str) -> set[str]:
    """Returns the ready addresses in the slices of the Service."""
    slices = cluster.json("get", "endpointslices", "--selector", f"kubernetes.io/service-name={name}")["items"]
    return {address for each in slices for endpoint in each.get("endpoints") or [] if endpoint["conditions"]["ready"]
            for address in endpoint["addresses"]}


def ask(cluster: Cluster, address: str, port: int) -> str:
    """Returns the response of a pod at an address, or an empty text."""
    script = f"exec 3<>/dev/tcp/{address}/{port} && cat <&3"
    return cluster.run(["timeout", "3", "bash", "-c", script], check=False).stdout


class Pods(unittest.TestCase):
    """A cluster of two nodes."""

    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.cluster = cls.enterClassContext(Cluster("test-pods", nodes=2))
        cls.cluster.import_image(answer_image(folder))

    def serve(self, name: str, replicas: int, node_port: int | None = None, **pod: Any) -> set[str]:
        """Deploys pods behind a Service, and returns their addresses."""
        self.cluster.apply(deployment(name, replicas, **pod), service(name, node_port))
        self.addCleanup(self.cluster.kubectl, "delete", f"deployment/{name}", f"service/{name}", "--wait=false")
        return self.await_ready(name, replicas)

    def await_ready(self, name: str, replicas: int) -> set[str]:
        def enough() -> set[str] | None:
            found = ready_addresses(self.cluster, name)
            return found if len(found) == replicas else None

        found = wait_until(enough, f"{replicas} ready endpoints of {name}", 60, 0.2)
        assert found is not None
        return found

    def test_pods_of_both_nodes_respond_and_slices_follow_a_scale(self) -> None:
        first = self.serve("scaled", 4)
        self.assertEqual({address.rpartition(".")[0] for address in first}, {"198.18.0", "198.18.1"})
        for address in first:
            self.assertIn("scaled-", ask(self.cluster, address, 8080))
        self.cluster.kubectl("scale", "deployment/scaled", "--replicas=6")
        self.assertLess(first, self.await_ready("scaled", 6))
        self.cluster.kubectl("scale", "deployment/scaled", "--replicas=1")
        self.await_ready("scaled", 1)

    def test_services_respond_at_cluster_ips_and_node_ports(self) -> None:
        self.serve("served", 2, node_port=30080)
        address = self.cluster.json("get", "service/served")["spec"]["clusterIP"]
        for where in [(address, 80), ("198.51.100.1", 30080), ("198.51.100.2", 30080)]:
            # kube-proxy follows the slices with a short delay.
            answer = wait_until(lambda: ask(self.cluster, *where), f"an answer at {where}", 10, 0.1)
            self.assertIn("served-", answer)

    def test_pods_reach_services_pods_of_other_nodes_and_the_api_server(self) -> None:
        self.serve("asked", 2)
        address = self.cluster.json("get", "service/asked")["spec"]["clusterIP"]
        for node in ["node-1", "node-2"]:
            name = f"asker-{node}"
            self.serve(name, 1, nodeName=node)
            for target, port in [*((each, 8080) for each in ready_addresses(self.cluster, "asked")), (address, 80)]:
                answer = self.cluster.kubectl("exec", f"deployment/{name}", "--", "/answer", "ask", target, str(port))
                self.assertIn("asked-", answer)
            # The API server sends nothing before a request, so a successful connect is enough.
            self.cluster.kubectl("exec", f"deployment/{name}", "--", "/answer", "connect", "203.0.113.1", "443")

    def test_rolling_restart_replaces_every_pod(self) -> None:
        before = self.serve("rolled", 3)
        self.cluster.kubectl("rollout", "restart", "deployment/rolled")
        self.cluster.kubectl("rollout", "status", "deployment/rolled", "--timeout=60s")
        self.assertTrue(before.isdisjoint(self.await_ready("rolled", 3)))

    def test_address_of_a_deleted_pod_drops_packets(self) -> None:
        address = self.serve("gone", 1).pop()
        self.cluster.kubectl("delete", "deployment/gone", "--cascade=foreground", "--wait")
        wait_until(lambda: not self.cluster.json("get", "pods", "--selector=app=gone")["items"], "the pod to go", 30, 0.1)
        done = self.cluster.run(["timeout", "1", "bash", "-c", f"exec 3<>/dev/tcp/{address}/8080"], check=False)
        self.assertEqual(done.returncode, 124, f"it did not hang: {done.stderr}")
        self.cluster.apply(deployment("gone", 0))

    def test_drained_node_moves_its_pods_to_the_other_node(self) -> None:
        self.serve("drained", 4)
        self.addCleanup(self.cluster.kubectl, "uncordon", "node-2")
        self.cluster.kubectl("drain", "node-2", "--ignore-daemonsets", "--force", "--timeout=60s")
        self.assertEqual({address.rpartition(".")[0] for address in self.await_ready("drained", 4)}, {"198.18.0"})

    def test_pods_have_tokens_of_their_service_accounts(self) -> None:
        self.serve("account", 1)
        token = self.cluster.kubectl("exec", "deployment/account", "--", "/answer", "show",
                                     "/var/run/secrets/kubernetes.io/serviceaccount/token")
        who = self.cluster.kubectl("auth", "whoami", f"--token={token}", "--output=json",
                                   "--kubeconfig=/dev/null", "--server=https://198.51.100.1:6443",
                                   f"--certificate-authority={self.cluster.folder.certificates / 'ca.crt'}")
        self.assertEqual(json.loads(who)["status"]["userInfo"]["username"], "system:serviceaccount:default:default")
        self.assertTrue(self.cluster.kubectl("create", "token", "default"))

    def test_api_server_has_all_objects_after_a_restart_and_pods_serve_during_the_outage(self) -> None:
        address = self.serve("kept", 1).pop()
        self.cluster.kill("kube-apiserver")
        with self.assertRaises(ClusterError):
            self.cluster.kubectl("get", "pods")
        self.assertIn("kept-", ask(self.cluster, address, 8080))
        self.cluster.start("kube-apiserver")
        self.assertEqual(self.await_ready("kept", 1), {address})
        self.cluster.kubectl("scale", "deployment/kept", "--replicas=2")
        self.await_ready("kept", 2)

    def test_paused_kubelet_starts_no_pod_until_it_is_resumed(self) -> None:
        self.serve("paused", 1, nodeName="node-2")
        self.cluster.pause("node-2/kubelet")
        self.addCleanup(self.cluster.resume, "node-2/kubelet")
        self.cluster.kubectl("scale", "deployment/paused", "--replicas=2")
        wait_until(lambda: len(self.cluster.json("get", "pods", "--selector=app=paused")["items"]) == 2, "a second pod")
        # If the paused kubelet still worked, its pod would be ready at about the same time as the pod on the other
        # node.
        self.serve("beside", 1, nodeName="node-1")
        self.assertEqual(len(ready_addresses(self.cluster, "paused")), 1)
        self.cluster.resume("node-2/kubelet")
        self.await_ready("paused", 2)

    def test_commands_run_in_the_network_of_the_cluster(self) -> None:
        running = self.cluster.popen(["sh", "-c", "ip address; exec sleep 1000"], name="beside")
        wait_until(lambda: "198.51.100.1" in running.output(), "the output of a command")
        self.assertTrue(running.running)
        self.assertEqual(running.terminate(), -15)
        with self.assertRaisesRegex(ClusterError, "ended with 3: wrong"):
            self.cluster.run(["sh", "-c", "echo wrong >&2; exit 3"])

    def test_invalid_image_is_rejected(self) -> None:
        with self.assertRaisesRegex(ClusterError, "test_harness.py cannot be imported into node-1: "):
            self.cluster.import_image(Path(__file__))

    def test_second_cluster_needs_another_name(self) -> None:
        with self.assertRaisesRegex(ClusterError, "is up already"), Cluster("test-pods"):
            pass
        with self.assertRaisesRegex(ClusterError, "is up with 2 nodes, not 1 node"):
            Cluster("test-pods").up()
        with Cluster("test-other", api_only=True) as other:
            other.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
            self.assertNotIn("other", self.cluster.kubectl("get", "namespaces"))
        self.assertIn("node-2", self.cluster.kubectl("get", "nodes"))


class Simulated(unittest.TestCase):
    """An API server with controllers, and simulated nodes."""

    def test_simulated_pods_become_ready_and_appear_in_slices(self) -> None:
        with Cluster("test-kwok", api_only=True, controllers=True) as cluster:
            cluster.kwok.up(nodes=2)
            simulated = {"nodeSelector": {"sluicegate.dev/simulated": "true"},
                         "tolerations": [{"key": "sluicegate.dev/simulated", "operator": "Exists"}]}
            cluster.apply(deployment("many", 50, **simulated), service("many"))
            wait_until(lambda: len(ready_addresses(cluster, "many")) == 50, "50 ready endpoints", 60, 0.2)
            cluster.kwok.down()
            wait_until(lambda: not ready_addresses(cluster, "many"), "endpoints to go with their nodes", 120, 0.2)


class Machine(unittest.TestCase):
    """Tests of the effects of a cluster on its machine."""

    @staticmethod
    def facts() -> dict[str, Any]:
        """Returns the state of the machine that a cluster must restore."""
        sysctls = {name: Path("/proc/sys", name).read_text() for name in KUBELET_SYSCTLS if Path("/proc/sys", name).exists()}
        return {
            "sysctls": sysctls,
            "namespaces": sorted(name for name in os.listdir("/run/netns") if "test-machine" in name)
            if Path("/run/netns").exists() else [],
            "mounts": [line for line in Path("/proc/self/mountinfo").read_text().splitlines()
                       if "test-machine" in line],
        }

    @staticmethod
    def processes(cluster: Cluster) -> list[Process]:
        """Returns all processes of a cluster, including the processes in its pods."""
        found = [part.process for part in cluster.parts() if part.process]
        for process in found:
            found += [child for child in process.children() if child not in found]
        return found

    def test_down_command_restores_the_machine_even_if_a_pod_hangs(self) -> None:
        before = self.facts()
        cluster = Cluster("test-machine")
        with tempfile.TemporaryDirectory() as folder, cluster:
            self.assertEqual(self.facts()["sysctls"], before["sysctls"], "the settings of kubelet must stay in the node")
            cluster.import_image(answer_image(Path(folder)))
            hanging = deployment("hanging", 1, container={"args": ["hang"]}, terminationGracePeriodSeconds=600)
            cluster.apply(hanging, service("hanging"))
            wait_until(lambda: ready_addresses(cluster, "hanging"), "a pod", 60, 0.2)
            self.assertTrue(ControlGroup(f"{cluster.folder.identity}-node-1").exists)
            cluster.kubectl("delete", "deployment/hanging", "--wait=false")
            wait_until(lambda: not ready_addresses(cluster, "hanging"), "the pod to be told to end", 30, 0.2)
            processes = self.processes(cluster)
            self.assertIn("answer", [command(process.pid) for process in processes], "the pod ended when it was told to")
        self.assertEqual(self.facts(), before)
        self.assertEqual([process for process in processes if process.running], [])
        self.assertFalse(ControlGroup(f"{cluster.folder.identity}-node-1").exists)
        self.assertFalse(cluster.folder.path.exists())
        cluster.down()

    def test_up_command_starts_only_missing_parts_of_a_cluster(self) -> None:
        cluster = Cluster("test-again", api_only=True)
        self.addCleanup(cluster.down)
        cluster.up()
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}})
        etcd = cluster.part("etcd").process
        cluster.kill("kube-apiserver")
        cluster.up()
        self.assertIn("kept", cluster.kubectl("get", "namespaces"))
        self.assertEqual(cluster.part("etcd").process, etcd)

    def test_failed_up_command_prints_the_log_and_leaves_only_logs(self) -> None:
        cluster = Cluster("test-failed", api_only=True)
        self.addCleanup(cluster.down)
        cluster.control_plane.api_server.argv.append("--no-such-flag")
        with self.assertRaisesRegex(ClusterError, "unknown flag: --no-such-flag"):
            cluster.up()
        self.assertEqual([entry.name for entry in cluster.folder.path.iterdir()], ["logs"])
        self.assertFalse(cluster.namespace.exists)

    def test_cluster_of_a_killed_process_can_start_again(self) -> None:
        script = ("from harness import Cluster\nimport os, signal\n"
                  "with Cluster('test-killed', api_only=True): os.kill(os.getpid(), signal.SIGKILL)")
        subprocess.run([sys.executable, "-c", script], cwd=CLUSTER, capture_output=True)
        cluster = Cluster("test-killed", api_only=True)
        self.assertTrue(cluster.namespace.exists)
        with cluster:
            self.assertIn("default", cluster.kubectl("get", "namespaces"))
        self.assertFalse(cluster.namespace.exists)


class Command(unittest.TestCase):
    """Tests of the messages of the command."""

    @staticmethod
    def call(*argv: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, str(CLUSTER / "cluster"), *argv], capture_output=True, text=True, user=user)

    def test_error_messages_of_the_command_are_one_line(self) -> None:
        for argv, message in [
            (["up", "--name", "No"], "'No' is no name for a cluster"),
            (["up", "--nodes", "100"], "1 to 9 nodes, not 100"),
            (["build", "kubelte"], "nothing is called kubelte"),
            (["status", "--name", "nobody"], "no cluster nobody is up"),
            (["kubectl", "--name", "nobody", "--namespace", "shop", "get", "pods"], "no cluster nobody is up"),
        ]:
            with self.subTest(argv):
                done = self.call(*argv)
                self.assertEqual(done.returncode, 1)
                self.assertIn(message, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_cluster_without_root_is_rejected(self) -> None:
        # Another user may be unable to read this project, so the script drops its rights after loading.
        script = ("import os\nfrom harness import Cluster, ClusterError\nos.setuid(65534)\n"
                  "try: Cluster().up()\nexcept ClusterError as error: print(error)")
        done = subprocess.run([sys.executable, "-c", script], cwd=CLUSTER, capture_output=True, text=True)
        self.assertIn("needs root", done.stdout)


class Images(unittest.TestCase):
    def test_images_with_the_same_content_have_the_same_bytes(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            first, second = Path(folder) / "1.tar", Path(folder) / "2.tar"
            for tar in [first, second]:
                # Programs of this machine have shared libraries, which the image includes.
                Image("example/sh:1", Path("/bin/sh").resolve()).write(tar)
            self.assertEqual(first.read_bytes(), second.read_bytes())
            self.assertGreater(first.stat().st_size, 1_000_000)


if __name__ == "__main__":
    unittest.main()
