"""Renders the chart with Helm."""

from __future__ import annotations

import functools
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/sluicegate"
HELM = ROOT / "target/tools/helm"
NAMESPACE = "sluicegate"


class Refused(Exception):
    """Helm rejected the chart or its values."""


def helm(*arguments: str | Path, values: dict | None = None) -> str:
    """Runs Helm. The values are added to the values of files."""
    command = [HELM, *arguments, *(["--values", "-"] if values is not None else [])]
    done = subprocess.run(command, capture_output=True, text=True, input=json.dumps(values))
    if done.returncode:
        raise Refused(done.stderr + done.stdout)
    return done.stdout


def cases() -> list[Path]:
    """Returns the files of values, which cover each switch."""
    return sorted((CHART / "ci").glob("*-values.yaml"))


def rendered(values: dict | None = None, release: str = "sluicegate") -> Objects:
    return Objects.of_text(helm("template", release, CHART, "--namespace", NAMESPACE, values=values or {}))


@functools.cache
def rendered_file(values: Path) -> Objects:
    return Objects.of_text(helm("template", "sluicegate", CHART, "--namespace", NAMESPACE, "--values", values))


@dataclass
class Objects:
    """The rendered objects."""

    all: list[dict]

    @classmethod
    def of_text(cls, text: str) -> Objects:
        return cls([each for each in yaml.safe_load_all(text) if each])

    def of(self, *kinds: str) -> list[dict]:
        return [each for each in self.all if each["kind"] in kinds]

    def one(self, kind: str, name: str | None = None) -> dict:
        """Returns the only object of this kind, or of this kind and name."""
        found = [each for each in self.of(kind) if name in (None, each["metadata"]["name"])]
        assert len(found) == 1, f"{len(found)} of {kind} {name}: {self.names()}"
        return found[0]

    def names(self) -> set[str]:
        return {f"{each['kind']}/{each['metadata']['name']}" for each in self.all}

    def workloads(self) -> list[dict]:
        return self.of("Deployment", "DaemonSet")

    def serving(self) -> dict:
        """Returns the workload that serves requests."""
        found = [each for each in self.workloads() if "--listen-https=" in " ".join(container(each)["args"])]
        assert len(found) == 1, self.names()
        return found[0]


def pod(workload: dict) -> dict:
    return workload["spec"]["template"]["spec"]


def container(workload: dict) -> dict:
    (only,) = pod(workload)["containers"]
    return only


def option(workload: dict, name: str) -> list[str]:
    """Returns the values of an option of the workload's container."""
    prefix = f"--{name}="
    return [each.removeprefix(prefix) for each in container(workload)["args"] if each.startswith(prefix)]


def rules(objects: Objects, account: str) -> list[tuple[str, dict]]:
    """Returns the rights of a ServiceAccount in the namespace of the release: the namespace or `*`, and the rule."""
    found = []
    for binding in objects.of("ClusterRoleBinding", "RoleBinding"):
        if {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE} not in binding["subjects"]:
            continue
        where = binding["metadata"].get("namespace")
        roles = objects.of(binding["roleRef"]["kind"])
        for role in roles:
            if (role["metadata"]["name"], role["metadata"].get("namespace")) == (binding["roleRef"]["name"], where):
                found += [(where or "*", rule) for rule in role["rules"]]
    return found
