#!/usr/bin/env python3
"""Runs the conformance suite of Gateway API in a cluster with Sluicegate. See README.md."""

import argparse
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cluster"))

from harness import Cluster, ClusterError
from harness.paths import IMAGES, PROJECT
from harness.processes import checked
from images.image import Image
from tests.gateway import HELM, NAMESPACE, POD, chart, image, name_control_plane

from verdict import Results, expected_failures, summary

@dataclass(frozen=True)
class Release:
    """A release of Gateway API, with its module file and its program `echo-basic`."""

    modfile: str
    echo: str
    go: tuple[int, int] = (1, 26)


RELEASES = {
    "1.6": Release("go.mod", "sigs.k8s.io/gateway-api/conformance/echo-basic"),
    "1.7": Release("v1.7.mod", "sigs.k8s.io/gateway-api-conformance-images/echo-basic", (1, 27)),
}
NAME = "gateway-api"
"""The name of the cluster and of the folder of results below `target`."""
CLASS = "sluicegate"
"""The GatewayClass of the chart."""
PROFILES = ["GATEWAY-HTTP", "GATEWAY-GRPC", "GATEWAY-TLS", "GATEWAY-TCP", "GATEWAY-UDP"]
RESULTS = PROJECT / "target/gateway-api"
API = "sigs.k8s.io/gateway-api"
SUITE = f"{API}/conformance"
EXPECTED = HERE / "expected-failures"

IMPLEMENTATION = {
    "organization": "sluicegate", "project": "sluicegate", "url": "https://sluicegate.dev",
    "contact": "https://sluicegate.dev",
}
USABLE, UNUSABLE = "203.0.113.10", "192.0.2.1"
"""For tests of static addresses: an address that the cluster gives to Services only on request, and an address of no cluster."""

VALUES = {
    "mode": "split", "replicas": 1, "workers": 1, "resources": {"requests": {"cpu": "1m", "memory": "16Mi"}},
    "controlPlane": {"replicas": 1}, "service": {"type": "ClusterIP"}, "gatewayClass": {"create": True, "name": CLASS},
    "gatewayServices": {"type": "ClusterIP", "ownDataPlanes": {"enabled": True, "default": "Own"}},
    "shutdown": {"graceSeconds": 1, "idleSeconds": 1, "timeoutSeconds": 5},
}
"""The values of the chart. The Gateways of the suite share ports, so each Gateway needs an address of its own. Each Gateway has data planes of
its own, as the tests of GatewayInfrastructure require. The node has more than 50 of them."""
CONTROL_PLANE = "sluicegate-control-plane"
NEWER_GO = PROJECT / "target/tools/go-1.27/go/bin"
"""The folder of the Go that `scripts/setup go-1.27` installs."""


def say(line: str) -> None:
    print(line, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="test/gateway-api/run.py", description=__doc__)
    parser.add_argument("--keep", action="store_true",
                        help="use the cluster that is up, and keep the cluster: test/cluster/cluster --name gateway-api")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN",
                        help="run these tests, even if features does not list their features: HTTPRouteWeight, 'Gateway*'")
    parser.add_argument("--profile", action="append", default=[], choices=PROFILES, help="run this profile (default: all profiles)")
    parser.add_argument("--channel", choices=["standard", "experimental"], default="standard", help="the channel of the CRDs (standard)")
    parser.add_argument("--release", choices=RELEASES, default="1.6", help="the release of Gateway API (1.6)")
    parser.add_argument("--patience", type=int, default=0, metavar="SECONDS", help="the longest timeout of the suite (default: its timeouts)")
    parser.add_argument("--install-only", action="store_true", help="install everything, and run no tests; implies --keep")
    parser.add_argument("suite", nargs="*", metavar="-- FLAG", help="flags of the suite, such as -- --debug --fail-fast")
    options = parser.parse_args()
    options.profile = options.profile or PROFILES
    options.keep = options.keep or options.install_only
    return options


class Suite:
    """The Go module of the suite, in one release."""

    def __init__(self, release: str) -> None:
        self.name = release
        self.release = RELEASES[release]
        self.environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
        said = checked(["go", "env", "GOVERSION"], cwd=PROJECT).removeprefix("go").split(".")
        if (int(said[0]), int(said[1])) < self.release.go:
            checked([str(PROJECT / "scripts/setup"), "go-1.27"], cwd=PROJECT)
            self.environment["PATH"] = f"{NEWER_GO}:{os.environ['PATH']}"

    def go(self, command: str, *argv: str, folder: Path = HERE) -> str:
        """Runs Go in a module, and returns its output."""
        modfile = [f"-modfile={self.release.modfile}"] if folder == HERE else []
        return checked(["go", *command.split(), *modfile, *argv], cwd=folder, env=self.environment)

    @functools.cache
    def module(self, name: str) -> Path:
        """Returns the folder of a module in the module cache."""
        self.go("mod download", name)
        return Path(self.go("list", "-m", "-f", "{{.Dir}}", name).strip())

    def images(self) -> list[str]:
        """Returns the names of the images in the suite's manifests for gateways."""
        manifests = [file.read_text() for folder in ("base", "tests") for file in sorted((self.module(SUITE) / folder).glob("*.yaml"))]
        return sorted({name for text in manifests for name in re.findall(r"^\s*image: (\S+)", text, re.MULTILINE)})

    def image(self, name: str) -> Path:
        """Builds an image of the suite, and returns its archive."""
        kind = name.rpartition("/")[2].partition(":")[0]
        servers = {"echo-basic": (HERE, self.release.echo), "coredns": (HERE / "coredns", ".")}
        if kind not in servers:
            raise ClusterError(f"the suite needs the image {name}, and run.py knows no source of {kind}")
        folder, package = servers[kind]
        program = IMAGES / NAME / kind
        program.parent.mkdir(parents=True, exist_ok=True)
        self.go("build", "-trimpath", "-ldflags=-s -w", "-o", str(program), package, folder=folder)
        archive = program.with_name(f"{name.rpartition('/')[2].replace(':', '-')}.tar")
        Image(name, program).write(archive)
        return archive


@contextmanager
def cluster(keep: bool) -> Iterator[Cluster]:
    """The cluster: a new cluster that ends with the body, or the cluster that is up, which stays."""
    found = Cluster(NAME, say=say)
    if keep:
        found.up()
        yield found
    else:
        with found:
            yield found


def install_definitions(cluster: Cluster, suite: Suite, channel: str) -> None:
    """Installs the CRDs of the channel from the module cache."""
    say(f"installing the CRDs of {API} {suite.name}: {channel}")
    files = sorted((suite.module(API) / "config/crd" / channel).glob("gateway.*.yaml"))
    cluster.kubectl("apply", "--server-side", "--force-conflicts", *(f"--filename={file}" for file in files))
    cluster.wait_for_definitions(*(f"{kind}.gateway.networking.k8s.io" for kind in ("gatewayclasses", "gateways", "httproutes")))


def install_servers(cluster: Cluster, suite: Suite) -> None:
    """Imports the missing images of the suite's pods."""
    there = set.intersection(*(set(node.images()) for node in cluster.nodes))
    for name in suite.images():
        if name not in there:
            say(f"building {name}")
            cluster.import_image(suite.image(name))


def install_gateway(cluster: Cluster) -> str:
    """Installs the image and the chart, or upgrades to a new image. Returns the version of the gateway."""
    archive = image()
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    stamp = cluster.folder.path / "gateway-image"
    changed = not stamp.exists() or stamp.read_text() != digest
    if changed:
        say(f"importing {archive.relative_to(PROJECT)}")
        cluster.import_image(archive)
    with tempfile.TemporaryDirectory() as folder:
        values = Path(folder, "values.json")
        values.write_text(json.dumps({**VALUES, "dnsConfig": {"nameservers": [cluster.nodes[0].address]}}))
        cluster.run([str(HELM), "upgrade", "--install", "sluicegate", str(chart(Path(folder))), "--namespace", NAMESPACE, "--create-namespace",
                     "--values", str(values)], timeout=150)
    name_control_plane(cluster)
    deployments = [f"deployment/{CONTROL_PLANE}", "deployment/sluicegate-data-plane"]
    if changed and stamp.exists():
        # A new image with the same name changes no object.
        for workload in deployments:
            cluster.kubectl("rollout", "restart", workload, "--namespace", NAMESPACE)
    for workload in deployments:
        cluster.kubectl("rollout", "status", workload, "--namespace", NAMESPACE, "--timeout=120s", timeout=130)
    stamp.write_text(digest)
    said = cluster.kubectl("exec", deployments[0], "--namespace", NAMESPACE, "--", "/sluicegate", "--version")
    return said.split()[1]


def run_suite(cluster: Cluster, suite: Suite, options: argparse.Namespace, version: str) -> Results:
    """Runs the suite, and prints each result."""
    program, catalog, logs = RESULTS / "suite", RESULTS / "catalog.json", RESULTS / "logs"
    suite.go("test", "-c", "-o", str(program), ".")
    catalog.unlink(missing_ok=True)
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    flags = {
        "channel": options.channel, "release": suite.name, "only": ",".join(options.only), "patience": f"{options.patience}s", "catalog": catalog,
        "gateway-class": CLASS, "conformance-profiles": ",".join(options.profile), "version": version, **IMPLEMENTATION,
        "usable-address": USABLE, "unusable-address": UNUSABLE, "cleanup-base-resources": str(not options.keep).lower(),
    }
    if not options.only:
        # A report of some tests would be a wrong report.
        report = RESULTS / f"v{suite.name}" / f"{options.channel}-{version}-default-report.yaml"
        report.parent.mkdir(exist_ok=True)
        flags["report-output"] = report
    results = Results()
    running = subprocess.Popen(
        [*cluster.namespace.enter(), "go", "tool", "test2json", "-t", str(program), "-test.v=test2json",
         *(f"--{name}={value}" for name, value in flags.items()), *options.suite],
        cwd=HERE, env={**cluster.environment(), "PATH": suite.environment["PATH"]}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True)
    assert running.stdout
    try:
        with (RESULTS / "suite.log").open("w") as log:
            for line in running.stdout:
                event = json.loads(line) if line.startswith("{") else {"Action": "output", "Output": line}
                log.write(event.get("Output", ""))
                log.flush()
                ended = results.read_event(event)
                if ended and ended.result != "skip":
                    (logs / f"{ended.name}.log").write_text(ended.output)
                    say(f"{ended.result}  {ended.name}  {ended.seconds:.1f} s")
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    results.read_catalog(catalog)
    return results


def main() -> bool:
    options = arguments()
    expected = expected_failures(EXPECTED.read_text(), options.release)
    RESULTS.mkdir(parents=True, exist_ok=True)
    suite = Suite(options.release)
    with cluster(options.keep) as there:
        install_definitions(there, suite, options.channel)
        install_servers(there, suite)
        version = install_gateway(there)
        say(f"Sluicegate {version} runs")
        if options.install_only:
            return True
        results = run_suite(there, suite, options, version)
        log = there.kubectl("logs", "--namespace", NAMESPACE, "--selector", POD, "--prefix", "--tail=-1")
        (RESULTS / "gateway.log").write_text(log)
        status = there.json("get", "gatewayclass", CLASS)["status"]
        published = [feature["name"] for feature in status.get("supportedFeatures", [])]
    whole = not options.only and options.profile == PROFILES
    good = summary(results, expected, whole, sys.stdout, published if whole else None)
    say(f"logs: {RESULTS.relative_to(PROJECT)}/logs, gateway.log and suite.log there")
    return good


if __name__ == "__main__":
    # A terminated run stops the suite and takes its cluster down, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(0 if main() else 1)
    except (ClusterError, ValueError) as error:
        sys.exit(f"gateway-api: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
