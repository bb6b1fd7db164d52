"""Tests of policies and Consumers in a cluster: CRDs, status, and changes of Secrets."""

import hashlib
import time
import unittest
from typing import Any

from harness import Api, Cluster, ClusterError, wait_until
from harness.api import ApiError
from harness.paths import PROJECT

from .policies import consumer, jwt, rate_limit_policy, security_policy, token, traffic_policy
from .process import Answer, Gateway, Manifest, secret
from .test_controller import OnCluster, say

ONE, TWO = b"one secret, as long as it has to be", b"another secret, as long as it has to be"


def install(cluster: Cluster) -> None:
    """Installs the CRDs of the chart."""
    cluster.kubectl("apply", f"--filename={PROJECT / 'charts/sluicegate/crds'}")
    kinds = ("securitypolicies", "consumers", "ratelimitpolicies", "trafficpolicies", "apis", "plans", "subscriptions")
    cluster.wait_for_definitions(*(f"{kind}.sluicegate.dev" for kind in kinds))


def created(api: Api, made: Manifest) -> bool:
    """Creates an object. Returns whether the API server already serves its kind."""
    try:
        api.create(made)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True


class Policies(OnCluster):
    """Tests with a gateway, and an Ingress with a policy."""

    cluster_name = "test-policies"

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        install(cls.site.cluster)

    def setUp(self) -> None:
        super().setUp()
        self.shop()
        self.route("web")

    def make(self, *objects: Manifest) -> None:
        self.api.create(*objects)
        for each in objects:
            self.addCleanup(lambda of=each: self.api.find(of) and self.api.delete(of))

    def asks(self, gateway: Gateway, **headers: str) -> Answer:
        return gateway.ask(self.host(), headers={name.replace("_", "-"): value for name, value in headers.items()})

    def await_answer(self, gateway: Gateway, status: int, **headers: str) -> float:
        """Waits until a request has this status. Returns the seconds of the wait."""
        began = time.monotonic()
        try:
            wait_until(lambda: self.asks(gateway, **headers).status == status, f"{status} for {headers}", 30, 0.002)
        except ClusterError as error:
            raise ClusterError(f"{error}, not {self.asks(gateway, **headers)}; the log:\n{gateway.log()[-3000:]}") from None
        return time.monotonic() - began

    def condition(self, of: Manifest) -> dict[str, Any]:
        """Returns the condition of a policy for its only target, or of a Consumer."""
        status = self.api.get(of).get("status", {})
        ancestors = status.get("ancestors", [status])
        found: list[dict[str, Any]] = [each for ancestor in ancestors for each in ancestor.get("conditions", [])]
        return found[0] if found else {}

    def await_condition(self, of: Manifest, status: str, reason: str) -> dict[str, Any]:
        def right() -> bool:
            found = self.condition(of)
            return (found.get("status"), found.get("reason")) == (status, reason)

        try:
            wait_until(right, f"{status} {reason}", 30, 0.02)
        except ClusterError as error:
            raise ClusterError(f"{error}, not {self.condition(of)}") from None
        return self.condition(of)

    def test_token_is_required_and_a_changed_secret_replaces_its_key(self) -> None:
        keys = secret(self.namespace, "acme", {"secret": ONE})
        policy = security_policy(self.namespace, "shop", "web", authentication=jwt("acme"))
        gateway = self.gateway()
        self.make(keys, policy)
        self.await_answer(gateway, 401)
        one, two = (f"Bearer {token(each)}" for each in (ONE, TWO))
        self.await_answer(gateway, 200, Authorization=one)
        self.assertEqual(self.asks(gateway, Authorization=two).status, 401)
        self.await_condition(policy, "True", "Accepted")
        self.assertEqual(self.condition(policy)["observedGeneration"], 1)
        self.api.patch(keys, {"data": secret(self.namespace, "acme", {"secret": TWO})["data"]})
        took = self.await_answer(gateway, 401, Authorization=one)
        self.assertEqual(self.asks(gateway, Authorization=two).status, 200)
        say(f"a token by a key that was taken out of its Secret is refused after {took * 1000:.0f} ms")
        self.api.delete(policy)
        self.await_answer(gateway, 200)

    def test_unusable_policy_closes_its_routes_and_is_reported(self) -> None:
        policy = security_policy(self.namespace, "shop", "web", authentication=jwt("acme"))
        gateway = self.gateway()
        self.make(policy)
        self.await_answer(gateway, 503)
        self.assertEqual(self.asks(gateway, Authorization=f"Bearer {token(ONE)}").status, 503)
        condition = self.await_condition(policy, "False", "Invalid")
        self.assertIn("acme", condition["message"])
        self.assertEqual(gateway.metric("sluicegate_policy_unusable"), 1)
        gateway.await_line("ERROR", f"SecurityPolicy {self.namespace}/shop", "acme")
        wait_until(lambda: any("acme" in note for note in self.notes(policy)), "an Event")
        self.make(secret(self.namespace, "acme", {"secret": ONE}))
        self.await_answer(gateway, 200, Authorization=f"Bearer {token(ONE)}")
        self.await_condition(policy, "True", "Accepted")
        self.assertEqual(gateway.metric("sluicegate_policy_unusable"), 0)

    def test_changed_secret_replaces_the_key_of_its_consumer(self) -> None:
        policy = security_policy(self.namespace, "shop", "web", authentication={"apiKey": {}})
        alice = consumer(self.namespace, "alice", groups=["gold"], apiKeys=[{"secretRef": {"name": "alice"}}])
        key = secret(self.namespace, "alice", {"key": b"the-first-key-of-alice"})
        gateway = self.gateway()
        self.make(key, alice, policy)
        self.await_answer(gateway, 401)
        self.await_answer(gateway, 200, X_API_Key="the-first-key-of-alice")
        self.await_condition(alice, "True", "Accepted")
        self.api.patch(key, {"data": secret(self.namespace, "alice", {"key": b"the-second-key-of-alice"})["data"]})
        took = self.await_answer(gateway, 401, X_API_Key="the-first-key-of-alice")
        self.await_answer(gateway, 200, X_API_Key="the-second-key-of-alice")
        say(f"a key that was taken out of its Secret is refused after {took * 1000:.0f} ms")
        # Changes of keys while no policy uses them apply when a policy uses them again.
        self.api.delete(policy)
        self.await_answer(gateway, 200)
        self.api.patch(key, {"data": secret(self.namespace, "alice", {"key": b"the-third-key-of-alice"})["data"]})
        self.api.create(policy)
        self.await_answer(gateway, 401, X_API_Key="the-second-key-of-alice")
        self.await_answer(gateway, 200, X_API_Key="the-third-key-of-alice")
        self.api.delete(key)
        self.await_answer(gateway, 401, X_API_Key="the-third-key-of-alice")
        self.await_condition(alice, "False", "Invalid")
        self.assertIn('sluicegate_consumer_requests_total{namespace="' + self.namespace, gateway.admin("/metrics").text)

    def test_many_consumers_are_served_only_with_secrets_of_the_credentials_type(self) -> None:
        names = [f"caller-{number:03}" for number in range(510)]
        callers = [consumer(self.namespace, name, apiKeys=[{"secretRef": {"name": name}}]) for name in names]

        def keys(kind: str) -> list[Manifest]:
            return [secret(self.namespace, name, {"key": f"the-key-of-{name}".encode()}, kind) for name in names]

        self.make(security_policy(self.namespace, "shop", "web", authentication={"apiKey": {}}), *callers, *keys("Opaque"))
        gateway = self.gateway()
        gateway.await_line("ERROR", "are not read", "sluicegate.dev/credentials")
        self.await_answer(gateway, 200, X_API_Key=f"the-key-of-{names[0]}")
        self.assertEqual(self.asks(gateway, X_API_Key=f"the-key-of-{names[-1]}").status, 401)
        for each in keys("Opaque"):
            self.api.delete(each)
        self.api.create(*keys("sluicegate.dev/credentials"))
        for name in (names[0], names[-1]):
            self.await_answer(gateway, 200, X_API_Key=f"the-key-of-{name}")
        wait_until(lambda: "are not read" not in gateway.admin("/config").text, "no such problem any more")

    def test_older_policy_has_precedence_and_the_conflict_is_reported(self) -> None:
        older = rate_limit_policy(self.namespace, "b-older", "web", limits=[{"name": "a", "requests": 2, "per": "1h"}])
        newer = rate_limit_policy(self.namespace, "a-newer", "web", limits=[{"name": "a", "requests": 1000, "per": "1h"}])
        missing = rate_limit_policy(self.namespace, "missing", "nothing", limits=[{"name": "a", "requests": 1, "per": "1h"}])
        gateway = self.gateway()
        self.make(older)
        # Creation times have a resolution of one second.
        made = self.api.get(older)["metadata"]["creationTimestamp"]
        wait_until(lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) > made, "the next second")
        self.make(newer, missing)
        self.await_condition(older, "True", "Accepted")
        self.assertIn("b-older", self.await_condition(newer, "False", "Conflicted")["message"])
        self.await_condition(missing, "False", "TargetNotFound")
        self.await_answer(gateway, 429)
        answer = self.asks(gateway)
        self.assertIn("Retry-After", answer.headers)
        self.assertEqual(answer.headers["RateLimit-Policy"], '"a";q=2;w=3600')
        self.api.delete(older)
        self.await_condition(newer, "True", "Accepted")
        self.await_answer(gateway, 200)

    def test_traffic_policy_applies_and_its_status_is_reported(self) -> None:
        marked = {"set": [{"name": "X-Marked", "value": "yes"}]}
        policy = traffic_policy(self.namespace, "ways", "web", responseHeaders=marked, timeouts={"request": "10s"})
        gateway = self.gateway()
        self.make(policy)
        wait_until(lambda: self.asks(gateway).headers.get("X-Marked") == "yes", "the header", 30, 0.002)
        self.await_condition(policy, "True", "Accepted")
        self.api.patch(policy, {"spec": {"directResponse": {"statusCode": 418, "body": "short and stout"}}})
        self.await_answer(gateway, 418)
        self.api.patch(policy, {"spec": {"directResponse": None, "redirect": {"scheme": "https", "hostname": "b.test"}}})
        self.await_answer(gateway, 302)
        self.assertEqual(self.asks(gateway).headers["Location"], "https://b.test/")
        elsewhere = {"backends": [{"serviceRef": {"name": "missing", "port": 80}, "match": [{"header": "x-canary"}]}]}
        self.api.patch(policy, {"spec": {"redirect": None, "split": elsewhere}})
        self.await_answer(gateway, 200)
        self.await_answer(gateway, 503, X_Canary="1")
        gateway.await_line("WARN", f"TrafficPolicy {self.namespace}/ways", "missing")
        self.api.delete(policy)
        wait_until(lambda: "X-Marked" not in self.asks(gateway).headers, "no header", 30, 0.002)

    def test_status_of_a_policy_is_written_once_by_one_gateway(self) -> None:
        policy = security_policy(self.namespace, "shop", "web", ipAccess={"deny": ["192.0.2.0/24"]})
        first, second = self.gateway(lease_name="policies"), self.gateway(lease_name="policies")
        self.make(policy)
        self.await_condition(policy, "True", "Accepted")
        version = self.api.get(policy)["metadata"]["resourceVersion"]
        for n in range(3):
            self.route(f"more-{n}")
            for gateway in (first, second):
                gateway.await_status(self.host(f"more-{n}"))
        self.assertEqual(self.api.get(policy)["metadata"]["resourceVersion"], version)
        self.api.patch(policy, {"status": {"ancestors": []}}, "/status")
        self.await_condition(policy, "True", "Accepted")

    def test_api_server_rejects_invalid_policies(self) -> None:
        def refused(object_: Manifest, *words: str) -> None:
            with self.assertRaises(ApiError) as caught:
                self.make(object_)
            for word in words:
                self.assertIn(word, str(caught.exception))

        both = jwt("acme")
        both["jwt"]["providers"][0]["keys"]["inline"] = "{}"
        refused(security_policy(self.namespace, "a", "web", authentication=both), "keys")
        refused(security_policy(self.namespace, "a", "web", authentication={}), "authentication")
        refused(security_policy(self.namespace, "a", "web", cors={"allowOrigins": ["*"], "allowCredentials": True}), "allowCredentials")
        refused(rate_limit_policy(self.namespace, "a", "web", limits=[{"name": "a", "requests": 0, "per": "1s"}]), "requests")
        refused(rate_limit_policy(self.namespace, "a", "web", limits=[{"name": "a", "requests": 1, "per": "soon"}]), "per")
        refused(consumer(self.namespace, "a", tokens=[{"subject": "a", "clientId": "b"}]), "exactly one")
        refused(traffic_policy(self.namespace, "a", "web", redirect={"scheme": "https"}, directResponse={"statusCode": 200}), "cannot be combined")
        refused(traffic_policy(self.namespace, "a", "web", retries={"attempts": 101}), "attempts")
        refused(traffic_policy(self.namespace, "a", "web", healthCheck={"type": "TCP"}), "only for Services")
        refused(traffic_policy(self.namespace, "a", "web", loadBalancing={"algorithm": "ConsistentHash"}), "hash")
        refused(security_policy(self.namespace, "a", "web", authentication={"extAuth": {}}), "url")
        wrong = security_policy(self.namespace, "a", "web", ipAccess={"deny": ["10.0.0.0/8"]})
        wrong["spec"]["targetRefs"][0]["kind"] = "Pod"
        refused(wrong, "targetRefs")

    def test_api_of_a_configmap_is_served_and_its_faults_are_in_its_status(self) -> None:
        def document(path: str, more: str = "") -> str:
            return f"openapi: 3.1.0\ninfo: {{title: Pets, version: '1'}}\npaths:\n  {path}:\n    get: {{operationId: list}}\n{more}"

        def pets(text: str) -> Manifest:
            return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pets", "namespace": self.namespace},
                    "data": {"openapi.yaml": text}}

        host = self.host("pets")
        made: Manifest = {
            "apiVersion": "sluicegate.dev/v1alpha1", "kind": "Api", "metadata": {"name": "pets", "namespace": self.namespace}, "spec": {
                "document": {"configMap": {"name": "pets"}},
                "environments": [{"name": "production", "hosts": [host], "backend": {"service": "web", "port": "80"}}]}}
        gateway = self.gateway()
        self.make(made)
        gateway.await_status(host, 503)
        self.assertIn("ConfigMap", self.await_condition(made, "False", "Invalid")["message"])
        self.make(pets(document("/")))
        gateway.await_status(host, 200)
        self.await_condition(made, "True", "Accepted")
        self.assertEqual((gateway.ask(host, method="DELETE").status, gateway.ask(host, "/none").status), (405, 404))
        # A fault of one operation leaves the others.
        self.api.patch(pets(""), {"data": {"openapi.yaml": document("/", "  /{: {}\n")}})
        self.assertIn("line 6: #/paths/~1{", self.await_condition(made, "False", "Invalid")["message"])
        self.assertEqual(gateway.ask(host).status, 200)
        # The API server rejects an Api with two documents.
        both = {**made, "metadata": {"name": "both", "namespace": self.namespace},
                "spec": {**made["spec"], "document": {"configMap": {"name": "pets"}, "inline": "{}"}}}
        with self.assertRaises(ApiError) as refused:
            self.api.create(both)
        self.assertIn("exactly one of inline, configMap and url", str(refused.exception))

    def test_subscriber_calls_an_api_until_its_quota_is_used_up(self) -> None:
        def made(kind: str, name: str, **spec: Any) -> Manifest:
            return {"apiVersion": "sluicegate.dev/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": self.namespace}, "spec": spec}

        host, key = self.host("sold"), "key-of-alice-0123456789"
        document = "openapi: 3.1.0\ninfo: {title: Pets, version: '1'}\npaths:\n  /:\n    get: {operationId: list}\n"
        gateway = self.gateway()
        self.make(made("Api", "sold", subscriptions="Required", document={"inline": document}, environments=[
            {"name": "production", "hosts": [host], "backend": {"service": "web", "port": "80"}}]))
        security = security_policy(self.namespace, "sold", "sold", authentication={"apiKey": {"from": [{"header": {"name": "x-api-key"}}]}})
        security["spec"]["targetRefs"] = [{"group": "sluicegate.dev", "kind": "Api", "name": "sold"}]
        self.make(security)
        self.make(made("Consumer", "sold", apiKeys=[{"name": "first", "sha256": hashlib.sha256(key.encode()).hexdigest()}]))
        plan = made("Plan", "sold", approval="Manual", quotas=[{"name": "year", "requests": 2, "calendar": "Year", "timeZone": "Asia/Tokyo"}])
        self.make(plan)
        subscription = made("Subscription", "sold", consumerRef={"name": "sold"}, planRef={"name": "sold"}, apis=[{"name": "sold"}])
        self.make(subscription)
        self.await_condition(plan, "True", "Accepted")
        self.await_condition(subscription, "False", "Pending")
        gateway.await_status(host, 401)

        def statuses(wanted: int) -> bool:
            return gateway.ask(host, headers={"x-api-key": key}).status == wanted

        wait_until(lambda: statuses(403), "the Consumer to be known")
        self.api.patch(subscription, {"spec": {"approval": "Approved"}})
        self.await_condition(subscription, "True", "Accepted")
        wait_until(lambda: statuses(200), "the subscription to be active")
        self.assertEqual([gateway.ask(host, headers={"x-api-key": key}).status for _ in range(2)], [200, 429])
        # The API server rejects a quota without a window.
        with self.assertRaises(ApiError) as refused:
            self.api.create(made("Plan", "wrong", quotas=[{"name": "a", "requests": 1}]))
        self.assertIn("exactly one of calendar and period", str(refused.exception))

    def test_kubectl_explains_the_fields(self) -> None:
        for field, words in [
            ("securitypolicy.spec", "authentication"),
            ("securitypolicy.spec.authentication.jwt.providers.keys", "sharedSecretRef"),
            ("consumer.spec.apiKeys", "secretRef"),
            ("ratelimitpolicy.spec.limits", "requests"),
            ("ratelimitpolicy.spec.shared.redis", "address"),
            ("securitypolicy.spec.authentication.extAuth", "requestHeaders"),
            ("trafficpolicy.spec.timeouts", "backendRequest"),
            ("trafficpolicy.spec.healthCheck", "unhealthyThreshold"),
            ("api.spec.environments", "basePath"),
            ("plan.spec.quotas", "timeZone"),
            ("subscription.spec", "planRef"),
        ]:
            self.assertIn(words, self.cluster.kubectl("explain", field))
        for kind in ("securitypolicy", "consumer", "ratelimitpolicy", "trafficpolicy", "api", "plan", "subscription"):
            text = self.cluster.kubectl("explain", kind, "--recursive=false")
            self.assertNotIn("<empty>", text)
        listed = self.cluster.kubectl("get", "securitypolicies,consumers,ratelimitpolicies,trafficpolicies,apis,plans,subscriptions", "--all-namespaces")
        self.assertNotIn("error", listed)


class Definitions(OnCluster):
    """Tests in a cluster without the CRDs of policies at first."""

    cluster_name = "test-definitions"

    def test_policies_apply_once_their_crds_are_installed(self) -> None:
        self.shop()
        self.route("web")
        gateway = self.gateway()
        gateway.await_backend(self.host(), "one")
        self.assertEqual([*gateway.lines(" WARN "), *gateway.lines(" ERROR ")], [])
        install(self.cluster)
        policy = security_policy(self.namespace, "shop", "web", ipAccess={"deny": ["127.0.0.0/8"]})
        wait_until(lambda: created(self.api, policy), "the API server to know the kind")
        gateway.await_status(self.host(), 403)


if __name__ == "__main__":
    unittest.main()
