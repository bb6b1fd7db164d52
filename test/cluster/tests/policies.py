"""Policies, Consumers and tokens."""

import base64
import hmac
import json
import time
from typing import Any

from .process import Manifest, metadata

VERSION = "sluicegate.dev/v1alpha1"


def security_policy(namespace: str, name: str, ingress: str, **spec: Any) -> Manifest:
    return policy("SecurityPolicy", namespace, name, ingress, **spec)


def rate_limit_policy(namespace: str, name: str, ingress: str, **spec: Any) -> Manifest:
    return policy("RateLimitPolicy", namespace, name, ingress, **spec)


def traffic_policy(namespace: str, name: str, ingress: str, **spec: Any) -> Manifest:
    return policy("TrafficPolicy", namespace, name, ingress, **spec)


def policy(kind: str, namespace: str, name: str, ingress: str, **spec: Any) -> Manifest:
    target = {"group": "networking.k8s.io", "kind": "Ingress", "name": ingress}
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata(namespace, name), "spec": {"targetRefs": [target], **spec}}


def consumer(namespace: str, name: str, **spec: Any) -> Manifest:
    return {"apiVersion": VERSION, "kind": "Consumer", "metadata": metadata(namespace, name), "spec": spec}


def jwt(secret: str) -> dict[str, Any]:
    """Returns the authentication by tokens that are signed with the key in a Secret."""
    return {"jwt": {"providers": [{"name": "acme", "issuer": "acme", "keys": {"sharedSecretRef": {"name": secret, "key": "secret"}}}]}}


def token(secret: bytes, **claims: Any) -> str:
    """Returns a token signed by HS256."""
    parts = [{"alg": "HS256", "typ": "JWT"}, {"iss": "acme", "sub": "42", "exp": int(time.time()) + 600, **claims}]
    message = b".".join(encoded(json.dumps(part).encode()) for part in parts)
    return (message + b"." + encoded(hmac.digest(secret, message, "sha256"))).decode()


def encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
