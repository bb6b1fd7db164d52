"""Simulated nodes. KWOK reports their pods as running, so a cluster can have thousands of pods."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from . import tools
from .part import Part
from .paths import BIN

if TYPE_CHECKING:
    from .cluster import Cluster

LABEL = "sluicegate.dev/simulated"
"""The label and the taint of simulated nodes."""
ANNOTATION = "kwok.x-k8s.io/node"
AT_ONCE = 32
"""The number of concurrent changes of pods. With the default of 4, thousands of pods would take minutes."""
PODS = "198.19.0.0/16"
"""The addresses of simulated pods. No process listens there."""


def simulated(number: int) -> str:
    """Returns the name of a simulated node. The first node is 1."""
    return f"simulated-{number}"


class Kwok:
    """KWOK as a part of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._options = cluster.folder.path / "kwok.json"
        stages = [f"--config={file}" for file in [self._options, *sorted((BIN / "kwok-stages").glob("*.yaml"))]]
        self.part = Part("kwok", cluster.folder, [
            str(BIN / "kwok"), f"--kubeconfig={cluster.folder.kubeconfig}", f"--cidr={PODS}", *stages,
            f"--manage-nodes-with-annotation-selector={ANNOTATION}=fake", "--server-address=127.0.0.1:10247",
            # By default, KWOK logs each pod.
            "--v=WARN",
        ], cluster.namespace.enter)

    def up(self, nodes: int = 1) -> None:
        """Adds simulated nodes. A pod runs there if it tolerates their taint and selects their label, both `LABEL`."""
        tools.require(["kwok"])
        self._options.write_text(json.dumps({
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration", "options": {
                "podPlayStageParallelism": AT_ONCE,
                # Without leases, the controllers declare a node lost after 20 s.
                "nodeLeaseDurationSeconds": 40,
                # The defaults of KWOK. A file with options replaces all defaults.
                "nodePlayStageParallelism": 4, "nodeLeaseParallelism": 4, "podsOnNodeSyncParallelism": 1,
                "enablePodsOnNodeSyncListPager": True,
            },
        }))
        self.part.start()
        names = [simulated(number) for number in range(1, nodes + 1)]
        self._cluster.apply("\n---\n".join(json.dumps({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {LABEL: "true"}, "annotations": {ANNOTATION: "fake"}},
            "spec": {"taints": [{"key": LABEL, "value": "true", "effect": "NoSchedule"}]},
        }) for name in names))
        for name in names:
            self._cluster.wait(f"node/{name}", "condition=Ready")

    def down(self) -> None:
        """Removes the simulated nodes, and their pods."""
        nodes = {node["metadata"]["name"] for node in self._cluster.json("get", "nodes", f"--selector={LABEL}=true")["items"]}
        self._cluster.kubectl("delete", "nodes", f"--selector={LABEL}=true")
        # Kubernetes deletes the pods of removed nodes only after a minute.
        pods = [pod for pod in self._cluster.json("get", "pods", "--all-namespaces")["items"]
                if pod["spec"].get("nodeName") in nodes]
        if pods:
            self._cluster.kubectl("delete", "--force", "--grace-period=0", "--ignore-not-found", "--filename=-",
                                  input=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
        self.part.kill()
