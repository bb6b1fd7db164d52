"""A node: containerd, kubelet and kube-proxy, with the network of its pods."""

import json
import subprocess
from pathlib import Path

from . import addresses
from .certificates import Certificates
from .cgroups import ControlGroup
from .errors import ClusterError
from .machine import Machine
from .network import NetworkNamespace
from .part import Part
from .paths import BIN, RunFolder
from .processes import checked

CNI_PLUGINS = Path("/usr/lib/cni")
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
"""Each node has its own /run/containerd."""
PAUSE_IMAGE = "sluicegate.dev/cluster/pause:1"

LEASE = 20
"""The duration of a node's lease in seconds. kubelet renews the lease four times in this period."""


class Node:
    """A node of the cluster. The first node is 1."""

    def __init__(self, number: int, folder: RunFolder, network: NetworkNamespace, certificates: Certificates) -> None:
        self.number = number
        self.name = addresses.node_name(number)
        self.address = addresses.node_address(number)
        self._certificates = certificates
        self._cgroup = ControlGroup(f"{folder.identity}-{self.name}")
        self.machine = Machine(self.name, folder, network)
        self.files = self.machine.files
        self._proxy_kubeconfig = folder.path / "kube-proxy.kubeconfig"

        def part(name: str, argv: list[str]) -> Part:
            return Part(f"{self.name}/{name}", folder, argv, self.machine.enter, forks=True)

        self.containerd = part("containerd", ["containerd", "--config", self._file("containerd.toml")])
        self.containerd.ready = self._containerd_answers
        self.kubelet = part("kubelet", [str(BIN / "kubelet"), *self._kubelet_flags()])
        self.kubelet.ready = lambda: self._healthy(10248)
        self.proxy = part("kube-proxy", [str(BIN / "kube-proxy"), f"--config={self._file('kube-proxy.json')}"])
        self.proxy.ready = lambda: self._healthy(10256)
        self.parts = [self.machine.init, self.containerd, self.kubelet, self.proxy]

    def _file(self, name: str) -> str:
        return str(self.files / name)

    def start_containerd(self, images: list[Path]) -> None:
        """Starts the machine and containerd, and imports images."""
        self.files.mkdir(parents=True, exist_ok=True)
        self._write_files()
        self._cgroup.create()
        self.machine.start()
        self.containerd.start()
        for image in images:
            self.import_image(image)

    def stop(self) -> None:
        """Kills all processes of the node, and removes its remains on the machine."""
        self.machine.stop()
        self._cgroup.delete()

    def import_image(self, tar: Path) -> None:
        """Imports a docker-archive or an OCI archive."""
        with tar.open("rb") as file:
            done = subprocess.run([*self.machine.enter(), *self._ctr("images", "import", "-")], stdin=file,
                                  capture_output=True, text=True)
        if done.returncode != 0:
            raise ClusterError(f"{tar} cannot be imported into {self.name}: {(done.stderr or done.stdout).strip()}")

    def images(self) -> list[str]:
        """Returns the names of the images in containerd."""
        return checked([*self.machine.enter(), *self._ctr("images", "list", "--quiet")]).split()

    def _ctr(self, *argv: str) -> list[str]:
        return ["ctr", "--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", *argv]

    def _containerd_answers(self) -> bool:
        done = subprocess.run([*self.machine.enter(), *self._ctr("version")], capture_output=True)
        return done.returncode == 0

    def _healthy(self, port: int) -> bool:
        """Returns whether a part is healthy, from the first line of the response to a minimal request."""
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET /healthz HTTP/1.0\\r\\n\\r\\n' >&3; head -1 <&3"
        done = subprocess.run(
            [*self.machine.enter(), "timeout", "2", "bash", "-c", script], capture_output=True, text=True
        )
        return " 200 " in done.stdout

    def _kubelet_flags(self) -> list[str]:
        return [f"--config={self._file('kubelet.json')}", f"--kubeconfig={self._file('kubeconfig')}",
                f"--root-dir={self._file('kubelet')}", f"--hostname-override={self.name}", f"--node-ip={self.address}"]

    def _write_files(self) -> None:
        self._certificates.kubeconfig(self.name, self.files / "kubeconfig")
        (self.files / "containerd.toml").write_text(self._containerd_configuration())
        for name, content in [("kubelet.json", self._kubelet_configuration()), ("kube-proxy.json", self._proxy_configuration())]:
            (self.files / name).write_text(json.dumps(content, indent=1))
        cni = self.files / "cni"
        cni.mkdir(exist_ok=True)
        (cni / "pods.conflist").write_text(json.dumps(self._cni_configuration(), indent=1))

    def _containerd_configuration(self) -> str:
        cri = 'plugins."io.containerd.grpc.v1.cri"'
        return f"""version = 2
root = "{self._file('containerd')}"
state = "/run/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "{CONTAINERD_SOCKET}"
[{cri}]
sandbox_image = "{PAUSE_IMAGE}"
# The namespaces of pods, which must end with the node.
netns_mounts_under_state_dir = true
# In a container, root often may not protect processes from the out-of-memory killer.
restrict_oom_score_adj = true
[{cri}.cni]
bin_dir = "{CNI_PLUGINS}"
conf_dir = "{self._file('cni')}"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
Root = "/run/containerd/runc"
"""

    def _cni_configuration(self) -> dict[str, object]:
        return {
            "cniVersion": "0.4.0", "name": "pods",
            "plugins": [
                {
                    "type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True,
                    "ipam": {
                        "type": "host-local", "dataDir": self._file("addresses"),
                        "ranges": [[{"subnet": addresses.pod_network(self.number)}]], "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }

    def _kubelet_configuration(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"x509": {"clientCAFile": str(self._certificates.authority)}},
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(self._certificates.certificate(self.name)),
            "tlsPrivateKeyFile": str(self._certificates.key(self.name)),
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "cgroupDriver": "cgroupfs", "cgroupRoot": self._cgroup.path, "failCgroupV1": False, "failSwapOn": False,
            "volumePluginDir": self._file("volume-plugins"), "podLogsDir": self._file("pod-logs"),
            "nodeLeaseDurationSeconds": LEASE, "nodeStatusUpdateFrequency": "5s", "maxPods": 250,
            "kubeAPIQPS": 500, "kubeAPIBurst": 1000, "registryPullQPS": 0, "serializeImagePulls": False,
            # The name servers of the machine are unreachable from the node.
            "resolvConf": "",
            # A full disk or a busy machine must not fail a test.
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
                             "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
            "imageGCHighThresholdPercent": 100,
        }

    def _proxy_configuration(self) -> dict[str, object]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self._proxy_kubeconfig)},
            "mode": "nftables", "hostnameOverride": self.name, "clusterCIDR": addresses.PODS,
            "nodePortAddresses": ["primary"],
            # These settings belong to the whole machine, and stay unchanged.
            "conntrack": {"maxPerCore": 0, "min": 0},
            "nftables": {"minSyncPeriod": "0s"},
        }
