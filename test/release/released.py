"""The files of a release. SLUICEGATE_RELEASE names their folder (scripts/release)."""

import functools
import os
import platform
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "target/tools"
FOLDER = Path(os.environ["SLUICEGATE_RELEASE"]).resolve()
VERSION = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
ARCHITECTURES = sorted(re.fullmatch(r".*-linux-(\w+)\.tar\.gz", path.name)[1] for path in FOLDER.glob("*-linux-*[!s].tar.gz"))
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
# The timeout of each wait, in seconds.
PATIENCE = 60


def name(architecture: str) -> str:
    return f"sluicegate-{VERSION}-linux-{architecture}"


def package(architecture: str) -> Path:
    return FOLDER / f"sluicegate_{VERSION.replace('-', '~')}_{architecture}.deb"


class Unpacked:
    """The unpacked archives of an architecture. `unpacked` keeps them until the tests end."""

    def __init__(self, architecture: str):
        self.folder = tempfile.TemporaryDirectory()
        for file in (name(architecture), f"{name(architecture)}-symbols"):
            with tarfile.open(FOLDER / f"{file}.tar.gz") as archive:
                archive.extractall(self.folder.name, filter="tar")
        self.path = Path(self.folder.name, name(architecture))
        self.program = self.path / "sluicegate"
        self.symbols = Path(self.folder.name, f"{name(architecture)}-symbols", "sluicegate.debug")


@functools.cache
def unpacked(architecture: str) -> Unpacked:
    return Unpacked(architecture)


def printed(*command: object, **options: object) -> str:
    """What a command prints. Its errors are part of the failure."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=PATIENCE, **options)
    if done.returncode:
        raise AssertionError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout
