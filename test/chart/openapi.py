"""Validates objects against the schemas of Kubernetes, Gateway API, cert-manager and the Prometheus operator.

The Go tools fetch the modules with the schemas (api/openapi-spec/v3, and files of CustomResourceDefinitions). Schemas cannot express
all rules of an API server, such as that a selector must match the labels of its template.
"""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path

import yaml

KUBERNETES = "k8s.io/kubernetes@v1.36.3"
# The CustomResourceDefinitions of other projects by API group: the module and the folder in the module.
OTHERS = {
    "cert-manager.io": ("github.com/cert-manager/cert-manager@v1.21.2", "deploy/crds"),
    "gateway.networking.k8s.io": ("sigs.k8s.io/gateway-api@v1.6.3", "config/crd/standard"),
    "monitoring.coreos.com": ("github.com/prometheus-operator/prometheus-operator@v0.92.0", "example/prometheus-operator-crd"),
}
# The common fields of objects that the chart uses.
METADATA = {"type": "object", "properties": {
    "name": {"type": "string"}, "namespace": {"type": "string"},
    **{name: {"type": "object", "additionalProperties": {"type": "string"}} for name in ("labels", "annotations")},
}}


@functools.cache
def sources(module: str) -> Path:
    done = subprocess.run(["go", "mod", "download", "-json", module], capture_output=True, text=True, cwd="/")
    found = json.loads(done.stdout or "{}")
    if "Dir" not in found:
        raise RuntimeError(f"the sources of {module} cannot be fetched: {found.get('Error') or done.stderr}")
    return Path(found["Dir"])


@functools.cache
def schemas(group: str, version: str) -> dict:
    name = f"apis__{group}__{version}" if group else f"api__{version}"
    return json.loads((sources(KUBERNETES) / f"api/openapi-spec/v3/{name}_openapi.json").read_text())["components"]["schemas"]


@functools.cache
def definition(group: str, version: str, kind: str) -> dict | None:
    """Returns the schema of a kind from its CustomResourceDefinition."""
    module, folder = OTHERS[group]
    for path in sorted((sources(module) / folder).glob(f"{group}_{kind.lower()}*.yaml")):
        spec = yaml.safe_load(path.read_text())["spec"]
        if spec["names"]["kind"] == kind:
            for each in spec["versions"]:
                if each["name"] == version:
                    schema = each["schema"]["openAPIV3Schema"]
                    return {**schema, "properties": {**schema["properties"], "metadata": METADATA}}
    return None


def problems(thing: dict) -> list[str]:
    """Returns the problems of an object, each as `path: problem`."""
    group, _, version = thing["apiVersion"].rpartition("/")
    if group in OTHERS:
        schema = definition(group, version, thing["kind"])
        return list(Check({}).value(schema, thing, thing["kind"])) if schema else [unknown(thing)]
    known = schemas(group, version)
    kind = {"group": group, "version": version, "kind": thing["kind"]}
    for schema in known.values():
        if kind in schema.get("x-kubernetes-group-version-kind", []):
            return list(Check(known).value(schema, thing, thing["kind"]))
    return [unknown(thing)]


def unknown(thing: dict) -> str:
    return f"no kind {thing['kind']} in {thing['apiVersion']}"


class Check:
    """Validates a value against a schema. Unknown fields are problems, as with `kubectl apply --validate=strict`."""

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
