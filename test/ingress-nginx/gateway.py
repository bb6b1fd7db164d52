"""The gateway under test, with the same Ingresses."""

import http.client
import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

from process import Program, free_ports

PROJECT = Path(__file__).resolve().parent.parent.parent
PROGRAM = Path(os.environ.get("SLUICEGATE") or PROJECT / "target/debug/sluicegate").resolve()
"""The program: the file of the environment variable SLUICEGATE, or the debug build."""

SETTINGS = {"global-allowed-response-headers": "X-Custom,X-Frame-Options"}
"""The ConfigMap of both controllers, as far as it differs from the defaults. ingress-nginx also needs `allow-snippet-annotations: "true"`
and `annotations-risk-level: Critical`."""


def service(name: str, port: int) -> list[dict[str, Any]]:
    """Returns a Service with one endpoint at a port of 127.0.0.1."""
    ports = {"name": "http", "port": port, "protocol": "TCP"}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
         "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80, "targetPort": port}]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
         "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
         "ports": [ports], "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}]},
    ]


class Gateway:
    """A running gateway with Ingresses in a folder. `settings` are added to the ConfigMap."""

    def __init__(self, folder: Path, objects: list[dict[str, Any]], settings: dict[str, str]) -> None:
        self.http, self.https, admin = free_ports(3)
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"},
            "data": {**SETTINGS, **settings}}
        manifests = folder / "manifests"
        manifests.mkdir()
        (manifests / "all.json").write_text("\n---\n".join(json.dumps(each) for each in [config_map, *objects]))
        (manifests / "all.json").rename(manifests / "all.yaml")
        self.manifests = manifests

        def is_ready() -> bool:
            try:
                with closing(http.client.HTTPConnection("127.0.0.1", admin, timeout=2)) as connection:
                    connection.request("GET", "/readyz")
                    return connection.getresponse().status == 200
            except OSError:
                return False

        self.program = Program([
            str(PROGRAM), "serve", "--manifests", str(manifests), "--ingress-nginx-compatibility", "--configmap", "default/settings",
            "--listen", f"127.0.0.1:{self.http}", "--listen-https", f"127.0.0.1:{self.https}", "--admin", f"127.0.0.1:{admin}",
            "--workers", "1", "--no-takeover", "--shutdown-grace", "0s", "--shutdown-idle", "0s", "--shutdown-timeout", "1s",
        ], folder / "gateway.log", is_ready)

    def stop(self) -> None:
        self.program.stop()
