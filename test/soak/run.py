#!/usr/bin/env python3
"""Runs Sluicegate under a load of all protocols while everything changes, and fails if a request fails or memory grows. See README.md."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from changes import LANES, Changes, plan
from loads import Loads
from report import Result, duration, page
from samples import GAUGES, Sampler, sample, sockets
from soak_site import PROJECT, Cluster, ClusterError, Plane, Soak
from tests.process import program
from verdict import growth, log_faults, warnings

NAME = "soak"
OUTPUT = PROJECT / "target/soak"
SETTLE = 90.0
"""The time in seconds in which a gateway without load must have no open connection and no request."""
LEFT = 10
"""The number of descriptors that a gateway without load may have more than before the load."""


def say(text: str) -> None:
    print(text, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="test/soak/run.py", description=__doc__)
    parser.add_argument("--hours", type=float, default=0.05, help="the duration (0.05)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="repeats the changes of another run (random)")
    parser.add_argument("--rate", type=float, default=1.0, help="a factor for all rates of the load (1)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write the report to this file")
    parser.add_argument("--plant", choices=["errors", "abrupt", "leak"],
                        help="plant a fault, which the soak must find: wrong responses, pods that are killed without notice, or connections that nothing closes")
    return parser.parse_args()


def programs() -> dict[str, Path]:
    """Returns the program of SLUICEGATE or the newest build, and the lab beside the program or the newest build."""
    sluicegate = Path(os.environ["SLUICEGATE"]).resolve() if os.environ.get("SLUICEGATE") else program("sluicegate")
    beside = sluicegate.with_name("sluicegate-lab")
    return {"sluicegate": sluicegate, "sluicegate-lab": beside if beside.exists() else program("sluicegate-lab")}


def interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, interrupt)
    found = programs()
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    seconds = options.hours * 3600
    say(f"soak: {duration(seconds)}, SEED={options.seed}, {found['sluicegate']}")
    with Cluster(NAME, api_only=True) as cluster:
        soak = Soak(cluster, OUTPUT, found, options.plant)
        try:
            result = run(soak, options, seconds)
        finally:
            soak.kill()
    text = page(result)
    (OUTPUT / "report.md").write_text(text)
    (OUTPUT / "result.json").write_text(json.dumps(asdict(result)))
    if options.report:
        options.report.write_text(text)
    say(f"{result.failed:,} of {result.requests:,} requests failed, during {len(result.done):,} changes")
    for fault in result.faults:
        say(f"FAULT: {' '.join(fault.split())}")
    say(f"The report: {OUTPUT / 'report.md'}")
    return 1 if result.faults else 0


def run(soak: Soak, options: argparse.Namespace, seconds: float) -> Result:
    """Runs the soak, and returns its result."""
    soak.install()
    version = subprocess.run([str(soak.programs["sluicegate"]), "--version"], capture_output=True, text=True, check=True).stdout.strip()
    profile = soak.programs["sluicegate"].parent.name
    command = f"make soak HOURS={options.hours:g} SEED={options.seed}" + (f' SOAK="--plant {options.plant}"' if options.plant else "")
    flat = [soak.steady, soak.data]
    result = Result(command, version, profile, options.seed, seconds, [plane.name for plane in flat], [plane.name for plane in soak.planes])
    before = {plane.name: descriptors(plane) for plane in flat}
    pids = {plane.name: plane.pid for plane in flat}
    loads = Loads(soak, seconds, options.rate, options.plant == "leak")
    sampler = Sampler(soak, loads.began, min(10.0, max(0.5, seconds / 600)))
    changes = Changes(soak, plan(options.seed, seconds), loads.began, say)
    changes.start()
    try:
        watch(loads, flat, loads.began + seconds)
        changes.wait()
    except ClusterError as error:
        result.faults.append(str(error))
        changes.stop()
    result.seconds = time.monotonic() - loads.began
    result.samples = sampler.samples
    sampler.stop()
    result.counted, result.done = loads.stop(), changes.done
    result.faults += load_faults(result) + change_faults(result)
    for plane in flat:
        result.faults += growth(result.samples, plane.name)
        if plane.pid != pids[plane.name]:
            result.faults.append(f"{plane.name} is another process than at the start")
    for plane in soak.gateways:
        result.faults += rest_faults(plane, before.get(plane.name))
    for plane in soak.planes:
        result.faults += end_faults(plane)
        for log in plane.logs:
            lines = log.read_text(errors="replace").splitlines()
            result.faults += [f"{log.name}: {line}" for line in log_faults(lines)[:20]]
            for text, count in warnings(lines).items():
                result.warnings[text] = result.warnings.get(text, 0) + count
    return result


def watch(loads: Loads, flat: list[Plane], end: float) -> None:
    """Waits until a time, as `time.monotonic`. An ended load or process is an error."""
    while time.monotonic() < end:
        if ended := loads.ended():
            raise ClusterError(f"a load ended: {ended[0]}")
        for plane in flat:
            if plane.running is None or not plane.running.running:
                raise ClusterError(f"{plane.name} ended: {plane.logs[-1].read_text(errors='replace')[-2000:]}")
        time.sleep(min(1.0, max(0.0, end - time.monotonic())))


def descriptors(plane: Plane) -> int:
    return len(os.listdir(f"/proc/{plane.pid}/fd"))


def load_faults(result: Result) -> list[str]:
    """Returns a fault for each load with a failure, or without a request."""
    found = []
    for each in result.counted:
        if each.failures:
            times = ", ".join(f"{at:.0f}" for at in each.times[:20])
            reasons = ", ".join(f"{count} x {reason}" for reason, count in list(each.failures.items())[:5])
            found.append(f"{each.protocol} at {each.gateway}: {each.failed} of {each.requests} failed: {reasons}; about {times} s after the start")
        if not each.requests:
            found.append(f"{each.protocol} at {each.gateway}: no requests")
    return found


def change_faults(result: Result) -> list[str]:
    """Returns a fault for each failed change, and for each lane without a change."""
    found = [f"{each.kind} at {each.began:.0f} s: {each.error}" for each in result.done if each.error]
    return found + [f"no change of {lane}" for lane in LANES if lane not in {each.lane for each in result.done}]


def rest_faults(plane: Plane, before: int | None) -> list[str]:
    """Returns the connections, requests and descriptors that a gateway still has after the load has ended. `before`: its descriptors before the load."""
    if plane.running is None or not plane.running.running:
        return [f"{plane.name} ended"]

    def rest() -> dict[str, float]:
        found = sample(plane, 0)
        if found is None:
            return {"ended processes": 1}
        left = {name: found.values[name] for name in GAUGES if found.values.get(name)}
        if before is not None and found.values["descriptors"] > before + LEFT:
            left["descriptors"] = found.values["descriptors"]
        if closed := sockets(plane.pid).half_closed:
            left["half-closed sockets"] = closed
        return left

    end = time.monotonic() + SETTLE
    while found := rest():
        if time.monotonic() > end:
            left = ", ".join(f"{count:g} {name}" for name, count in found.items())
            return [f"{plane.name}: {SETTLE:.0f} s after the load it still has {left}" + (f" (before the load {before} descriptors)" if before else "")]
        time.sleep(0.5)
    return []


def end_faults(plane: Plane) -> list[str]:
    """Ends a plane by SIGTERM, and returns a fault if it does not exit with 0."""
    assert plane.running
    try:
        code = plane.running.terminate(60)
    except ClusterError as error:
        return [f"{plane.name}: {error}"[:500]]
    return [f"{plane.name} exited with {code}"] if code else []


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ClusterError as error:
        sys.exit(f"soak: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
