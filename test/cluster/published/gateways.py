"""The gateways that are compared, each as pods on the network of the node."""

import json
import subprocess
from pathlib import Path

from harness import Cluster, ClusterError, wait_until
from harness.paths import BIN, CLUSTER, IMAGES, PROJECT
from images.image import Image


CPU = 1
"""What the pod of each gateway asks for."""


class Gateway:
    """A gateway that is deployed for a while."""

    name: str
    ingress_class: str

    def up(self, cluster: Cluster) -> None:
        """Deploys it, and waits until it is ready."""
        raise NotImplementedError

    def down(self, cluster: Cluster) -> None:
        """Removes it, and waits until its pods are gone."""
        raise NotImplementedError


class Sluicegate(Gateway):
    """From its image and its chart."""

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
        # What is in the archive is what is run, whatever the chart's version says.
        repository, _, tag = archived_name(self.image).rpartition(":")
        cluster.run([
            str(self.HELM), "install", "sluicegate", str(PROJECT / "charts/sluicegate"), "--namespace=sluicegate", "--create-namespace",
            f"--values={self.VALUES}", f"--set=image.repository={repository},image.tag={tag},image.pullPolicy=Never",
            # A pod that asks for no CPU gets what all others leave, also what kubelet and the API server leave.
            "--set=status.source=Nodes", f"--set=resources.requests.cpu={CPU}", "--wait", "--timeout=60s",
        ], timeout=90)

    def down(self, cluster: Cluster) -> None:
        cluster.run([str(self.HELM), "uninstall", "sluicegate", "--namespace=sluicegate"])
        # Nobody is connected any more: it need not take its time.
        gone(cluster, "sluicegate")


class Contour(Gateway):
    """Contour, which tells Envoy about the cluster."""

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
    """The name of the image in an archive."""
    done = subprocess.run(["tar", "--extract", "--to-stdout", f"--file={image}", "manifest.json"], capture_output=True, check=True)
    return str(json.loads(done.stdout)[0]["RepoTags"][0])
