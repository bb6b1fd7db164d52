"""The compared gateways, as pods on the network of the node."""

import json
import subprocess
from pathlib import Path

from harness import Cluster, ClusterError, wait_until
from harness.paths import BIN, CLUSTER, IMAGES, PROJECT
from images.image import Image


CPU = 1
"""The CPU request of each gateway's pod."""


class Gateway:
    """A gateway in the cluster."""

    name: str
    ingress_class: str

    def up(self, cluster: Cluster) -> None:
        """Deploys the gateway, and waits until it is ready."""
        raise NotImplementedError

    def down(self, cluster: Cluster) -> None:
        """Removes the gateway, and waits until its pods are gone."""
        raise NotImplementedError


class Sluicegate(Gateway):
    """Sluicegate, from its image and its chart."""

    name = "sluicegate"
    ingress_class = "sluicegate"
    HELM = PROJECT / "target/tools/helm"
    VALUES = PROJECT / "examples/published/ingress-2020/gateway-values.yaml"

    def __init__(self, image: Path) -> None:
        if not self.HELM.exists():
            raise ClusterError("Helm is missing: scripts/setup chart")
        self.image = image

    def up(self, cluster: Cluster) -> None:
        cluster.import_image(self.image)
        # The tag of the archive, which may differ from the version of the chart.
        repository, _, tag = archived_name(self.image).rpartition(":")
        cluster.run([
            str(self.HELM), "install", "sluicegate", str(PROJECT / "charts/sluicegate"), "--namespace=sluicegate", "--create-namespace",
            f"--values={self.VALUES}", f"--set=image.repository={repository},image.tag={tag},image.pullPolicy=Never",
            # A pod without a CPU request receives only the CPU time that all others leave, including kubelet and the
            # API server.
            "--set=status.source=Nodes", f"--set=resources.requests.cpu={CPU}", "--wait", "--timeout=60s",
        ], timeout=90)

    def down(self, cluster: Cluster) -> None:
        cluster.run([str(self.HELM), "uninstall", "sluicegate", "--namespace=sluicegate"])
        # No client is connected, so the gateway may end at once.
        gone(cluster, "sluicegate")


class Contour(Gateway):
    """Contour with Envoy."""

    name = "contour"
    ingress_class = "contour"
    ENVOY = PROJECT / "target/tools/envoy"

    def up(self, cluster: Cluster) -> None:
        envoy = next(self.ENVOY.glob("lib/python*/site-packages/envoy/_bin/envoy"), None) if self.ENVOY.exists() else None
        if envoy is None or not (BIN / "contour").exists():
            raise ClusterError("Contour or Envoy is missing: scripts/setup peers, test/cluster/cluster build contour")
        for name, program in [("contour", BIN / "contour"), ("envoy", envoy)]:
            tar = IMAGES / f"{name}.tar"
            if not tar.exists() or tar.stat().st_mtime < program.stat().st_mtime:
                Image(f"sluicegate.dev/cluster/{name}:1", program).write(tar)
            cluster.import_image(tar)
        module = subprocess.run(["go", "list", "-m", "-f", "{{.Dir}}", "github.com/projectcontour/contour"],
                                cwd=CLUSTER / "tools/contour", capture_output=True, text=True, check=True).stdout.strip()
        cluster.apply((Path(module) / "examples/contour/01-crds.yaml").read_text())
        cluster.apply((Path(__file__).parent / "contour.yaml").read_text())
        cluster.kubectl("rollout", "status", "daemonset/contour", "--namespace=projectcontour", "--timeout=60s")

    def down(self, cluster: Cluster) -> None:
        cluster.kubectl("delete", "daemonset/contour", "--namespace=projectcontour")
        gone(cluster, "projectcontour")


def gone(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("delete", "pods", "--all", f"--namespace={namespace}", "--grace-period=1", "--wait=false")
    wait_until(lambda: not cluster.json("get", "pods", f"--namespace={namespace}")["items"], f"{namespace} to be gone", 60, 0.2)


def archived_name(image: Path) -> str:
    """Returns the name of the image in an archive."""
    done = subprocess.run(["tar", "--extract", "--to-stdout", f"--file={image}", "manifest.json"], capture_output=True, check=True)
    return str(json.loads(done.stdout)[0]["RepoTags"][0])
