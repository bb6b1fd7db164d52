"""A Kubernetes cluster on this machine, for tests.

    from harness import Cluster

    with Cluster("mine", nodes=2) as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
"""

from .api import Api, ApiError
from .cluster import Cluster
from .errors import ClusterError
from .processes import wait_until
from .running import Running

__all__ = ["Api", "ApiError", "Cluster", "ClusterError", "Running", "wait_until"]
