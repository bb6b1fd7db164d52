"""The addresses of a cluster, from ranges for documentation and benchmarks. Packets never leave the namespaces of the cluster."""

NODES = "198.51.100.0/24"
SERVICES = "203.0.113.0/24"
PODS = "198.18.0.0/16"
"""The addresses of the pods of all nodes. Each node has a /24."""

API_SERVER = "198.51.100.1"
"""The control plane runs on the first node."""
API_SERVER_PORT = 6443
KUBERNETES_SERVICE = "203.0.113.1"
"""The address of the API server for pods: the Service default/kubernetes."""

CHOSEN_SERVICES = [f"203.0.113.{last}" for last in range(2, 16)]
"""Addresses for Services whose address a test chooses. The API server gives no other Service one of the 16 lowest addresses of a /24 while higher
addresses are free: https://kubernetes.io/docs/concepts/services-networking/cluster-ip-allocation/"""

UNUSED = "198.51.100.254"
"""The unused target of the default route. Without a default route, kubelet and the API server find no address of their own."""

MAX_NODES = 9


def node_address(node: int) -> str:
    """Returns the address of a node. The first node is 1."""
    return f"198.51.100.{node}"


def pod_network(node: int) -> str:
    """Returns the addresses of the pods of a node."""
    return f"198.18.{node - 1}.0/24"


def node_name(node: int) -> str:
    """Returns the name of a node, as in `kubectl get nodes`."""
    return f"node-{node}"
