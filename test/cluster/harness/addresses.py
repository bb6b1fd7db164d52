"""The addresses of a cluster. They are ranges for documentation and benchmarks, and all of them stay in its namespaces."""

NODES = "198.51.100.0/24"
SERVICES = "203.0.113.0/24"
PODS = "198.18.0.0/16"
"""The pods of all nodes; each node has a /24 of it."""

API_SERVER = "198.51.100.1"
"""The control plane runs on the first node."""
API_SERVER_PORT = 6443
KUBERNETES_SERVICE = "203.0.113.1"
"""Where pods find the API server: the Service default/kubernetes."""

NOBODY = "198.51.100.254"
"""The default route leads here, where nobody is. Without a default route, kubelet and the API server find no address of their own."""

MAX_NODES = 9


def node_address(node: int) -> str:
    """The address of a node, counted from 1."""
    return f"198.51.100.{node}"


def pod_network(node: int) -> str:
    """The addresses of a node's pods."""
    return f"198.18.{node - 1}.0/24"


def node_name(node: int) -> str:
    """The name of a node, as in `kubectl get nodes`."""
    return f"node-{node}"
