"""A case of the corpus: Ingresses, the equivalent configuration of nginx, and requests."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Request:
    """A request of a case.

    A negative `body` is a body in one chunk. `certificate` is the certificate of the client: `client`, or `foreign` of an unknown authority.
    With `times`, only the statuses of the repeated requests are compared."""

    target: str
    method: str = "GET"
    host: str = ""
    headers: tuple[str, ...] = ()
    body: int = 0
    tls: bool = False
    certificate: str = ""
    version: str = "HTTP/1.1"
    times: int = 1

    def __str__(self) -> str:
        text = f"{self.method} {'https' if self.tls else 'http'}://{self.host}{self.target}"
        shown = [f"{each[:60]}..." if len(each) > 63 else each for each in self.headers]
        shown += [self.version] if self.version != "HTTP/1.1" else []
        shown += [f"certificate {self.certificate}"] if self.certificate else []
        return " ".join([text if len(text) < 120 else text[:117] + "...", *(f"[{each}]" for each in shown)]).replace("\r\n", "; ")


@dataclass(frozen=True)
class Case:
    """A case. Its hosts belong to this case alone. Requests without a host use the first host.

    `http` has directives of the block http, and `servers` the servers."""

    name: str
    host: str
    objects: list[dict[str, Any]]
    servers: str
    requests: list[Request]
    http: str = ""


PREFIX = "nginx.ingress.kubernetes.io/"


def path(value: str, service: str = "web", kind: str = "Prefix") -> dict[str, Any]:
    """Returns a path of an Ingress."""
    return {"path": value, "pathType": kind, "backend": {"service": {"name": service, "port": {"number": 80}}}}


def ingress(name: str, host: str, paths: list[dict[str, Any]] | None = None, annotations: dict[str, str] | None = None, *, tls: bool = False,
            age: int = 0) -> dict[str, Any]:
    """Returns an Ingress of class nginx. `annotations` have no prefix. A greater `age` is an older Ingress."""
    rule: dict[str, Any] = {"http": {"paths": paths or [path("/")]}}
    if host:
        rule["host"] = host
    spec: dict[str, Any] = {"ingressClassName": "nginx", "rules": [rule]}
    if tls:
        spec["tls"] = [{"hosts": [host], "secretName": "certificate"}]
    return {
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": f"2026-01-01T00:00:{59 - age:02}Z",
                     "annotations": {PREFIX + key: value for key, value in (annotations or {}).items()}},
        "spec": spec,
    }
