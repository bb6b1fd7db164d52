"""The rights of service accounts according to Kubernetes, and the rights that Sluicegate needs."""

import re

from harness import Cluster

from .gateway import NAMESPACE

READ = ["get", "list", "watch"]

FOLLOWED = {
    "/configmaps": READ, "/secrets": READ, "/services": READ, "discovery.k8s.io/endpointslices": READ,
    "networking.k8s.io/ingresses": READ, "gateway.networking.k8s.io/gateways": READ,
    "gateway.networking.k8s.io/listenersets": READ, "gateway.networking.k8s.io/httproutes": READ, "gateway.networking.k8s.io/grpcroutes": READ,
    "gateway.networking.k8s.io/tlsroutes": READ, "gateway.networking.k8s.io/tcproutes": READ, "gateway.networking.k8s.io/udproutes": READ,
    "gateway.networking.k8s.io/backendtlspolicies": READ, "gateway.networking.k8s.io/referencegrants": READ,
    "gateway.networking.x-k8s.io/xbackends": READ, "gateway.networking.x-k8s.io/xbackendtrafficpolicies": READ,
    "sluicegate.dev/securitypolicies": READ, "sluicegate.dev/consumers": READ, "sluicegate.dev/ratelimitpolicies": READ,
    "sluicegate.dev/trafficpolicies": READ, "sluicegate.dev/apis": READ,
    "sluicegate.dev/plans": READ, "sluicegate.dev/subscriptions": READ,
}
OF_THE_CLUSTER = {"networking.k8s.io/ingressclasses": READ, "gateway.networking.k8s.io/gatewayclasses": READ, "/namespaces": READ,
                  "certificates.k8s.io/clustertrustbundles": READ,
                  "gateway.networking.k8s.io/gatewayclasses/status": ["patch"]}
WRITTEN = {"networking.k8s.io/ingresses/status": ["patch"], "networking.k8s.io/ingresses": ["patch"],
           **{f"gateway.networking.k8s.io/{kind}/status": ["patch"]
              for kind in ["gateways", "listenersets", "httproutes", "grpcroutes", "tlsroutes", "tcproutes", "udproutes", "backendtlspolicies"]},
           "gateway.networking.x-k8s.io/xbackends/status": ["patch"],
           "gateway.networking.x-k8s.io/xbackendtrafficpolicies/status": ["patch"],
           "sluicegate.dev/securitypolicies/status": ["patch"], "sluicegate.dev/consumers/status": ["patch"],
           "sluicegate.dev/ratelimitpolicies/status": ["patch"], "sluicegate.dev/trafficpolicies/status": ["patch"],
           "sluicegate.dev/apis/status": ["patch"], "sluicegate.dev/plans/status": ["patch"],
           "sluicegate.dev/subscriptions/status": ["patch"], "events.k8s.io/events": ["create"]}
LEASE = {"coordination.k8s.io/leases": ["create"], "coordination.k8s.io/leases sluicegate": ["get", "update"]}


def union(*parts: dict[str, list[str]]) -> dict[str, list[str]]:
    """Returns the union of rights."""
    return {key: sorted({verb for part in parts for verb in part.get(key, [])}) for part in parts for key in part}


ALL_IN_ONE = union(FOLLOWED, OF_THE_CLUSTER, WRITTEN)


def rights(cluster: Cluster, account: str, namespace: str) -> dict[str, list[str]]:
    """Returns the rights of a service account in a namespace beyond the rights of all accounts, by `GROUP/RESOURCE NAME`."""
    everybody = _listed(cluster, "default", namespace)
    return {key: verbs for key, verbs in _listed(cluster, account, namespace).items() if everybody.get(key) != verbs}


def _listed(cluster: Cluster, account: str, namespace: str) -> dict[str, list[str]]:
    text = cluster.kubectl("auth", "can-i", "--list", f"--as=system:serviceaccount:{NAMESPACE}:{account}", "--namespace", namespace)
    found: dict[str, set[str]] = {}
    for line in text.splitlines()[1:]:
        columns = re.match(r"(\S*)\s+\[(.*?)\]\s+\[(.*?)\]\s+\[(.*?)\]", line)
        assert columns, line
        resource, _, names, verbs = columns.groups()
        # `services`, `ingresses.networking.k8s.io`, `ingresses.networking.k8s.io/status`
        plain, _, part = resource.partition("/")
        kind, _, group = plain.partition(".")
        for name in names.split() or [""]:
            key = f"{group}/{kind}{'/' + part if part else ''} {name}".strip()
            found.setdefault(key, set()).update(verbs.split())
    return {key: sorted(verbs) for key, verbs in found.items()}
