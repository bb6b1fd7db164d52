"""The certificates of a cluster, and its kubeconfigs."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import addresses
from .processes import checked

DAYS = "365"
NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]


class Certificates:
    """A CA and its certificates: `NAME.crt` and `NAME.key` in one folder, created by openssl."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = folder / "ca.crt"
        self.service_accounts = folder / "service-accounts.key"
        """The key for tokens of service accounts."""
        self.service_accounts_public = folder / "service-accounts.pub"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def create(self, nodes: int) -> None:
        """Creates the missing certificates for a cluster with this number of nodes."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.authority.exists():
            checked(["openssl", "req", "-x509", *NEW_KEY, "-days", DAYS, "-subj", "/CN=cluster",
                     "-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
                     "-keyout", str(self.key("ca")), "-out", str(self.authority)])
        if not self.service_accounts.exists():
            checked(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256",
                     "-out", str(self.service_accounts)])
            checked(["openssl", "pkey", "-in", str(self.service_accounts), "-pubout",
                     "-out", str(self.service_accounts_public)])
        api_server = ",".join([
            f"IP:{addresses.API_SERVER}", f"IP:{addresses.KUBERNETES_SERVICE}", "IP:127.0.0.1", "DNS:localhost",
            "DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc",
            "DNS:kubernetes.default.svc.cluster.local",
        ])
        # The API server authorizes these names and groups (default bindings of RBAC, and the authorizer for nodes).
        wanted = [
            ("kube-apiserver", "/CN=kube-apiserver", api_server),
            ("admin", "/O=system:masters/CN=admin", ""),
            ("kube-controller-manager", "/CN=system:kube-controller-manager", ""),
            ("kube-scheduler", "/CN=system:kube-scheduler", ""),
            ("kube-proxy", "/CN=system:kube-proxy", ""),
        ]
        for node in range(1, nodes + 1):
            name = addresses.node_name(node)
            wanted.append((name, f"/O=system:nodes/CN=system:node:{name}", f"IP:{addresses.node_address(node)},DNS:{name}"))
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda each: self._sign(*each), wanted))

    def _sign(self, name: str, subject: str, names: str) -> None:
        if self.certificate(name).exists():
            return
        argv = ["openssl", "req", "-x509", "-CA", str(self.authority), "-CAkey", str(self.key("ca")), *NEW_KEY,
                "-days", DAYS, "-subj", subject, "-keyout", str(self.key(name)), "-out", str(self.certificate(name)),
                "-addext", "basicConstraints=critical,CA:FALSE", "-addext", "extendedKeyUsage=clientAuth,serverAuth"]
        checked(argv + (["-addext", f"subjectAltName={names}"] if names else []))

    def kubeconfig(self, name: str, to: Path) -> Path:
        """Writes a self-contained kubeconfig with the certificate and the address of the API server."""

        def data(path: Path) -> str:
            return base64.b64encode(path.read_bytes()).decode()

        server = f"https://{addresses.API_SERVER}:{addresses.API_SERVER_PORT}"
        to.touch(mode=0o600)
        to.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "cluster",
            "clusters": [{"name": "cluster", "cluster": {
                "server": server, "certificate-authority-data": data(self.authority)}}],
            "users": [{"name": name, "user": {
                "client-certificate-data": data(self.certificate(name)), "client-key-data": data(self.key(name))}}],
            "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": name}}],
        }, indent=1))
        return to
