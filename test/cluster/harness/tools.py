"""The programs of a cluster, built once from Go modules into `target/cluster/bin`."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .errors import ClusterError
from .paths import BIN, CLUSTER
from .processes import checked

TOOLS = CLUSTER / "tools"
KUBERNETES_VERSION = "k8s.io/component-base/version"


@dataclass(frozen=True)
class Tool:
    """A program: the folder below `tools` whose go.mod sets its version, its module, and its package."""

    name: str
    folder: str
    module: str
    package: str = ""
    """The package in the module. A package in the folder starts with a dot."""
    variables: tuple[str, ...] = ()
    """The variables of the linker for the version of the program. {version} is replaced."""

    @property
    def version(self) -> str:
        """The version in go.mod, such as `v1.36.3`."""
        text = (TOOLS / self.folder / "go.mod").read_text()
        found = re.search(rf"^(?:require)?\s+{re.escape(self.module)} (v\S+)", text, re.MULTILINE)
        if not found:
            raise ClusterError(f"{TOOLS / self.folder / 'go.mod'} does not require {self.module}")
        return found[1]

    @property
    def built(self) -> bool:
        """Whether the program is built in the version of go.mod, and from the current sources."""
        stamp = BIN / f".{self.name}.version"
        return (BIN / self.name).exists() and stamp.exists() and stamp.read_text() == self._stamp

    @property
    def _own(self) -> bool:
        return self.package.startswith(".")

    @property
    def _stamp(self) -> str:
        """The version, and the digest of own sources."""
        sources = b"".join(file.read_bytes() for file in sorted((TOOLS / self.folder / self.package).glob("*.go"))) if self._own else b""
        return self.version + (f" {hashlib.sha256(sources).hexdigest()}" if sources else "") + "\n"

    def build(self) -> None:
        """Builds the program in seconds to minutes. The build needs Go and its module proxy."""
        if not shutil.which("go"):
            raise ClusterError(f"building {self.name} needs Go, of version 1.26 or later: https://go.dev/dl")
        BIN.mkdir(parents=True, exist_ok=True)
        new = BIN / f".{self.name}.new"
        settings = "".join(f" -X {variable.format(version=self.version)}" for variable in self.variables)
        done = subprocess.run(
            ["go", "build", "-trimpath", "-ldflags", f"-s -w{settings}", "-o", str(new),
             self.package if self._own else f"{self.module}{self.package}"],
            cwd=TOOLS / self.folder, env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"},
        )
        if done.returncode != 0:
            raise ClusterError(f"{self.name} {self.version} cannot be built; Go says why above")
        if self.name == "kwok":
            _keep_stages()
        if self.name == "cert-manager":
            _keep_definitions()
        new.replace(BIN / self.name)
        (BIN / f".{self.name}.version").write_text(self._stamp)


def _kubernetes(name: str) -> Tool:
    variables = (f"{KUBERNETES_VERSION}.gitVersion={{version}}", f"{KUBERNETES_VERSION}.gitMajor=1",
                 f"{KUBERNETES_VERSION}.gitMinor=36")
    return Tool(name, "kubernetes", "k8s.io/kubernetes", f"/cmd/{name}", variables)


ALL = {tool.name: tool for tool in [
    Tool("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    # The API server first, because the other programs share most of its packages.
    *map(_kubernetes, ["kube-apiserver", "kube-controller-manager", "kubectl", "kube-scheduler", "kubelet", "kube-proxy"]),
    Tool("kwok", "kwok", "sigs.k8s.io/kwok", "/cmd/kwok", ("sigs.k8s.io/kwok/pkg/consts.Version={version}",)),
    Tool("contour", "contour", "github.com/projectcontour/contour", "/cmd/contour"),
    Tool("cert-manager", "cert-manager", "github.com/cert-manager/cert-manager", "./controller"),
    Tool("acmesolver", "cert-manager", "github.com/cert-manager/cert-manager", "./acmesolver"),
]}

API = ["etcd", "kube-apiserver", "kubectl"]
"""The programs for `up --api-only`."""
CLUSTER_TOOLS = [*API, "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"]
"""The programs for `up`."""


def build(names: list[str], say: Callable[[str], None] = print) -> None:
    """Builds the programs that are missing or have another version. Without names, builds the programs for `up`."""
    unknown = [name for name in names if name not in ALL]
    if unknown:
        raise ClusterError(f"nothing is called {', '.join(unknown)}; there are {', '.join(ALL)}")
    for name in names or CLUSTER_TOOLS:
        tool = ALL[name]
        if tool.built:
            say(f"{name} {tool.version} is there")
            continue
        say(f"building {name} {tool.version}")
        started = time.monotonic()
        tool.build()
        size = (BIN / name).stat().st_size / 1e6
        say(f"built {name} {tool.version}: {size:.0f} MB, {time.monotonic() - started:.1f} s")


def require(names: list[str]) -> None:
    """Fails if a program is missing."""
    missing = [name for name in names if not ALL[name].built]
    if missing:
        raise ClusterError(
            f"{BIN} lacks {', '.join(missing)} in the version that test/cluster/tools names:"
            f" test/cluster/cluster build {' '.join(missing)}"
        )


def _module(folder: str, name: str) -> Path:
    """Returns the folder of a module in the module cache."""
    return Path(json.loads(checked(["go", "list", "-m", "-json", name], cwd=TOOLS / folder))["Dir"])


def _keep_definitions() -> None:
    """Copies the CustomResourceDefinitions of cert-manager."""
    kept = BIN / "cert-manager-crds"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    for file in sorted((_module("cert-manager", "github.com/cert-manager/cert-manager") / "deploy/crds").glob("*.yaml")):
        (kept / file.name).write_text(file.read_text())


def _keep_stages() -> None:
    """Copies the files of KWOK's module with the behaviour of its nodes and pods."""
    module = _module("kwok", "sigs.k8s.io/kwok")
    stages = BIN / "kwok-stages"
    shutil.rmtree(stages, ignore_errors=True)
    for kind in ["node/fast", "node/heartbeat-with-lease", "pod/fast"]:
        for file in sorted((module / "kustomize/stage" / kind).glob("*.yaml")):
            if file.name.startswith("kustomization"):
                continue
            stages.mkdir(exist_ok=True)
            (stages / f"{kind.replace('/', '-')}-{file.name}").write_text(file.read_text())
