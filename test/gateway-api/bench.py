#!/usr/bin/env python3
"""Repeats the public benchmark of Gateway API implementations with Sluicegate. See README.md.

The cluster is etcd and an API server, without nodes. Sluicegate is one process with one worker beside it, so that its memory and CPU time
are those of the process. Endpoints are servers of this program or of the lab. All traffic stays in a network namespace."""

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cluster"))

from harness import Cluster, ClusterError
from harness.api import ApiError
from harness.paths import PROJECT
from harness.processes import checked
from harness.tools import ALL
from tests.process import GATEWAY_API_RELEASE, program

from benchmark import routes, traffic
from benchmark.bench import Bench
from benchmark.figures import Figure, line, report

NAME = "gateway-bench"
"""The name of the cluster and of the folder of results below `target`."""

EXPERIMENTS: dict[str, tuple[Callable[[Bench], list[Figure]], int]] = {
    "attached": (routes.attached, 15), "probe": (routes.probe, 15), "change": (traffic.change, 10), "failover": (traffic.failover, 10),
    "cost": (traffic.cost, 10), "routes": (routes.routes, 20), "scale": (routes.scale, 40),
}
"""The experiments and their time limits in minutes."""


def say(text: str) -> None:
    print(text, flush=True)


def arguments() -> argparse.Namespace:
    about = "\n".join(f"  {name:<10} {experiment.__doc__}" for name, (experiment, _) in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(prog="test/gateway-api/bench.py", description=f"{__doc__}\n\nexperiments:\n{about}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help="run these experiments (default: all)")
    parser.add_argument("--short", action="store_true",
                        help="run the experiments with few objects and the newest build, also a debug build: tests the experiments, measures nothing")
    parser.add_argument("--without-listener-sets", dest="listener_sets", action="store_false",
                        help="scale: Gateways with a listener for each host, in place of ListenerSets")
    parser.add_argument("--program", type=Path, metavar="FILE", help="the build of Sluicegate (default: target/release/sluicegate)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", default=PROJECT / "target" / NAME,
                        help=f"the folder of the report and the logs (target/{NAME})")
    options = parser.parse_args()
    if unknown := set(options.experiments) - set(EXPERIMENTS):
        parser.error(f"there is no experiment {', '.join(sorted(unknown))}; there are {', '.join(EXPERIMENTS)}")
    return options


def builds(options: argparse.Namespace) -> dict[str, Path]:
    """Returns the files of the programs. A debug build would measure its own slowness."""
    if options.short:
        found = {name: program(name) for name in ("sluicegate", "sluicegate-lab")}
    else:
        found = {"sluicegate": PROJECT / "target/release/sluicegate", "sluicegate-lab": PROJECT / "target/local/sluicegate-lab"}
    if options.program:
        found["sluicegate"] = options.program.resolve()
    for name, file in found.items():
        if not file.exists():
            raise ClusterError(f"{name} is not built: make build")
    return found


@contextmanager
def limit(minutes: float) -> Iterator[None]:
    """Ends the body by an error after this time."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise ClusterError(f"the experiment did not end in {minutes:g} min")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, minutes * 60)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def measure(options: argparse.Namespace, found: dict[str, Path]) -> Iterator[tuple[str, list[Figure] | str]]:
    """Runs the experiments, and returns the figures of each, or its error. Each has a new cluster, but short experiments share a cluster."""

    def bench(stack: ExitStack) -> Bench:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(Cluster(NAME, api_only=True))
        return Bench(cluster, folder, found.__getitem__, options.short, options.listener_sets)

    with ExitStack() as stack:
        shared = bench(stack) if options.short else None
        for name in options.experiments or EXPERIMENTS:
            experiment, minutes = EXPERIMENTS[name]
            say(f"{name}: {experiment.__doc__}")
            begun = time.monotonic()
            try:
                with ExitStack() as own, limit(1 if options.short else minutes):
                    used = shared or bench(own)
                    own.callback(used.stop, options.output / f"{name}.log")
                    result: list[Figure] | str = experiment(used)
            except (ClusterError, ApiError) as error:
                result = str(error)
            for text in [f"FAILED: {result}"] if isinstance(result, str) else map(line, result):
                say(f"  {text}")
            say(f"  ({time.monotonic() - begun:.0f} s)")
            yield name, result


def main() -> bool:
    options = arguments()
    found = builds(options)
    folder = options.output
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "date": time.strftime("%Y-%m-%d %H:%M"), "Sluicegate": f"{checked([str(found['sluicegate']), '--version']).strip()}, 1 worker",
        "Kubernetes": f"{ALL['kube-apiserver'].version}, API server and etcd without nodes", "Gateway API": f"v{GATEWAY_API_RELEASE}",
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}, Linux {platform.release()}; load average {os.getloadavg()[0]:.2f} at the start",
        "scale": "ListenerSets" if options.listener_sets else "listeners of Gateways, without ListenerSets",
    }
    if options.short:
        settings["**short**"] = "the experiments are small, and the build may be a debug build; the figures are no results"
    results: dict[str, list[Figure] | str] = {}
    for name, result in measure(options, found):
        results[name] = result
        # A stopped run keeps the figures so far.
        text = report(settings, results, {name: str(experiment.__doc__) for name, (experiment, _) in EXPERIMENTS.items()})
        (folder / "report.md").write_text(text)
        stored = {name: result if isinstance(result, str) else [asdict(figure) for figure in result] for name, result in results.items()}
        (folder / "results.json").write_text(json.dumps({"settings": settings, "results": stored}, indent=1) + "\n")
    say(f"\nThe report: {folder / 'report.md'}")
    broken = [f"{name}: {result}" for name, result in results.items() if isinstance(result, str)]
    broken += [f"{name}: {line(figure)}" for name, result in results.items() if not isinstance(result, str)
               for figure in result if figure.breaks_promise]
    for each in broken:
        say(f"FAILED  {each}")
    return not broken


if __name__ == "__main__":
    # A terminated run takes its cluster down, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(0 if main() else 1)
    except ClusterError as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
