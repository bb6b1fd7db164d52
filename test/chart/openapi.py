"""Kubernetes' own schemas: whether an object is one that an API server takes.

They come with Kubernetes' sources (api/openapi-spec/v3), whose module the Go tools fetch. What a schema cannot say, such as
that a selector has to match the labels of a template, only an API server knows.
"""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path

KUBERNETES = "v1.36.3"
# Objects of others, by their groups: no schema of Kubernetes has them.
FOREIGN = ("gateway.networking.k8s.io", "monitoring.coreos.com")


@functools.cache
def folder() -> Path:
    command = ["go", "mod", "download", "-json", f"k8s.io/kubernetes@{KUBERNETES}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    module = json.loads(done.stdout or "{}")
    if "Dir" not in module:
        raise RuntimeError(f"Kubernetes' sources cannot be had: {module.get('Error') or done.stderr}")
    return Path(module["Dir"], "api/openapi-spec/v3")


@functools.cache
def schemas(api_version: str) -> dict:
    group, _, version = api_version.rpartition("/")
    name = f"apis__{group}__{version}" if group else f"api__{version}"
    return json.loads((folder() / f"{name}_openapi.json").read_text())["components"]["schemas"]


def problems(thing: dict) -> list[str]:
    """What is wrong with an object, each as `path: what`."""
    group, _, version = thing["apiVersion"].rpartition("/")
    if group in FOREIGN:
        return []
    known = schemas(thing["apiVersion"])
    kind = {"group": group, "version": version, "kind": thing["kind"]}
    for schema in known.values():
        if kind in schema.get("x-kubernetes-group-version-kind", []):
            return list(Check(known).value(schema, thing, thing["kind"]))
    return [f"no kind {thing['kind']} in {thing['apiVersion']}"]


class Check:
    """A value against a schema, with unknown fields refused as by `kubectl apply --validate=strict`."""

    TYPES = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list, "object": dict}

    def __init__(self, known: dict):
        self.known = known

    def value(self, schema: dict, value: object, path: str):
        if reference := schema.get("$ref"):
            yield from self.value(self.known[reference.rpartition("/")[2]], value, path)
            return
        for part in schema.get("allOf", []):
            yield from self.value(part, value, path)
        if either := schema.get("oneOf"):
            if all(any(self.value(part, value, path)) for part in either):
                yield f"{path}: {value!r} is none of {either}"
            return
        expected = schema.get("type")
        if expected is None:
            return
        boolean = isinstance(value, bool) and expected != "boolean"
        if boolean or not isinstance(value, self.TYPES[expected]):
            yield f"{path}: {value!r} is no {expected}"
            return
        if "enum" in schema and value not in schema["enum"]:
            yield f"{path}: {value!r} is none of {schema['enum']}"
        if isinstance(value, dict):
            yield from self.fields(schema, value, path)
        elif isinstance(value, list):
            for nth, item in enumerate(value):
                yield from self.value(schema["items"], item, f"{path}[{nth}]")

    def fields(self, schema: dict, value: dict, path: str):
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        for name in schema.get("required", []):
            if name not in value:
                yield f"{path}.{name}: is missing"
        for name, field in value.items():
            if properties and name in properties:
                yield from self.value(properties[name], field, f"{path}.{name}")
            elif others:
                yield from self.value(others if isinstance(others, dict) else {}, field, f"{path}.{name}")
            elif properties:
                yield f"{path}.{name}: no such field"
