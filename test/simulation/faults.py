#!/usr/bin/env python3
"""Plants each fault of the folder `faults` in the gateway, and checks that the simulation finds it.

A fault is a patch for crates/proxy/src. The script applies one patch at a time to the working tree, runs schedules until one
fails, and reverts the patch. `--check` only checks that each patch still applies. Names of faults as arguments select faults.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAULTS = sorted((Path(__file__).parent / "faults").glob("*.patch"))
SOURCES = "crates/proxy/src"
SCHEDULES = 20_000
FOUND = re.compile(r"after (\d+) schedules:.*repeats this failure:\n(.*?)\n", re.DOTALL)
TEST = ["cargo", "test", "--quiet", "--package", "sluicegate-proxy", "--lib", "--"]


def git(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)


def apply(patch: Path, *options: str) -> None:
    applied = git("apply", *options, str(patch))
    if applied.returncode != 0:
        sys.exit(f"{patch.name} does not apply. Write the fault again for the changed code.\n{applied.stderr}")


def find(patch: Path, schedules: int) -> tuple[int, str] | None:
    """The number of schedules until one fails, and the violation."""
    environment = {"SLUICEGATE_SEED": "1", "SLUICEGATE_SCHEDULES": str(schedules), "RUST_BACKTRACE": "0"}
    command = ["env", *(f"{name}={value}" for name, value in environment.items())]
    command += [*TEST, "simulation::schedules_keep_the_zero_loss_contract"]
    apply(patch)
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    finally:
        apply(patch, "--reverse")
    output = run.stdout + run.stderr
    if run.returncode == 0:
        return None
    found = FOUND.search(output)
    if not found:
        sys.exit(f"{patch.name}: the test did not run:\n{output[-3000:]}")
    return int(found[1]), found[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only check that the patches apply")
    parser.add_argument("--schedules", type=int, default=SCHEDULES, help=f"the most schedules for a fault (default: {SCHEDULES})")
    parser.add_argument("faults", nargs="*", help="the names of faults (default: all)")
    options = parser.parse_args()
    faults = [patch for patch in FAULTS if not options.faults or patch.stem in options.faults]
    if not faults:
        sys.exit("no such fault")
    if options.check:
        for patch in faults:
            apply(patch, "--check")
        return
    if git("status", "--porcelain", SOURCES).stdout:
        sys.exit(f"{SOURCES} has uncommitted changes. Commit them first: this script changes the files.")
    missed = []
    for patch in faults:
        found = find(patch, options.schedules)
        if found is None:
            missed.append(patch.stem)
            print(f"{patch.stem}: NOT FOUND in {options.schedules} schedules", flush=True)
        else:
            print(f"{patch.stem}: after {found[0]} schedules: {found[1]}", flush=True)
    if missed:
        sys.exit(f"The simulation does not find {len(missed)} of {len(faults)} faults.")
    print(f"The simulation finds {len(faults)} faults.")


if __name__ == "__main__":
    main()
