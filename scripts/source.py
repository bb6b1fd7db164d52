"""Facts about the sources, for the scripts that build a release: the version, the commit, its time, the architectures."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The names of OCI and Debian, and the targets of Rust.
TARGETS = {"amd64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}
# The names of uname.
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def version() -> str:
    table = (ROOT / "Cargo.toml").read_text().partition("[workspace.package]")[2]
    return re.search(r'^version = "(.+)"$', table, re.MULTILINE)[1]


def commit() -> str | None:
    """The commit with 40 digits, and with `-dirty` if files differ from the commit. None without a repository."""
    return git("describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")


def time() -> int:
    """Seconds since 1970 (https://reproducible-builds.org/specs/source-date-epoch/)."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct") or 0)


def git(*command: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", ROOT, *command], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
