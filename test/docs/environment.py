"""Where the pages run: a cluster, or a machine without a cluster. Both have no network but their own."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PROJECT = DOCS.parents[1]
sys.path[:0] = [str(PROJECT / "test/cluster")]

from harness import Cluster, ClusterError, wait_until  # noqa: E402
from harness.network import NetworkNamespace  # noqa: E402
from harness.processes import checked  # noqa: E402
from images.image import Image  # noqa: E402
from page import PageError  # noqa: E402
from session import Session  # noqa: E402
from tests.gateway import HELM, chart, image  # noqa: E402
from tests.process import gateway_api_folder  # noqa: E402

HTTPBIN = "2.26.0"
"""The version of the test server that the pages deploy."""
KINDS = ("all,ingress,configmap,secret,serviceaccount,role,rolebinding,persistentvolumeclaim,gateway.gateway.networking.k8s.io,httproute,grpcroute,"
         "referencegrant,securitypolicy,consumer,ratelimitpolicy,trafficpolicy,api,plan,subscription")
"""The kinds of objects that a page may leave behind."""
OWN_OBJECTS = ("configmap/kube-root-ca.crt", "serviceaccount/default", "service/kubernetes")


def program() -> Path:
    """Returns the gateway: the program in SLUICEGATE, or the newest build."""
    if given := os.environ.get("SLUICEGATE"):
        return Path(PROJECT, given).resolve()
    built = [path for path in (PROJECT / "target" / profile / "sluicegate" for profile in ("debug", "local", "release")) if path.exists()]
    if not built:
        raise PageError("sluicegate is not built: cargo build")
    return max(built, key=lambda path: path.stat().st_mtime)


class Place:
    """A folder for each page, and the stand-ins for programs that a test cannot have."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sluicegate-docs-"))
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.bin.joinpath("sluicegate").symlink_to(program())
        for name in ("go-httpbin", "sluicegate-lab"):
            found = PROJECT / "target/tools" / name if name == "go-httpbin" else PROJECT / "target/debug" / name
            self.bin.joinpath(name).symlink_to(found)
        # On a terminal, curl shows no progress.
        self.folder.joinpath(".curlrc").write_text("no-progress-meter\n")
        # The pages build with make. The test brings the results of these builds.
        self.stand_in("make", "case $* in 'build' | 'image' | 'package' | 'image package') ;; *) echo \"no stand-in for make $*\" >&2; exit 2 ;; esac")

    def stand_in(self, name: str, script: str) -> None:
        file = self.bin / name
        file.write_text(f"#!/bin/bash\n{script}\n")
        file.chmod(0o755)

    def checkout(self, name: str) -> Path:
        """Returns a folder for a page that looks like a checkout of the project."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        for each in ("charts", "deploy", "examples"):
            folder.joinpath(each).symlink_to(PROJECT / each)
        for profile in ("release", "local"):
            target = folder / "target" / profile
            target.mkdir(parents=True)
            target.joinpath("sluicegate").symlink_to(program())
            target.joinpath("sluicegate-lab").symlink_to(PROJECT / "target/debug/sluicegate-lab")
        return folder

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TERM") if name in os.environ}
        return {**kept, "CURL_HOME": str(self.folder), "PATH": f"{self.bin}:{os.environ.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}", "LC_ALL": "C.UTF-8"}

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def laptop(name: str) -> Iterator[Session]:
    """A machine whose network has only loopback."""
    place = Place()
    network = NetworkNamespace(f"sluicegate-docs-{os.getpid()}")
    network.delete()
    network.create()
    try:
        session = Session(place.checkout(name), place.folder / "state", network.enter(), place.environment())
        try:
            yield session
        finally:
            session.close()
    finally:
        network.delete()
        place.remove()


def _cluster() -> Cluster:
    """Starts a cluster. Runs at the same time have clusters with different names."""
    for name in ("docs", "docs-2", "docs-3"):
        try:
            return Cluster(name).__enter__()
        except ClusterError as error:
            if "is up already" not in str(error):
                raise
    raise PageError("three clusters for documentation are up: wait until their runs end")


class Town:
    """A cluster in which the quick start was followed. The pages of a run share the cluster."""

    def __init__(self) -> None:
        self.place = Place()
        self.first: Path | None = None
        """The folder in which the quick start was followed."""
        self.cluster = _cluster()
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        place, folder = self.place, self.place.folder
        archive = folder / "httpbin.tar"
        server = Path(checked(["readlink", "-f", str(place.bin / "go-httpbin")]).strip())
        Image(f"docker.io/mccutchen/go-httpbin:{HTTPBIN}", server).write(archive)
        for each in (image(), archive):
            self.cluster.import_image(each)
        self.package = chart(folder)
        place.bin.joinpath("helm").symlink_to(HELM)
        # The cluster of the test stands in for kind, and has the image already.
        place.stand_in("kind", "case $* in 'create cluster' | 'load image-archive '*.tar | 'delete cluster') ;; *) echo \"no stand-in for kind $*\" >&2; exit 2 ;; esac")
        crds = folder / "gateway-api"
        crds.mkdir()
        for channel in ("standard", "experimental"):
            files = sorted((gateway_api_folder(folder) / "config/crd" / channel).glob("gateway.networking.*.yaml"))
            (crds / f"{channel}-install.yaml").write_text("\n---\n".join(file.read_text() for file in files))
        real = checked(["sh", "-c", "command -v kubectl"], env={**os.environ, **self.cluster.environment()}).strip()
        # Without a network, the release of Gateway API comes from its Go module.
        place.stand_in("kubectl", 'for argument; do shift; set -- "$@" "${argument/https:*gateway-api\\/releases\\/download\\/v*\\//' + f'{crds}/' + '}"; done; exec ' + f'{real} "$@"')
        environment = {**self.place.environment(), "KUBECONFIG": str(self.cluster.folder.kubeconfig)}
        self.session = Session(self.checkout("first"), folder / "state", self.cluster.namespace.enter(), environment)

    def checkout(self, name: str) -> Path:
        folder = self.place.checkout(name)
        for part, source in (("package", self.package), ("image", image())):
            target = folder / "target" / part
            target.mkdir(parents=True)
            target.joinpath(self.package.name if part == "package" else self.package.name.replace(".tgz", ".tar")).symlink_to(source)
        return folder

    def objects(self) -> set[str]:
        """Returns the names of the objects in the namespace `default`, except those that Kubernetes makes."""
        found = self.cluster.kubectl("get", KINDS, "--namespace", "default", "--ignore-not-found", "--output", "name").split()
        short = {name.split("/")[0].split(".")[0] + "/" + name.split("/")[1] for name in found if not name.startswith(("pod/", "replicaset", "event"))}
        return short - set(OWN_OBJECTS)

    def gone(self, before: set[str]) -> set[str]:
        """Waits until only the objects of before are there, and returns those that stay."""
        left: set[str] = set()

        def clean() -> bool:
            nonlocal left
            left = self.objects() - before
            return not left

        try:
            wait_until(clean, "the clean-up", 20, 0.5)
        except Exception:  # the caller says which objects are left
            pass
        return left

    def close(self) -> None:
        if hasattr(self, "session"):
            self.session.close()
        self.cluster.down()
        self.place.remove()
