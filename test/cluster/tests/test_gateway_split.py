"""Tests of split planes: the control plane reads the cluster, and data planes serve without credentials of the cluster."""

import json
import signal
import subprocess
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from harness import wait_until
from harness.addresses import CHOSEN_SERVICES
from harness.processes import checked
from images import standard

from .gateway import NAMESPACE, PATIENCE, Answer, Gateway, backend, ingress, name_control_plane, ready, restarted, service, well
from .policies import jwt, rate_limit_policy, security_policy, token
from .process import program, secret
from .rights import ALL_IN_ONE, LEASE, rights, union

SHOP = "https://shop.example.com/"
REDIS, ASKED = CHOSEN_SERVICES[1:3]
"""The addresses of the Services `redis` and `asked`."""
CONTROL_PLANE = "app.kubernetes.io/component=control-plane"
DATA_PLANE = "app.kubernetes.io/component=data-plane"
SECRETS = {"/secrets": ["create", "get", "list", "watch"], **{
    f"/secrets sluicegate-{plane}-tls": ["get", "update"] for plane in ("control-plane", "data-plane")
}}


class Split(Gateway):
    """Two pods of the control plane and two pods of the data plane."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.address = CHOSEN_SERVICES[0]
        cls.install(wait=False, mode="split", service={"type": "NodePort", "clusterIP": cls.address},
                    dnsConfig={"nameservers": [cls.cluster.nodes[0].address]}, shutdown={"graceSeconds": 3, "idleSeconds": 3, "timeoutSeconds": 30})
        name_control_plane(cls.cluster, "redis.default.svc", REDIS, "asked.default.svc", ASKED)
        for plane in ["control-plane", "data-plane"]:
            cls.rolled_out(f"deployment/sluicegate-{plane}", NAMESPACE)
        cls.cluster.apply(cls.authority.secret("shop", "shop.example.com"))
        cls.follow([*backend("shop", 3), ingress("shop", "shop.example.com / Prefix shop", tls={"shop": ["shop.example.com"]})])

    def setUp(self) -> None:
        self.scale(2)
        self.rolled_out("deployment/sluicegate-data-plane", NAMESPACE)
        # The objects of the previous test are gone.
        for pod in self.pods(DATA_PLANE):
            self.answers(well, "https://shop.example.com:8443/", address=pod["status"]["podIP"])

    def scale(self, replicas: int) -> None:
        self.cluster.kubectl("scale", "deployment/sluicegate-control-plane", "--namespace", NAMESPACE, f"--replicas={replicas}")
        self.rolled_out("deployment/sluicegate-control-plane", NAMESPACE)

    def test_data_planes_serve_without_credentials(self) -> None:
        data_planes = self.pods(DATA_PLANE)
        self.assertEqual(len(data_planes), 2)
        for pod in data_planes:
            self.assertEqual([volume["name"] for volume in pod["spec"]["volumes"]], ["tls", "snapshot"])
            root = Path(f"/proc/{self.process(pod).pid}/root")
            self.assertTrue((root / "etc/sluicegate/tls/tls.crt").exists())
            for folder in ["var/run/secrets", "run/secrets"]:
                self.assertFalse((root / folder).exists(), folder)
        self.assertEqual(rights(self.cluster, "sluicegate-data-plane", NAMESPACE), {})
        self.assertEqual(rights(self.cluster, "sluicegate-data-plane", "default"), {})
        self.assertEqual(rights(self.cluster, "sluicegate-control-plane", NAMESPACE), union(ALL_IN_ONE, LEASE, SECRETS))
        self.assertEqual(rights(self.cluster, "sluicegate-control-plane", "default"), ALL_IN_ONE)

    def test_data_planes_apply_policies_and_rotated_keys(self) -> None:
        def asking(key: bytes) -> tuple[str, str]:
            return "--header", f"Authorization: Bearer {token(key)}"

        def keys(key: bytes) -> dict[str, Any]:
            return secret("default", "acme", {"secret": key})

        def refused(answer: Answer) -> bool:
            return answer.status == 401

        one, two = b"one secret, as long as it has to be", b"another secret, as long as it has to be"
        policy = security_policy("default", "shop", "shop", authentication=jwt("acme"))
        self.addCleanup(self.cluster.kubectl, "delete", "securitypolicy/shop", "secret/acme", "--ignore-not-found")
        self.cluster.apply(keys(one), policy)
        self.answers(refused, SHOP)
        self.answers(well, SHOP, *asking(one))

        def condition() -> Any:
            (ancestor,) = self.cluster.json("get", "securitypolicy/shop").get("status", {}).get("ancestors", [{}])
            (found,) = ancestor.get("conditions", [{}])
            return found.get("status"), found.get("reason")

        wait_until(lambda: condition() == ("True", "Accepted"), "the status of the policy", PATIENCE, 0.2)
        self.cluster.apply(keys(two))
        self.answers(refused, SHOP, *asking(one))
        self.answers(well, SHOP, *asking(two))
        self.cluster.kubectl("delete", "securitypolicy/shop")
        self.answers(well, SHOP)

    def test_kubectl_plugin_asks_the_pods_through_the_api_server(self) -> None:
        """The plugin needs the rights to list pods and to get pods/proxy, and no more."""
        (self.folder / "kubectl-sluicegate").unlink(missing_ok=True)
        (self.folder / "kubectl-sluicegate").symlink_to(program("sluicegate"))
        self.cluster.kubectl("create", "serviceaccount", "watcher")
        self.addCleanup(self.cluster.kubectl, "delete", "serviceaccount/watcher", f"--namespace={NAMESPACE}", "role/watcher",
                        "rolebinding/watcher", "--ignore-not-found")
        self.addCleanup(self.cluster.kubectl, "delete", "serviceaccount/watcher", "--ignore-not-found")
        token = self.cluster.kubectl("create", "token", "watcher").strip()
        config = yaml.safe_load(self.cluster.kubectl("config", "view", "--raw", "--flatten"))
        config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
        file = self.folder / "watcher.kubeconfig"
        file.write_text(json.dumps(config))

        def ask(*argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
            path = f"PATH={self.folder}:{self.cluster.environment()['PATH']}"
            return self.cluster.run(["env", path, f"KUBECONFIG={file}", "kubectl", "sluicegate", *argv], check=check)

        refused = ask("status", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("you need the right to list pods", refused.stderr)
        self.cluster.kubectl("create", "role", "watcher", f"--namespace={NAMESPACE}", "--verb=list,get", "--resource=pods,pods/proxy")
        self.cluster.kubectl("create", "rolebinding", "watcher", f"--namespace={NAMESPACE}", "--role=watcher", "--serviceaccount=default:watcher")

        names = {plane: {pod["metadata"]["name"] for pod in self.pods(plane)} for plane in (CONTROL_PLANE, DATA_PLANE)}

        def states() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = json.loads(ask("status", "-o", "json", check=False).stdout or '{"gateways": []}')["gateways"]
            return found

        wait_until(lambda: len([state for state in states() if state["ready"]]) == 4, "four ready pods", PATIENCE, 0.5)
        found = states()
        self.assertEqual({state["gateway"] for state in found}, names[CONTROL_PLANE] | names[DATA_PLANE])
        for state in found:
            self.assertEqual(state.get("control_plane_connected"), True if state["gateway"] in names[DATA_PLANE] else None, state)
        self.assertIn("shop.example.com", ask("routes").stdout)
        self.assertIn("Ingress default/shop", ask("explain", "http://shop.example.com/").stdout)
        self.assertIn("default/shop", ask("upstreams", "--gateway-pod", sorted(names[DATA_PLANE])[1]).stdout)

        # Requests to one pod are in the sum of all pods.
        last = sorted(names[DATA_PLANE])[1]
        address = next(pod["status"]["podIP"] for pod in self.pods(DATA_PLANE) if pod["metadata"]["name"] == last)
        top = self.cluster.popen(["env", f"KUBECONFIG={file}", str(self.folder / "kubectl-sluicegate"), "top", "--interval=3s", "-o", "json"], "top")
        while top.running:
            self.ask("https://shop.example.com:8443/", address=address)
        (line,) = json.loads(top.output())["lines"]
        self.assertEqual(line["of"]["host"], "shop.example.com")
        self.assertGreater(line["per_second"], 0)
        self.assertIn("has no running pod other", ask("routes", "--gateway-pod=other", check=False).stderr)

    def remade(self, *objects: dict[str, Any]) -> None:
        """Applies objects, and deletes them after the test."""
        self.cluster.apply(*objects)
        for each in objects:
            name = f"{each['kind']}/{each['metadata']['name']}"
            self.addCleanup(self.cluster.kubectl, "delete", name, "--ignore-not-found")

    def comes_to_be(self, pod: dict[str, Any], expected: Callable[[dict[str, Any]], bool]) -> None:
        name = f"pod/{pod['metadata']['name']}"
        wait_until(lambda: expected(self.cluster.json("get", name)), f"{name} to change", PATIENCE, 0.2)

    def await_sharing(self, is_shared: bool) -> None:
        """Waits until all data planes report this state of shared limits for both policies."""

        def said() -> bool:
            addresses = [pod["status"]["podIP"] for pod in self.pods(DATA_PLANE)]
            lines = [line for address in addresses
                     for line in self.ask(f"http://{address}:9901/metrics", address=address).body.splitlines()
                     if line.startswith("sluicegate_rate_limit_shared_up{")]
            return [line.rpartition(" ")[2] for line in lines] == [str(int(is_shared))] * 4

        wait_until(said, f"limits to be shared: {is_shared}", PATIENCE, 0.1)

    def test_data_planes_share_limits_through_redis_and_survive_its_outage(self) -> None:
        self.cluster.import_image(standard.redis())
        name, password = {"name": "redis"}, b"a password of the server"
        server = {"name": "redis", "image": standard.REDIS,
                  "args": ["--bind", "0.0.0.0", "--save", "", "--requirepass", password.decode()]}
        pod = {"metadata": {"labels": {"app": "redis"}}, "spec": {"containers": [server], "terminationGracePeriodSeconds": 1}}
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": name,
                      "spec": {"selector": {"matchLabels": {"app": "redis"}}, "template": pod}}
        stable = service("redis", "redis", 6379)
        stable["spec"] |= {"clusterIP": REDIS, "ports": [{"port": 6379}]}
        self.remade(deployment, stable, secret("default", "redis", {"password": password}))
        self.rolled_out("deployment/redis")
        self.remade(ingress("few", "few.example.com / Prefix shop"), *(
            rate_limit_policy("default", of, of, shared={"redis": {"address": "redis.default.svc:6379", "passwordSecretRef": name}},
                              limits=[{"name": "all", "requests": requests, "per": "1h", "algorithm": "SlidingWindow"}])
            for of, requests in {"few": 20, "shop": 1_000_000}.items()
        ))
        self.await_sharing(True)
        first, second = (pod["status"]["podIP"] for pod in self.pods(DATA_PLANE))
        few = "http://few.example.com:8080/"
        self.answers(lambda answer: "ratelimit" in answer.headers, few, address=first)
        statuses = [self.ask(few, address=first).status for _ in range(20)]
        self.assertEqual((statuses[0], statuses[-1]), (200, 429), statuses)

        def is_refused_by_both() -> None:
            for data_plane in (first, second):
                statuses: list[int] = []
                # Each data plane receives fewer requests than its own limit would admit.
                while len(statuses) < 6 and 429 not in statuses:
                    statuses.append(self.ask(few, address=data_plane).status)
                    time.sleep(0.2)
                self.assertIn(429, statuses)

        is_refused_by_both()
        with self.load():
            (server,) = self.cluster.json("get", "pods", "--selector=app=redis")["items"]
            process = self.process(server)
            process.send(signal.SIGSTOP)
            self.await_sharing(False)
            is_refused_by_both()
            process.send(signal.SIGCONT)
            self.await_sharing(True)
            # A new server without data replaces the server, at another address.
            process.send(signal.SIGKILL)
            self.cluster.kubectl("delete", "pod", server["metadata"]["name"], "--force", "--grace-period=0")
            self.rolled_out("deployment/redis")
            self.await_sharing(True)
            is_refused_by_both()

    def test_data_planes_authenticate_by_an_external_service(self) -> None:
        stable = service("asked", "asked", 9000)
        deployment, _ = backend("asked", 2)
        stable["spec"] |= {"clusterIP": ASKED}

        def policy(query: str) -> dict[str, Any]:
            external = {"url": f"http://asked.default.svc/?{query}", "responseHeaders": ["X-Lab-Pod"]}
            return security_policy("default", "shop", "shop", authentication={"extAuth": external})

        self.remade(deployment, stable, policy("r=200"))
        self.rolled_out("deployment/asked")
        # The service responds with its name to a request with an id, so the client's header reaches the service.
        self.answers(lambda answer: answer.line("X-Lab-Pod") == "asked", SHOP, "--header", "X-Lab-Id: 1")
        with self.load():
            self.cluster.kubectl("rollout", "restart", "deployment/asked")
            self.rolled_out("deployment/asked")
            # One pod refuses connections. Later one pod drops packets until Kubernetes removes it from its Service.
            refusing, silent = self.cluster.json("get", "pods", "--selector=app=asked")["items"]
            self.process(refusing).send(signal.SIGKILL)
            self.comes_to_be(refusing, restarted)
            of_silent = self.process(silent)
            # The pod receives no more packets. It still responds to received requests.
            deaf = "table inet deaf { chain input { type filter hook input priority 0; policy drop; }; }"
            checked(["nsenter", f"--target={of_silent.pid}", "--net", "nft", deaf])
            self.comes_to_be(silent, lambda pod: not ready(pod))
            self.cluster.kubectl("delete", "pod", silent["metadata"]["name"], "--force", "--grace-period=0")
            self.rolled_out("deployment/asked")
        for status, told in {401: 401, 403: 403, 302: 500, 204: 200}.items():
            self.cluster.apply(policy(f"r={status}"))
            self.answers(lambda answer, told=told: answer.status == told, SHOP)
        self.cluster.kubectl("scale", "deployment/asked", "--replicas=0")
        self.answers(lambda answer: answer.status == 500, SHOP)

    def test_replaced_planes_lose_no_request(self) -> None:
        with self.load(posts=10):
            for plane in ["control-plane", "data-plane"]:
                self.cluster.kubectl("rollout", "restart", f"deployment/sluicegate-{plane}", "--namespace", NAMESPACE)
                self.rolled_out(f"deployment/sluicegate-{plane}", NAMESPACE)

    def test_data_planes_serve_and_restart_without_a_control_plane(self) -> None:
        with self.load():
            self.scale(0)
            # The data planes do not receive this change, and detect the dead pod themselves.
            (old, *_) = self.shops()
            self.cluster.kubectl("delete", "pod", old["metadata"]["name"], "--wait")
        # Killed data planes lose their connections, and serve again from their snapshots.
        for pod in self.pods(DATA_PLANE):
            process = self.process(pod)
            process.send(signal.SIGKILL)
            wait_until(lambda: not process.running, "a data plane to end")
        # Kubernetes may not have detected the end yet.
        wait_until(lambda: all(map(restarted, self.pods(DATA_PLANE))), "the data planes to be started again", PATIENCE, 0.2)
        self.answers(well, SHOP)
        self.rolled_out("deployment/sluicegate-data-plane", NAMESPACE)
        with self.load():
            self.scale(2)
            took = self.served("again")
        print(f"  after the return of the control plane a new Ingress is served in {took:.2f} s", flush=True)

    def test_another_control_plane_writes_status_after_the_writer_is_killed(self) -> None:
        writer = self.writer(CONTROL_PLANE)
        with self.load():
            process = self.process(writer)
            self.cluster.pause("node-1/kubelet")
            self.addCleanup(self.cluster.resume, "node-1/kubelet")
            process.send(signal.SIGKILL)
            told = self.served("told")
            written = self.status_is_written("written", self.address)
            self.assertNotEqual(self.writer(CONTROL_PLANE)["metadata"]["name"], writer["metadata"]["name"])
            self.cluster.resume("node-1/kubelet")
        print(f"  after the writer's death a new Ingress is served in {told:.2f} s, a status written in {written:.1f} s", flush=True)

    def shops(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.cluster.json("get", "pods", "--selector=app=shop")["items"]
        return found


if __name__ == "__main__":
    unittest.main()
