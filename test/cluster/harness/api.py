"""A client of the Kubernetes API. The start of kubectl takes longer than the measured times."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from . import addresses

if TYPE_CHECKING:
    from .cluster import Cluster

PLURALS = {
    "Ingress": "ingresses", "IngressClass": "ingressclasses", "GatewayClass": "gatewayclasses",
    "TCPRoute": "tcproutes", "EndpointSlice": "endpointslices",
    "SecurityPolicy": "securitypolicies", "RateLimitPolicy": "ratelimitpolicies", "TrafficPolicy": "trafficpolicies",
}
CLUSTER_SCOPED = {"Namespace", "Node", "IngressClass", "GatewayClass", "ClusterRole", "ClusterRoleBinding"}
MERGE = "application/merge-patch+json"


class ApiError(Exception):
    """An error response of the API server."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Connection(http.client.HTTPSConnection):
    """A connection that closes with its thread, without a warning."""

    def __del__(self) -> None:
        self.close()


class Api:
    """A client of the API server with the rights of the administrator. Threads may share the client, because each thread has its own connection."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        certificates = cluster.folder.certificates
        self._tls = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        self._tls.load_cert_chain(certificates / "admin.crt", certificates / "admin.key")
        self._threads = threading.local()

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Returns the response: parsed, or as text if it is not JSON."""
        data = None if body is None else json.dumps(body)
        try:
            answer, text = self._send(method, path, data, kind)
        except (OSError, http.client.HTTPException):
            # An idle connection may have ended with an earlier API server.
            answer, text = self._send(method, path, data, kind)
        if answer.status >= 300:
            raise ApiError(answer.status, f"{method} {path}: {text}")
        return json.loads(text) if "json" in answer.headers.get("content-type", "") else text

    def create(self, *objects: dict[str, Any]) -> None:
        for each in objects:
            self.ask("POST", collection(each), each)

    def get(self, like: dict[str, Any]) -> Any:
        """Returns the current object with this kind, namespace and name."""
        return self.ask("GET", path(like))

    def find(self, like: dict[str, Any]) -> Any | None:
        """Returns the current object, or None if it does not exist."""
        try:
            return self.get(like)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, like: dict[str, Any], **query: str) -> list[Any]:
        """Returns all objects of this kind in this namespace."""
        items: list[Any] = self.ask("GET", f"{collection(like)}?{urlencode(query)}")["items"]
        return items

    def patch(self, like: dict[str, Any], patch: dict[str, Any], part: str = "") -> Any:
        """Merges a patch into an object, or into a subresource such as `/status`."""
        return self.ask("PATCH", path(like) + part, patch, MERGE)

    def delete(self, *objects: dict[str, Any]) -> None:
        for each in objects:
            self.ask("DELETE", path(each))

    def _send(self, method: str, path: str, data: str | None, kind: str) -> tuple[http.client.HTTPResponse, str]:
        connection = getattr(self._threads, "connection", None) or self._connect()
        self._threads.connection = None
        connection.request(method, path, data, {"Content-Type": kind, "Accept": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        self._threads.connection = connection
        return answer, text

    def _connect(self) -> http.client.HTTPConnection:
        server = (addresses.API_SERVER, addresses.API_SERVER_PORT)
        connection = Connection(*server, context=self._tls, timeout=10)
        with self._cluster.namespace.inside():
            connection.connect()
        assert isinstance(connection.sock, socket.socket)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def collection(like: dict[str, Any]) -> str:
    """Returns the path of all objects of this kind in this namespace."""
    version, kind, metadata = like["apiVersion"], like["kind"], like["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = "" if kind in CLUSTER_SCOPED else f"/namespaces/{metadata.get('namespace', 'default')}"
    return f"{root}{namespace}/{PLURALS.get(kind, kind.lower() + 's')}"


def path(like: dict[str, Any]) -> str:
    """Returns the path of an object."""
    return f"{collection(like)}/{like['metadata']['name']}"
