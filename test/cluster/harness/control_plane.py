"""The control plane: etcd, the API server, the controller manager and the scheduler, in the network of the first node."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from . import addresses
from .certificates import Certificates
from .part import Part
from .paths import BIN, RunFolder

SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc.cluster.local"

NODE_GRACE = 50
"""The seconds without a report after which a node is lost, the default of Kubernetes. Tests pause kubelets for a shorter time."""


class ControlPlane:
    """The parts of the control plane, and their command lines."""

    def __init__(
        self, folder: RunFolder, certificates: Certificates, enter: Callable[[], list[str]],
        kubectl_works: Callable[[str], bool], controllers: bool, scheduler: bool, manager_flags: Sequence[str],
    ) -> None:
        """`kubectl_works(PATH)` requests a path of the API server. Without `controllers`, pods need no service account."""
        self._folder = folder
        self._certificates = certificates

        def part(name: str, flags: list[str], ready: Callable[[], bool] | None = None) -> Part:
            return Part(name, folder, [str(BIN / name), *flags], enter, ready)

        self.etcd = part("etcd", self._etcd())
        self.api_server = part("kube-apiserver", self._api_server(controllers), lambda: kubectl_works("/readyz"))
        self.controller_manager = part("kube-controller-manager", [*self._controller_manager(), *manager_flags])
        self.scheduler = part("kube-scheduler", self._scheduler())
        self.parts = [self.etcd, self.api_server]
        self.parts += [self.controller_manager] if controllers else []
        self.parts += [self.scheduler] if scheduler else []

    def _file(self, name: str) -> str:
        return str(self._folder.path / name)

    def _kubeconfig(self, name: str) -> str:
        return self._file(f"{name}.kubeconfig")

    def write_files(self) -> None:
        """Writes the files of the parts."""
        for name in ["kube-controller-manager", "kube-scheduler", "kube-proxy"]:
            self._certificates.kubeconfig(name, Path(self._kubeconfig(name)))
        Path(self._file("scheduler.json")).write_text(json.dumps({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": self._kubeconfig("kube-scheduler"), "qps": 500, "burst": 1000},
            "leaderElection": {"leaderElect": False},
        }))

    def _etcd(self) -> list[str]:
        client = "http://127.0.0.1:2379"
        # The data need not survive the machine, so etcd does not wait for the disk.
        return ["--name=cluster", f"--data-dir={self._file('etcd')}", "--unsafe-no-fsync", "--log-level=warn",
                f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
                "--listen-peer-urls=http://127.0.0.1:2380"]

    def _api_server(self, controllers: bool) -> list[str]:
        certificates = self._certificates
        flags = [
            "--etcd-servers=http://127.0.0.1:2379",
            f"--advertise-address={addresses.API_SERVER}", f"--secure-port={addresses.API_SERVER_PORT}",
            f"--service-cluster-ip-range={addresses.SERVICES}",
            f"--client-ca-file={certificates.authority}",
            f"--tls-cert-file={certificates.certificate('kube-apiserver')}",
            f"--tls-private-key-file={certificates.key('kube-apiserver')}",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
            f"--service-account-issuer={SERVICE_ACCOUNT_ISSUER}",
            f"--service-account-key-file={certificates.service_accounts_public}",
            f"--service-account-signing-key-file={certificates.service_accounts}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-certificate-authority={certificates.authority}",
            f"--kubelet-client-certificate={certificates.certificate('admin')}",
            f"--kubelet-client-key={certificates.key('admin')}",
            f"--cert-dir={certificates.folder}",
        ]
        # Without controllers, namespaces have no service account, and each pod would need one.
        return flags if controllers else [*flags, "--disable-admission-plugins=ServiceAccount"]

    def _controller_manager(self) -> list[str]:
        kubeconfig = self._kubeconfig("kube-controller-manager")
        return [
            f"--kubeconfig={kubeconfig}", "--bind-address=127.0.0.1", "--leader-elect=false",
            "--kube-api-qps=500", "--kube-api-burst=1000",
            f"--root-ca-file={self._certificates.authority}", "--use-service-account-credentials",
            f"--service-account-private-key-file={self._certificates.service_accounts}",
            f"--node-monitor-grace-period={NODE_GRACE}s",
        ]

    def _scheduler(self) -> list[str]:
        return [f"--config={self._file('scheduler.json')}", "--bind-address=127.0.0.1"]
