"""Tests of the objects that Helm renders from the chart."""

import base64
import functools
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parent))
import openapi  # noqa: E402
from chart import CHART, NAMESPACE, ROOT, Refused, cases, container, helm, option, pod, rendered, rendered_file, rules  # noqa: E402

READ = ["get", "list", "watch"]


def for_every_file(test):
    """Runs a test for each file of values in ci/, with its objects and its values."""

    def run(self):
        for path in cases():
            with self.subTest(path.name):
                test(self, rendered_file(path), yaml.safe_load(path.read_text()) or {})

    return functools.wraps(test)(run)


class Every(unittest.TestCase):
    """Tests with each file of values in ci/."""

    def test_strict_lint_of_the_chart_reports_no_problem(self):
        for path in cases():
            with self.subTest(path.name):
                helm("lint", "--strict", "--quiet", "--namespace", NAMESPACE, CHART, "--values", path)

    @for_every_file
    def test_rendered_objects_are_valid_for_kubernetes(self, objects, _):
        for each in objects.all:
            self.assertEqual(openapi.problems(each), [], each["metadata"])

    @for_every_file
    def test_rendered_objects_have_unique_names(self, objects, _):
        names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects.all]
        self.assertEqual(len(names), len(set(names)), names)

    @for_every_file
    def test_each_selector_selects_the_pods_of_one_workload(self, objects, _):
        labels = {each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"] for each in objects.workloads()}

        def selected(selector, labels=labels):
            return [name for name, of in labels.items() if selector.items() <= of.items()]

        for each in objects.workloads() + objects.of("PodDisruptionBudget"):
            self.assertEqual(selected(each["spec"]["selector"]["matchLabels"]), [each["metadata"]["name"]])
        for each in objects.of("NetworkPolicy"):
            self.assertEqual(selected(each["spec"]["podSelector"]["matchLabels"]), [each["metadata"]["name"]])
        for each in objects.of("Service"):
            pods = selected(each["spec"]["selector"])
            metrics = each["metadata"]["name"].endswith("-metrics")
            self.assertEqual(len(pods), len(labels) if metrics else 1, each["metadata"]["name"])

    @for_every_file
    def test_pods_have_only_the_privileges_that_they_use(self, objects, _):
        for each in objects.workloads():
            of_pod, of_container = pod(each)["securityContext"], container(each)["securityContext"]
            self.assertEqual((of_pod["runAsUser"], of_pod["runAsNonRoot"]), (65532, True))
            self.assertEqual(of_pod["seccompProfile"], {"type": "RuntimeDefault"})
            self.assertIs(of_container["allowPrivilegeEscalation"], False)
            self.assertIs(of_container["readOnlyRootFilesystem"], True)
            self.assertEqual(of_container["capabilities"]["drop"], ["ALL"])
            listened = option(each, "listen") + option(each, "listen-https")
            low = any(int(address.rpartition(":")[2]) < 1024 for address in listened)
            added = of_container["capabilities"].get("add")
            self.assertEqual(added, ["NET_BIND_SERVICE"] if low else None, listened)

    @for_every_file
    def test_grace_period_of_pods_exceeds_the_longest_shutdown(self, objects, _):
        each = objects.serving()
        grace, idle, longest = (int(option(each, f"shutdown-{name}")[0].removesuffix("s")) for name in ("grace", "idle", "timeout"))
        self.assertGreater(pod(each)["terminationGracePeriodSeconds"], grace + max(idle, longest))

    @for_every_file
    def test_admin_port_is_open_only_for_probes(self, objects, values):
        serving = container(objects.serving())
        admin = serving["livenessProbe"]["httpGet"]["port"]
        if pod(objects.serving()).get("hostNetwork"):
            self.assertEqual(option(objects.serving(), "admin"), [f"127.0.0.1:{admin}"])
            self.assertEqual(serving["livenessProbe"]["httpGet"]["host"], "127.0.0.1")
            # Two pods may listen there, so the program probes its own pod.
            self.assertEqual(serving["readinessProbe"]["exec"]["command"], ["/sluicegate", "ready", f"--admin=127.0.0.1:{admin}"])
        elif values.get("networkPolicy", {}).get("enabled", True):
            policy = objects.one("NetworkPolicy", objects.serving()["metadata"]["name"])
            for rule in policy["spec"]["ingress"]:
                open_to_all = "from" not in rule
                self.assertFalse(open_to_all and admin in [port["port"] for port in rule["ports"]])

    @for_every_file
    def test_services_target_only_ports_of_containers(self, objects, _):
        ports = {port["containerPort"] for each in objects.workloads() for port in container(each).get("ports", [])}
        # With hostNetwork, containers declare no ports.
        listened = [address for name in ("listen", "listen-https", "validating-webhook") for address in option(objects.serving(), name)]
        if pod(objects.serving()).get("hostNetwork"):
            ports |= {int(address.rpartition(":")[2]) for address in listened}
        for each in objects.of("Service"):
            self.assertLessEqual({port["targetPort"] for port in each["spec"]["ports"]}, ports)

    @for_every_file
    def test_only_pods_that_read_the_cluster_have_a_token_and_rights(self, objects, values):
        made = {each["metadata"]["name"] for each in objects.of("ServiceAccount")}
        for each in objects.workloads():
            reads = "--kubernetes" in container(each)["args"]
            self.assertIs(pod(each)["automountServiceAccountToken"], reads)
            account = pod(each)["serviceAccountName"]
            if values.get("serviceAccount", {}).get("create", True) or not reads:
                self.assertIn(account, made)
            if not reads:
                self.assertEqual(rules(objects, account), [])
            elif values.get("rbac", {}).get("create", True):
                self.assertNotEqual(rules(objects, account), [])


class Schemas(unittest.TestCase):
    def test_unknown_fields_are_rejected_for_all_kinds(self):
        all_objects = [each for path in cases() for each in rendered_file(path).all]
        for kind in ("GatewayClass", "ServiceMonitor", "PodMonitor", "Service"):
            each = next(each for each in all_objects if each["kind"] == kind)
            wrong = {**each, "spec": {**each["spec"], "misspelt": 1}}
            self.assertEqual(openapi.problems(wrong), [f"{kind}.spec.misspelt: no such field"])


class Off(unittest.TestCase):
    def test_disabled_objects_are_not_rendered(self):
        self.assertEqual(rendered_file(CHART / "ci/nothing-values.yaml").names(), {"Deployment/sluicegate"})

    def test_default_values_render_a_deployment_behind_a_load_balancer(self):
        objects = rendered()
        self.assertEqual(
            {name.partition("/")[0] for name in objects.names()},
            {"ClusterRole", "ClusterRoleBinding", "Deployment", "IngressClass", "NetworkPolicy", "PodDisruptionBudget",
             "Role", "RoleBinding", "Service", "ServiceAccount"},
        )
        self.assertEqual(objects.one("Service")["spec"]["type"], "LoadBalancer")

    def test_autoscaled_deployment_has_no_replicas(self):
        objects = rendered({"autoscaling": {"enabled": True}})
        self.assertNotIn("replicas", objects.serving()["spec"])
        self.assertEqual(objects.one("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"], "sluicegate")


class Rights(unittest.TestCase):
    """Least privilege, by plane and by namespace."""

    def test_custom_resource_definitions_are_valid_for_kubernetes(self):
        paths = sorted((CHART / "crds").glob("*.yaml"))
        self.assertEqual(len(paths), 7)
        for path in paths:
            each = yaml.safe_load(path.read_text())
            self.assertEqual(f"{each['metadata']['name']}.yaml", path.name)
            self.assertEqual(openapi.problems(each), [], path.name)

    def test_gateway_may_read_every_kind_of_the_custom_resource_definitions(self):
        rules_of = rules(rendered(), "sluicegate")
        for path in (CHART / "crds").glob("*.yaml"):
            spec = yaml.safe_load(path.read_text())["spec"]
            found = [rule for _, rule in rules_of if spec["group"] in rule["apiGroups"] and spec["names"]["plural"] in rule["resources"]]
            self.assertIn(READ, [rule["verbs"] for rule in found], path.name)

    def test_gateway_that_writes_no_status_has_only_read_rights(self):
        for _, rule in rules(rendered({"status": {"enabled": False}}), "sluicegate"):
            self.assertEqual(rule["verbs"], READ)

    def test_gateway_has_only_the_write_rights_that_it_needs(self):
        written = {
            (where, *rule["apiGroups"], *rule["resources"], *rule.get("resourceNames", []), *rule["verbs"])
            for where, rule in rules(rendered(), "sluicegate")
            if rule["verbs"] != READ
        }
        self.assertEqual(written, {
            ("*", "networking.k8s.io", "ingresses/status", "patch"),
            ("*", "networking.k8s.io", "ingresses", "patch"),
            ("*", "gateway.networking.k8s.io", "gatewayclasses/status", "patch"),
            ("*", "gateway.networking.k8s.io", "gateways/status", "listenersets/status", "httproutes/status", "grpcroutes/status", "tlsroutes/status",
             "tcproutes/status", "udproutes/status", "backendtlspolicies/status", "patch"),
            ("*", "gateway.networking.x-k8s.io", "xbackends/status", "xbackendtrafficpolicies/status", "patch"),
            ("*", "sluicegate.dev", "securitypolicies/status", "consumers/status", "ratelimitpolicies/status", "trafficpolicies/status",
             "apis/status", "plans/status", "subscriptions/status", "patch"),
            ("*", "events.k8s.io", "events", "create"),
            (NAMESPACE, "coordination.k8s.io", "leases", "create"),
            (NAMESPACE, "coordination.k8s.io", "leases", "sluicegate", "get", "update"),
        })

    def test_gateway_may_write_services_only_in_its_namespace_and_only_for_gateways(self):
        written = [(where, rule) for where, rule in rules(rendered({"gatewayServices": {"type": "ClusterIP"}}), "sluicegate")
                   if "services" in rule["resources"] and rule["verbs"] != READ]
        self.assertEqual(written, [(NAMESPACE, {"apiGroups": [""], "resources": ["services"], "verbs": [*READ, "create", "patch", "delete"]})])

    def test_gateway_with_watched_namespaces_has_rights_only_in_these_namespaces(self):
        found = rules(rendered({"watchNamespaces": ["shop", "blog"], "config": {"a": "b"}}), "sluicegate")
        everywhere = {resource for where, rule in found if where == "*" for resource in rule["resources"]}
        self.assertEqual(everywhere, {"clustertrustbundles", "ingressclasses", "gatewayclasses", "gatewayclasses/status", "namespaces"})
        for where in ("shop", "blog"):
            self.assertIn("secrets", {resource for of, rule in found if of == where for resource in rule["resources"]})
        own = [rule for of, rule in found if of == NAMESPACE and rule["verbs"] == READ]
        self.assertTrue(own and all(rule["resourceNames"] == ["sluicegate"] for rule in own), own)

    def test_gateway_may_write_secrets_only_for_certificates_of_an_acme_server(self):
        def written(values):
            found = rules(rendered(values), "sluicegate")
            return [(where, rule["verbs"], rule.get("resourceNames")) for where, rule in found if rule["resources"] == ["secrets"] and rule["verbs"] != READ]

        self.assertEqual(written({}), [])
        on = {"acme": {"termsAgreed": True}}
        self.assertEqual(written(on), [("*", ["create", "update"], None)])
        own = ["sluicegate-acme", "sluicegate-acme-challenges"]
        self.assertCountEqual(written({**on, "watchNamespaces": ["shop"]}),
                              [("shop", ["create", "update"], None), (NAMESPACE, ["create"], None), (NAMESPACE, [*READ, "update"], own)])
        with self.assertRaises(Refused):
            rendered({**on, "status": {"enabled": False}})

    def test_pods_that_read_the_cluster_order_certificates_only_after_the_terms_are_agreed(self):
        for mode in ({}, {"mode": "split"}):
            for each in rendered(mode).workloads():
                self.assertFalse([arg for arg in container(each)["args"] if "acme" in arg])
            for each in rendered({"acme": {"termsAgreed": True, "email": "a@b.test", "challenge": "tls-alpn-01"}} | mode).workloads():
                args = container(each)["args"]
                expected = [] if args[0] == "data-plane" else ["--acme-terms-agreed", "--acme-email=a@b.test", "--acme-challenge=tls-alpn-01"]
                self.assertEqual([arg for arg in args if "acme" in arg], expected)

    def test_gateway_may_read_nodes_only_if_node_addresses_are_published(self):
        def resources(values):
            return {resource for _, rule in rules(rendered(values), "sluicegate") for resource in rule["resources"]}

        self.assertFalse({"nodes", "pods"} & resources({}))
        self.assertLessEqual({"nodes", "pods"}, resources({"status": {"source": "Nodes"}}))
        on_nodes = {"kind": "DaemonSet", "hostNetwork": True}
        self.assertLessEqual({"nodes", "pods"}, resources(on_nodes))
        for others in ({"service": {"type": "NodePort"}}, {"mode": "split"}, {"status": {"enabled": False}}):
            self.assertFalse({"nodes", "pods"} & resources({**on_nodes, **others}), others)

    def test_cluster_roles_of_two_releases_have_different_names(self):
        def names(objects):
            return {each["metadata"]["name"] for each in objects.of("ClusterRole", "ClusterRoleBinding")}

        self.assertFalse(names(rendered()) & names(rendered(release="other")))

    def test_names_of_a_long_release_fit_a_service(self):
        """The longest name of a release has 53 characters, and the longest name of a Service has 63."""
        for each in rendered({"mode": "split"}, release="r" * 53).of("Service"):
            self.assertLessEqual(len(each["metadata"]["name"]), 63)


class Split(unittest.TestCase):
    def setUp(self):
        self.objects = rendered({"mode": "split"})
        self.data_plane = self.objects.serving()
        self.control_plane = self.objects.one("Deployment", "sluicegate-control-plane")

    def test_data_planes_have_no_credentials_of_the_cluster(self):
        self.assertEqual(pod(self.data_plane)["serviceAccountName"], "sluicegate-data-plane")
        self.assertIs(pod(self.data_plane)["automountServiceAccountToken"], False)
        self.assertNotIn("--kubernetes", container(self.data_plane)["args"])
        self.assertEqual({volume["name"] for volume in pod(self.data_plane)["volumes"]}, {"tls", "snapshot"})
        self.assertEqual(pod(self.data_plane)["volumes"][0]["secret"]["secretName"], "sluicegate-data-plane-tls")

    def test_data_planes_connect_to_the_service_of_the_control_plane(self):
        service = self.objects.one("Service", "sluicegate-control-plane")
        (port,) = service["spec"]["ports"]
        self.assertEqual(option(self.data_plane, "control-plane"), [f"sluicegate-control-plane.{NAMESPACE}.svc:{port['port']}"])
        self.assertEqual(option(self.control_plane, "listen"), [f"0.0.0.0:{port['targetPort']}"])

    def test_control_plane_rather_than_the_chart_creates_the_plane_certificates(self):
        self.assertIn("--plane-certificates", container(self.control_plane)["args"])
        self.assertEqual(self.objects.of("Secret"), [])
        named = [rule for where, rule in rules(self.objects, "sluicegate-control-plane") if where == NAMESPACE and rule["resources"] == ["secrets"]]
        self.assertEqual([rule["verbs"] for rule in named], [["create"], ["get", "update"]])
        self.assertEqual(named[1]["resourceNames"], ["sluicegate-control-plane-tls", "sluicegate-data-plane-tls"])

    def test_only_data_planes_may_reach_the_control_plane(self):
        (rule,) = self.objects.one("NetworkPolicy", "sluicegate-control-plane")["spec"]["ingress"]
        (peer,) = rule["from"]
        self.assertLessEqual(
            peer["podSelector"]["matchLabels"].items(), self.data_plane["spec"]["template"]["metadata"]["labels"].items()
        )


class Webhook(unittest.TestCase):
    """The admission webhook."""

    MODES = [("all-in-one", "sluicegate"), ("split", "sluicegate-control-plane")]

    def test_api_server_reaches_the_webhook_of_the_pods_that_read_the_cluster(self):
        for mode, reader in self.MODES:
            objects = rendered({"mode": mode, "admissionWebhook": {"enabled": True, "port": 9444}})
            each = objects.one("Deployment", reader)
            (configured,) = objects.one("ValidatingWebhookConfiguration")["webhooks"]
            named = configured["clientConfig"]["service"]
            service = objects.one("Service", named["name"])
            self.assertLessEqual(service["spec"]["selector"].items(), each["spec"]["template"]["metadata"]["labels"].items())
            (port,) = service["spec"]["ports"]
            self.assertEqual((port["port"], port["targetPort"]), (named["port"], 9444))
            self.assertEqual(option(each, "validating-webhook"), ["0.0.0.0:9444"])
            policy = objects.one("NetworkPolicy", reader)
            open_to_all = [port["port"] for rule in policy["spec"]["ingress"] if "from" not in rule for port in rule["ports"]]
            self.assertIn(9444, open_to_all)

    def test_pods_mount_the_certificate_that_the_api_server_trusts(self):
        for mode, reader in self.MODES:
            objects = rendered({"mode": mode, "admissionWebhook": {"enabled": True}})
            each, secret = objects.one("Deployment", reader), objects.one("Secret", "sluicegate-webhook-tls")
            (configured,) = objects.one("ValidatingWebhookConfiguration")["webhooks"]
            self.assertEqual(configured["clientConfig"]["caBundle"], secret["data"]["ca.crt"])
            self.assertEqual(set(secret["data"]), {"ca.crt", "tls.crt", "tls.key"}, "the key of the CA is not stored")
            (mount,) = [mount for mount in container(each)["volumeMounts"] if mount["name"] == "webhook"]
            (volume,) = [volume for volume in pod(each)["volumes"] if volume["name"] == "webhook"]
            self.assertEqual(volume["secret"]["secretName"], secret["metadata"]["name"])
            for name, file in (("certificate", "tls.crt"), ("key", "tls.key")):
                self.assertEqual(option(each, f"validating-webhook-{name}"), [f"{mount['mountPath']}/{file}"])
            with tempfile.TemporaryDirectory() as folder:
                for name, data in secret["data"].items():
                    Path(folder, name).write_bytes(base64.b64decode(data))
                verified = ["openssl", "verify", "-CAfile", "ca.crt", "-verify_hostname", f"sluicegate-webhook.{NAMESPACE}.svc", "tls.crt"]
                subprocess.run(verified, cwd=folder, check=True, capture_output=True)

    def test_outage_of_the_webhook_blocks_no_object_by_default(self):
        (configured,) = rendered({"admissionWebhook": {"enabled": True}}).one("ValidatingWebhookConfiguration")["webhooks"]
        self.assertEqual((configured["failurePolicy"], configured["sideEffects"]), ("Ignore", "None"))

    def test_certificate_of_cert_manager_is_for_the_service_and_injected(self):
        objects = rendered_file(CHART / "ci/webhook-values.yaml")
        certificate = objects.one("Certificate")
        self.assertEqual(certificate["spec"]["dnsNames"], [f"sluicegate-webhook.{NAMESPACE}.svc"])
        self.assertEqual(certificate["spec"]["issuerRef"], {"kind": "Issuer", "name": objects.one("Issuer")["metadata"]["name"]})
        self.assertEqual(objects.of("Secret"), [])
        configured = objects.one("ValidatingWebhookConfiguration")
        self.assertEqual(
            configured["metadata"]["annotations"], {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/{certificate['metadata']['name']}"}
        )
        self.assertNotIn("caBundle", configured["webhooks"][0]["clientConfig"])
        given = {"enabled": True, "certificate": {"certManager": {"enabled": True, "issuerRef": {"name": "ca", "kind": "ClusterIssuer"}}}}
        objects = rendered({"admissionWebhook": given})
        self.assertEqual((objects.of("Issuer"), objects.one("Certificate")["spec"]["issuerRef"]["name"]), ([], "ca"))

    def test_only_watched_namespaces_are_reviewed_unless_the_values_select_others(self):
        def selector(values):
            (configured,) = rendered(values).one("ValidatingWebhookConfiguration")["webhooks"]
            return configured.get("namespaceSelector")

        self.assertIsNone(selector({"admissionWebhook": {"enabled": True}}))
        watched = selector({"watchNamespaces": ["shop"], "admissionWebhook": {"enabled": True}})
        self.assertEqual(watched, {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop"]}]})
        own = {"matchLabels": {"reviewed": "yes"}}
        self.assertEqual(selector({"watchNamespaces": ["shop"], "admissionWebhook": {"enabled": True, "namespaceSelector": own}}), own)

    def test_webhook_needs_no_further_rights(self):
        def found(values):
            return rules(rendered(values), "sluicegate")

        self.assertEqual(found({"admissionWebhook": {"enabled": True}}), found({}))

    def test_values_of_the_webhook_that_cannot_work_are_rejected(self):
        for values, reason in (
            ({"port": 9901}, "have the same port"),
            ({"failurePolicy": "Perhaps"}, "failurePolicy"),
            ({"timeoutSeconds": 31}, "timeoutSeconds"),
            ({"certificate": {"secretName": "own", "certManager": {"enabled": True}}}, "write one of them"),
        ):
            with self.assertRaisesRegex(Refused, reason):
                rendered({"admissionWebhook": {"enabled": True, **values}})
        with self.assertRaisesRegex(Refused, "admissionWebhook.port"):
            rendered({"mode": "split", "admissionWebhook": {"enabled": True, "port": 9902}})


class NodeNetwork(unittest.TestCase):
    def test_new_pod_can_start_beside_the_old_pod_of_its_node(self):
        each = rendered_file(CHART / "ci/node-network-values.yaml").serving()
        self.assertEqual(each["spec"]["updateStrategy"]["rollingUpdate"], {"maxSurge": 1, "maxUnavailable": 0})
        # Declared ports would prevent the scheduling of the new pod.
        self.assertNotIn("ports", container(each))
        self.assertEqual(pod(each)["dnsPolicy"], "ClusterFirstWithHostNet")
        self.assertEqual(option(each, "listen"), ["0.0.0.0:80"])

    def test_only_pods_on_the_node_network_publish_node_addresses_before_the_load_balancer(self):
        both = {"--publish-node-addresses", f"--publish-service={NAMESPACE}/sluicegate"}
        balanced = rendered_file(CHART / "ci/node-network-balanced-values.yaml").serving()
        self.assertLessEqual(both, set(container(balanced)["args"]))
        for values in ({}, {"mode": "split", "kind": "DaemonSet", "hostNetwork": True}):
            args = {arg for each in rendered(values).workloads() for arg in container(each)["args"]}
            self.assertNotIn("--publish-node-addresses", args)


class Values(unittest.TestCase):
    def test_gateway_ignores_nginx_access_annotations_only_if_the_values_say_so(self):
        flag = "--ignore-nginx-access-annotations"
        self.assertNotIn(flag, container(rendered().serving())["args"])
        ignored = {"ingressClass": {"ignoreNginxAccessAnnotations": True}}
        self.assertIn(flag, container(rendered(ignored).serving())["args"])
        self.assertIn(flag, container(rendered({"mode": "split", **ignored}).one("Deployment", "sluicegate-control-plane"))["args"])

    def test_gateway_serves_ingresses_of_ingress_nginx_only_if_the_values_say_so(self):
        flag = "--ingress-nginx-compatibility"
        self.assertNotIn(flag, container(rendered().serving())["args"])
        values = {"ingressNginx": {"compatibility": True, "controllerClass": "example.com/nginx",
                                   "ingressClass": {"create": True, "name": "next", "controller": "sluicegate.dev/ingress-nginx"}}}
        for mode, reader in [("all-in-one", "sluicegate"), ("split", "sluicegate-control-plane")]:
            objects = rendered({"mode": mode, **values})
            each = objects.one("Deployment", reader)
            self.assertIn(flag, container(each)["args"])
            self.assertEqual(option(each, "controller-class"), ["example.com/nginx"])
            self.assertEqual(objects.one("IngressClass", "next")["spec"]["controller"], "sluicegate.dev/ingress-nginx")

    def test_gateways_share_the_ports_of_the_service_unless_they_have_services_of_their_own(self):
        for reader, values, expected in [
            ("sluicegate", {}, [["80"], ["443"]]),
            ("sluicegate-control-plane", {"mode": "split"}, [["80"], ["443"]]),
            ("sluicegate", {"service": {"ports": {"http": 8080}}}, [[], ["443"]]),
            ("sluicegate", {"service": {"enabled": False}, "status": {"source": "Nodes"}}, [[], []]),
            ("sluicegate", {"gatewayServices": {"type": "ClusterIP"}}, [[], []]),
        ]:
            with self.subTest(values):
                each = rendered(values).one("Deployment", reader)
                self.assertEqual([option(each, "published-http-ports"), option(each, "published-https-ports")], expected)

    def test_http3_has_a_udp_port_beside_https_in_service_pod_and_network_policy(self):
        for mode, reader in [("all-in-one", "sluicegate"), ("split", "sluicegate-control-plane")]:
            objects = rendered({"mode": mode, "http3": {"enabled": True}, "networkPolicy": {"enabled": True}})
            serving = objects.serving()
            (https, http3) = [port for port in objects.one("Service", "sluicegate")["spec"]["ports"] if port["name"] in ("https", "http3")]
            self.assertEqual((https["port"], https["protocol"], http3["port"], http3["protocol"]), (443, "TCP", 443, "UDP"))
            self.assertEqual(http3["targetPort"], https["targetPort"])
            self.assertIn({"name": "http3", "containerPort": http3["targetPort"], "protocol": "UDP"}, container(serving)["ports"])
            (rule, *_) = objects.one("NetworkPolicy", serving["metadata"]["name"])["spec"]["ingress"]
            self.assertIn({"port": http3["targetPort"], "protocol": "UDP"}, rule["ports"])
            each = objects.one("Deployment", reader)
            self.assertEqual(option(each, "http3-port"), ["443"])
            self.assertIn("--http3", container(each)["args"])
        objects = rendered()
        self.assertNotIn("http3", [port["name"] for port in objects.one("Service", "sluicegate")["spec"]["ports"]])
        self.assertNotIn("--http3", container(objects.serving())["args"])
        with self.assertRaisesRegex(Refused, "which HTTP/3 uses"):
            rendered({"http3": {"enabled": True}, "extraPorts": [{"name": "a", "port": 8443, "protocol": "UDP"}]})

    def test_services_of_gateways_select_the_serving_pods_whose_network_policy_allows_their_ports(self):
        for mode, reader in [("all-in-one", "sluicegate"), ("split", "sluicegate-control-plane")]:
            objects = rendered({"mode": mode, "gatewayServices": {"type": "LoadBalancer", "annotations": {"a": "b, c"}}})
            each = objects.one("Deployment", reader)
            (selector,) = option(each, "gateway-service-selector")
            labels = dict(pair.split("=") for pair in selector.split(","))
            self.assertLessEqual(labels.items(), objects.serving()["spec"]["template"]["metadata"]["labels"].items())
            self.assertEqual(option(each, "gateway-services"), ["LoadBalancer"])
            self.assertEqual(option(each, "gateway-service-annotation"), ["a=b, c"])
            (rule,) = objects.one("NetworkPolicy", objects.serving()["metadata"]["name"])["spec"]["ingress"]
            for protocol in ("TCP", "UDP"):
                self.assertIn({"port": 20000, "endPort": 29999, "protocol": protocol}, rule["ports"])
        self.assertEqual(option(rendered().serving(), "gateway-services"), [])

    def test_template_of_data_planes_of_single_gateways_is_a_data_plane_with_a_token(self):
        own = {"mode": "split", "replicas": 3, "gatewayServices": {"type": "ClusterIP", "ownDataPlanes": {"enabled": True}}}
        objects = rendered(own)
        control = objects.one("Deployment", "sluicegate-control-plane")
        (file,) = option(control, "data-plane-template")
        (mount,) = [each for each in container(control)["volumeMounts"] if file.startswith(each["mountPath"])]
        (volume,) = [each for each in control["spec"]["template"]["spec"]["volumes"] if each["name"] == mount["name"]]
        workload = yaml.safe_load(objects.one("ConfigMap", volume["configMap"]["name"])["data"][file.rpartition("/")[2]])
        self.assertEqual((workload["kind"], workload["spec"]["replicas"]), ("Deployment", 3))
        pod = workload["spec"]["template"]
        self.assertEqual(option(workload, "token-dir"), ["/etc/sluicegate/token"])
        self.assertEqual(option(workload, "tls-dir"), [])
        self.assertNotIn("serviceAccountName", pod["spec"])
        self.assertFalse(pod["spec"]["automountServiceAccountToken"])
        # The Services of other Gateways in the namespace of the release must not select these pods.
        (selector,) = option(control, "gateway-service-selector")
        labels = dict(pair.split("=") for pair in selector.split(","))
        self.assertFalse(labels.items() <= pod["metadata"]["labels"].items())
        (rule, *_) = objects.one("NetworkPolicy", "sluicegate-control-plane")["spec"]["ingress"]
        (peer,) = [each for each in rule["from"] if "namespaceSelector" in each]
        self.assertLessEqual(peer["podSelector"]["matchLabels"].items(), pod["metadata"]["labels"].items())
        self.assertEqual(option(control, "gateway-data-planes"), [])
        own["gatewayServices"]["ownDataPlanes"]["default"] = "Own"
        self.assertEqual(option(rendered(own).one("Deployment", "sluicegate-control-plane"), "gateway-data-planes"), ["Own"])
        self.assertEqual(option(rendered({"mode": "split"}).one("Deployment", "sluicegate-control-plane"), "data-plane-template"), [])

    def test_only_own_data_planes_need_the_right_to_create_workloads(self):
        def written(values):
            return {(resource, where) for where, rule in rules(rendered(values), "sluicegate-control-plane") if "create" in rule["verbs"]
                    for resource in rule["resources"]}

        split = {"mode": "split", "gatewayServices": {"type": "ClusterIP"}}
        own = {"mode": "split", "gatewayServices": {"type": "ClusterIP", "ownDataPlanes": {"enabled": True}}}
        added = {(resource, "*") for resource in ("services", "serviceaccounts", "deployments", "daemonsets", "tokenreviews")}
        self.assertEqual(written(own) - written(split), added)

    def test_analytics_are_added_up_by_pods_that_serve_and_stored_by_pods_that_read_the_cluster(self):
        plain = rendered()
        for each in plain.workloads():
            self.assertFalse([arg for arg in container(each)["args"] if "analytics" in arg])
        objects = rendered_file(CHART / "ci/split-values.yaml")
        args = {each["metadata"]["name"]: container(each)["args"] for each in objects.workloads()}
        names = {each["metadata"]["name"]: [of["name"] for of in container(each)["env"]] for each in objects.workloads()}
        for name, of in args.items():
            self.assertIn("--analytics", of, name)
            is_control_plane = of[0] == "control-plane"
            self.assertEqual(is_control_plane, any(arg.startswith("--analytics-database=postgres://") for arg in of), name)
            self.assertEqual(is_control_plane, "SLUICEGATE_ANALYTICS_DATABASE_PASSWORD" in names[name], name)
        values = {"analytics": {"enabled": True, "database": "sqlite:/var/lib/sluicegate-analytics/a.db", "persistentVolumeClaim": "a"}}
        for mode in ({}, {"mode": "split"}):
            stores = [each for each in rendered(values | mode).workloads() if container(each)["args"][0] != "data-plane"]
            mounts = [(of["name"], of["mountPath"]) for of in container(stores[0])["volumeMounts"]]
            self.assertIn(("analytics", "/var/lib/sluicegate-analytics"), mounts)
            volumes = {of["name"]: of for of in pod(stores[0])["volumes"]}
            self.assertEqual(volumes["analytics"]["persistentVolumeClaim"], {"claimName": "a"})
        with self.assertRaises(Refused):
            rendered({"analytics": {"enabled": True, "database": "postgres://user:password@host/database"}})

    def test_pods_that_read_the_cluster_fetch_documents_only_from_named_hosts(self):
        for each in rendered().workloads():
            self.assertFalse([arg for arg in container(each)["args"] if "api-document" in arg])
        for mode in ({}, {"mode": "split"}):
            objects = rendered({"apiDocuments": {"hosts": ["docs.example.com", "*.example.org"]}} | mode)
            for each in objects.workloads():
                args, cache = container(each)["args"], "/var/cache/sluicegate-documents"
                is_reader = args[0] != "data-plane"
                hosts = [arg.split("=")[1] for arg in args if arg.startswith("--api-document-host")]
                self.assertEqual(hosts, ["docs.example.com", "*.example.org"] if is_reader else [])
                mounts = {of["name"]: of["mountPath"] for of in container(each).get("volumeMounts", [])}
                self.assertEqual(mounts.get("documents"), cache if is_reader else None)
                self.assertEqual(f"--api-document-cache={cache}" in args, is_reader)
                volumes = {of["name"]: of for of in pod(each).get("volumes", [])}
                self.assertEqual("emptyDir" in volumes.get("documents", {}), is_reader)

    def test_audit_trail_is_in_the_database_of_the_pods_that_read_the_cluster(self):
        for each in rendered().workloads():
            self.assertFalse([arg for arg in container(each)["args"] if "audit" in arg])
        database = {"database": "postgres://gate@db/audit", "passwordSecret": {"name": "password"}}
        values = {"analytics": database, "audit": {"enabled": True, "keepDays": 90}, "admissionWebhook": {"enabled": True}}
        for mode in ({}, {"mode": "split"}):
            objects = rendered(values | mode)
            for each in objects.workloads():
                of, names = container(each)["args"], [of["name"] for of in container(each)["env"]]
                is_reader = of[0] != "data-plane"
                for option_name in ("--audit", "--audit-keep-days=90", "--analytics-database=postgres://gate@db/audit"):
                    self.assertEqual(is_reader, option_name in of, of)
                self.assertNotIn("--analytics", of)
                self.assertEqual(is_reader, "SLUICEGATE_ANALYTICS_DATABASE_PASSWORD" in names)
            review, audit = objects.one("ValidatingWebhookConfiguration")["webhooks"]
            self.assertEqual((audit["name"], audit["failurePolicy"]), ("audit.sluicegate.dev", "Ignore"))
            self.assertEqual(audit["clientConfig"]["service"]["path"], "/audit")
            self.assertEqual(audit["clientConfig"]["caBundle"], review["clientConfig"]["caBundle"])
            for rule in audit["rules"]:
                self.assertEqual(rule["operations"], ["CREATE", "UPDATE", "DELETE"])
                self.assertNotIn("secrets", rule["resources"])
        with self.assertRaises(Refused):
            rendered({"audit": {"enabled": True}})

    def test_dashboard_and_portal_are_off_and_listen_only_in_the_pod_without_a_service(self):
        for each in rendered().workloads():
            self.assertFalse([arg for arg in container(each)["args"] if "dashboard" in arg or "portal" in arg])
        for mode in ({}, {"mode": "split"}):
            objects = rendered({"dashboard": {"enabled": True}, "portal": {"enabled": True}} | mode)
            addresses = {name: [option(each, f"{name}-address") for each in objects.workloads() if option(each, f"{name}-address")] for name in ("dashboard", "portal")}
            self.assertEqual(addresses, {"dashboard": [["127.0.0.1:9903"]], "portal": [["127.0.0.1:9904"]]})
            self.assertFalse([each for each in objects.of("Service") if each["metadata"]["name"].endswith(("-dashboard", "-portal"))])
            for policy in objects.of("NetworkPolicy"):
                self.assertFalse([port for rule in policy["spec"]["ingress"] for port in rule["ports"] if port["port"] in (9903, 9904)])

    def test_service_of_the_dashboard_leads_to_the_pods_that_read_the_cluster(self):
        values = {"dashboard": {"enabled": True, "changes": True, "tokenSecret": {"name": "users"}, "service": {"enabled": True}}}
        for mode, reader in (({}, "sluicegate"), ({"mode": "split"}, "sluicegate-control-plane")):
            objects = rendered(values | mode)
            each = objects.one("Deployment", reader)
            self.assertEqual(option(each, "dashboard-address"), ["0.0.0.0:9903"])
            (file,) = option(each, "dashboard-token-file")
            self.assertIn("--dashboard-changes", container(each)["args"])
            (mount,) = [of for of in container(each)["volumeMounts"] if file.startswith(of["mountPath"] + "/")]
            (volume,) = [of for of in pod(each)["volumes"] if of["name"] == mount["name"]]
            self.assertEqual(volume["secret"]["secretName"], "users")
            service = objects.one("Service", "sluicegate-dashboard")
            self.assertLessEqual(service["spec"]["selector"].items(), each["spec"]["template"]["metadata"]["labels"].items())
            self.assertEqual(service["spec"]["ports"][0]["targetPort"], 9903)
            ports = [port["port"] for rule in objects.one("NetworkPolicy", reader)["spec"]["ingress"] for port in rule["ports"]]
            self.assertIn(9903, ports)

    def test_only_the_portal_needs_the_right_to_change_consumers(self):
        def written(values):
            return {(resource, verb) for _, rule in rules(rendered(values), "sluicegate") for verb in rule["verbs"]
                    for resource in rule["resources"] if verb not in READ}

        changes = {"dashboard": {"enabled": True, "changes": True, "tokenSecret": {"name": "users"}}}
        self.assertEqual(written(changes), written({}))
        self.assertEqual(written({"portal": {"enabled": True}}) - written({}), {("subscriptions", "create"), ("subscriptions", "delete"), ("consumers", "patch")})

    def test_dashboards_and_rules_are_off_by_default(self):
        kinds = {each["kind"] for each in rendered({}).all}
        self.assertEqual(kinds & {"PrometheusRule", "ServiceMonitor"}, set())
        self.assertEqual([each for each in rendered({}).of("ConfigMap") if "dashboard" in each["metadata"]["name"]], [])

    def test_each_dashboard_is_in_a_configmap_that_the_sidecar_of_grafana_selects(self):
        objects = rendered({"operations": {"dashboards": {"enabled": True, "annotations": {"grafana_folder": "Network"}}}})
        maps = [each for each in objects.of("ConfigMap") if each["metadata"]["labels"].get("grafana_dashboard") == "1"]
        written = {path.stem: json.loads(path.read_text()) for path in (CHART / "operations/dashboards").glob("*.json")}
        # The sidecar writes all files into one folder.
        self.assertEqual({name: json.loads(text) for each in maps for name, text in each["data"].items()},
                         {f"sluicegate-{name}.json": document for name, document in written.items()})
        self.assertEqual({each["metadata"]["annotations"]["grafana_folder"] for each in maps}, {"Network"})
        self.assertEqual({each["metadata"]["namespace"] for each in maps}, {NAMESPACE})

    def test_default_values_leave_the_rules_of_prometheus_unchanged(self):
        rule = rendered({"operations": {"rules": {"enabled": True}}}).one("PrometheusRule")
        self.assertEqual(rule["spec"], yaml.safe_load((CHART / "operations/rules.yaml").read_text()))

    def test_each_threshold_changes_only_the_expressions_of_its_alerts(self):
        def alerts(**thresholds: float) -> dict[str, str]:
            groups = rendered({"operations": {"rules": {"enabled": True, "thresholds": thresholds}}}).one("PrometheusRule")["spec"]["groups"]
            return {each["alert"]: each["expr"] for group in groups for each in group["rules"] if "alert" in each}

        plain = alerts()
        for name, value, changed, text in [
            ("errorBudgetTarget", 99.5, {f"SluicegateErrorBudget{speed}" for speed in ("Fast", "Medium", "Slow")}, "(100 - 99.5) / 100"),
            ("errorBudgetTarget", 99, {f"SluicegateErrorBudget{speed}" for speed in ("Fast", "Medium", "Slow")}, "(100 - 99) / 100"),
            ("certificateDays", 30, {"SluicegateCertificateExpires"}, "< 30 * 86400"),
            ("latencySeconds", 0.25, {"SluicegateSlow"}, "> 0.25"),
            ("propagationSeconds", 3, {"SluicegateSlowChanges"}, "> 3"),
            ("memoryBytes", 1600000000, {"SluicegateMemory"}, "> 1600000000 and"),
            ("connectionsPerWorker", 1000000, {"SluicegateConnectionsFull"}, "> 0.8 * 1000000"),
        ]:
            with self.subTest(name):
                now = alerts(**{name: value})
                self.assertEqual({alert for alert in plain if now[alert] != plain[alert]}, changed)
                for alert in changed:
                    self.assertIn(text, now[alert])
                    self.assertNotIn("99.9)", now[alert])

    def test_alerts_lead_to_the_runbook_and_have_the_labels_of_the_values(self):
        groups = rendered({"operations": {"runbooks": "https://docs.example.com/alerts.html", "rules": {
            "enabled": True, "alertLabels": {"team": "platform", "severity": "none"}, "disabled": ["SluicegateFloods"]}}}).one("PrometheusRule")["spec"]["groups"]
        alerts = {each["alert"]: each for group in groups for each in group["rules"] if "alert" in each}
        self.assertNotIn("SluicegateFloods", alerts)
        page = (ROOT / "docs/operate/alerts.md").read_text()
        for name, alert in alerts.items():
            self.assertEqual(alert["annotations"]["runbook_url"], f"https://docs.example.com/alerts.html#{name.lower()}")
            self.assertIn(f"\n### {name}\n", page)
            self.assertEqual(alert["labels"]["team"], "platform")
            # The rules know how severe an alert is.
            self.assertIn(alert["labels"]["severity"], {"critical", "warning", "info"})

    def test_scraped_labels_of_objects_take_precedence_over_the_labels_of_the_pod(self):
        monitor = rendered({"serviceMonitor": {"enabled": True}, "networkPolicy": {"metricsFrom": [{"podSelector": {}}]}}).one("ServiceMonitor")
        self.assertIs(monitor["spec"]["endpoints"][0]["honorLabels"], True)

    def test_own_data_planes_of_gateways_are_scraped_in_their_namespaces_in_the_job_of_the_release(self):
        values = {"mode": "split", "fullnameOverride": "edge", "gatewayServices": {"type": "ClusterIP", "ownDataPlanes": {"enabled": True}},
                  "networkPolicy": {"metricsFrom": [{"podSelector": {}}]}}
        self.assertEqual(rendered(values).of("PodMonitor"), [])
        values["serviceMonitor"] = {"enabled": True, "interval": "20s", "labels": {"release": "prometheus"},
                                    "relabelings": [{"action": "replace", "targetLabel": "cluster", "replacement": "edge"}]}
        objects = rendered(values)
        monitor = objects.one("PodMonitor")
        self.assertEqual(monitor["metadata"]["labels"]["release"], "prometheus")
        self.assertEqual(monitor["spec"]["namespaceSelector"], {"any": True})
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        self.assertEqual((endpoint["interval"], endpoint["honorLabels"]), ("20s", True))

        # The selector: labels of the template, and the label of the Lease that the control plane adds.
        template = yaml.safe_load(objects.one("ConfigMap", "edge-data-plane-template")["data"]["workload.yaml"])["spec"]["template"]
        (lease,) = option(objects.one("Deployment", "edge-control-plane"), "lease-name")
        labels = template["metadata"]["labels"] | {"sluicegate.dev/lease": f"{NAMESPACE}.{lease}"}
        self.assertLessEqual(monitor["spec"]["selector"]["matchLabels"].items(), labels.items())
        (port,) = [port for port in template["spec"]["containers"][0]["ports"] if port["name"] == endpoint["port"]]
        self.assertEqual(port["containerPort"], 9901)

        # The job of the ServiceMonitor is the name of its Service.
        service = objects.one("Service", "edge-metrics")
        self.assertEqual(endpoint["relabelings"][0], {"action": "replace", "targetLabel": "job", "replacement": service["metadata"]["name"]})
        self.assertEqual(endpoint["relabelings"][1:], values["serviceMonitor"]["relabelings"])
        self.assertEqual(rendered(values | {"watchNamespaces": ["shop"]}).one("PodMonitor")["spec"]["namespaceSelector"], {"matchNames": ["shop"]})

    def test_configmap_contains_config_values_as_they_are_written(self):
        config = {"proxy-body-size": "8m", "max-request-body": 10485760, "ssl-redirect": False}
        objects = rendered({"config": config})
        self.assertEqual(
            objects.one("ConfigMap")["data"],
            {"proxy-body-size": "8m", "max-request-body": "10485760", "ssl-redirect": "false"},
        )
        self.assertEqual(option(objects.serving(), "configmap"), [f"{NAMESPACE}/sluicegate"])

    def test_misspelt_and_invalid_chart_values_are_rejected(self):
        for wrong, said in [
            ({"replica": 3}, "replica"),
            ({"service": {"kind": "NodePort"}}, "kind"),
            ({"service": {"type": "loadbalancer"}}, "service/type"),
            ({"mode": "splitted"}, "mode"),
            ({"replicas": "3"}, "replicas"),
            ({"hostNetwork": "yes"}, "hostNetwork"),
            ({"listen": {"http": 80808}}, "listen/http"),
            ({"extraArgs": ["trusted-proxies"]}, "extraArgs"),
            ({"extraPorts": [{"port": 53}]}, "extraPorts"),
            ({"tls": {"defaultCertificate": "no-namespace"}}, "defaultCertificate"),
            ({"watchNamespaces": ["Shop"]}, "watchNamespaces"),
            ({"config": {"a": {"b": "c"}}}, "config"),
            ({"controlPlane": {"hostNetwork": True}}, "hostNetwork"),
            ({"hostNetwork": True}, "needs kind: DaemonSet"),
            ({"kind": "DaemonSet", "autoscaling": {"enabled": True}}, "needs kind: Deployment"),
            ({"service": {"enabled": False}}, "needs service.enabled"),
            ({"mode": "split", "status": {"source": "Nodes"}}, "mode: split"),
            ({"status": {"source": "Addresses"}}, "needs status.addresses"),
            ({"serviceMonitor": {"enabled": True}}, "metricsFrom"),
            ({"serviceAccount": {"create": False}}, "needs serviceAccount.name"),
            ({"listen": {"http": 9901}}, "the same port"),
            ({"gatewayServices": {"type": "ExternalName"}}, "gatewayServices/type"),
            ({"gatewayServices": {"type": "ClusterIP"}, "status": {"enabled": False}}, "needs status.enabled"),
            ({"gatewayServices": {"type": "ClusterIP", "externalTrafficPolicy": "Local"}}, "LoadBalancer or NodePort"),
            ({"gatewayServices": {"type": "NodePort", "loadBalancerClass": "a"}}, "type: LoadBalancer"),
            ({"gatewayServices": {"type": "ClusterIP", "firstPort": 30000}}, "lastPort is less"),
            ({"gatewayServices": {"type": "ClusterIP", "ownDataPlanes": {"enabled": True}}}, "needs mode: split"),
            ({"mode": "split", "gatewayServices": {"ownDataPlanes": {"enabled": True}}}, "needs gatewayServices.type"),
            ({"gatewayServices": {"ownDataPlanes": {"default": "own"}}}, "ownDataPlanes/default"),
            ({"dashboard": {"enabled": True, "service": {"enabled": True}}}, "tokenSecret.name"),
            ({"dashboard": {"enabled": True, "changes": True}}, "tokenSecret.name"),
            ({"dashboard": {"enabled": True, "port": 9901}}, "the same port"),
            ({"mode": "split", "dashboard": {"enabled": True, "port": 9902}}, "are equal"),
            ({"dashboard": {"enabled": True}, "portal": {"enabled": True, "port": 9903}}, "the same port"),
            ({"operations": {"rules": {"enabled": True, "disabled": ["SluicegateNowhere"]}}}, "there is no alert SluicegateNowhere"),
            ({"operations": {"rules": {"thresholds": {"errorBudgetTarget": 90}}}}, "errorBudgetTarget"),
            ({"operations": {"runbooks": "https://docs.example.com/alerts.html#top"}}, "runbooks"),
        ]:
            with self.subTest(wrong):
                with self.assertRaises(Refused) as refused:
                    rendered(wrong)
                self.assertIn(said, str(refused.exception).replace("'", ""))

    def test_chart_values_and_schema_have_the_same_keys(self):
        schema = json.loads((CHART / "values.schema.json").read_text())
        self.assertEqual(
            paths(yaml.safe_load((CHART / "values.yaml").read_text()), schema), paths_of(schema) - {"global"}
        )

    def test_each_chart_value_is_set_by_a_file_in_ci(self):
        """A value that no file in ci/ sets is never rendered in a test."""
        schema = json.loads((CHART / "values.schema.json").read_text())
        used = set().union(*(paths(yaml.safe_load(path.read_text()) or {}, schema) for path in cases()))
        # Other values go through the same templates.
        self.assertEqual(paths_of(schema) - used, {"global", "image.tag", "controlPlane.port", "controlPlane.resources",
                                                   "autoscaling.targetCPUUtilizationPercentage", "admin.address"})

    def test_each_chart_value_is_documented(self):
        page = (CHART / "README.md").read_text()
        for path in paths_of(json.loads((CHART / "values.schema.json").read_text())) - {"global"}:
            known = any(f"| `{path.rsplit('.', cut)[0]}` |" in page for cut in range(2))
            self.assertTrue(known, f"{path} is not in the chart's README: write a comment with # -- above it")


def paths_of(schema: dict, above: str = "") -> set[str]:
    """Returns the values of a schema, without the fields of objects that the chart passes on to Kubernetes."""
    found = set()
    for name, below in schema["properties"].items():
        inner = paths_of(below, f"{above}{name}.") if "properties" in below else {f"{above}{name}"}
        found |= inner
    return found


def paths(values: dict, schema: dict, above: str = "") -> set[str]:
    """Returns the paths of the values, as deep as their schema."""
    found = set()
    for name, value in values.items():
        below = schema["properties"].get(name, {})
        found |= paths(value, below, f"{above}{name}.") if "properties" in below else {f"{above}{name}"}
    return found


class Versions(unittest.TestCase):
    def test_chart_has_the_version_of_the_workspace(self):
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        workspace = (ROOT / "Cargo.toml").read_text().partition("[workspace.package]")[2]
        version = re.search(r'^version = "(.+)"$', workspace, re.MULTILINE)[1]
        self.assertEqual((chart["version"], chart["appVersion"]), (version, version))


if __name__ == "__main__":
    unittest.main()
