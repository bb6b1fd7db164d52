"""The images that come with the cluster."""

import shutil
import tempfile
from pathlib import Path

from harness.errors import ClusterError
from harness.paths import IMAGES, PROJECT
from harness.processes import checked

from .image import Image

PAUSE = "sluicegate.dev/cluster/pause:1"
BACKEND = "sluicegate.dev/cluster/backend:1"
"""The lab's back end. Its arguments are those of `sluicegate-lab backend`; by default it listens at port 9000."""
REDIS = "sluicegate.dev/cluster/redis:1"
"""Debian's Redis, with its own settings."""

PAUSE_SOURCE = Path(__file__).with_name("pause.c")
LAB = [PROJECT / "target/local/sluicegate-lab", PROJECT / "target/debug/sluicegate-lab"]


def pause() -> Path:
    """The archive of the image of which every pod has a container."""
    tar = IMAGES / "pause.tar"
    if not _current(tar, PAUSE_SOURCE):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "pause"
            checked(["gcc", "-static", "-O2", "-s", "-o", str(program), str(PAUSE_SOURCE)])
            Image(PAUSE, program).write(tar)
    return tar


def backend(program: Path | None = None) -> Path:
    """The archive of the lab's back end, of the program given or of the one that was built last."""
    built = sorted((path for path in LAB if path.exists()), key=lambda path: path.stat().st_mtime)
    if program is None and not built:
        raise ClusterError("sluicegate-lab is not built: make build")
    program = program or built[-1]
    tar = IMAGES / "backend.tar"
    if not _current(tar, program):
        Image(BACKEND, program, ["backend", "--listen", "0.0.0.0:9000"]).write(tar)
    return tar


def redis() -> Path:
    """The archive of the image of the machine's own Redis."""
    program = shutil.which("redis-server")
    if not program:
        raise ClusterError("redis-server is not installed: scripts/setup cluster")
    tar = IMAGES / "redis.tar"
    if not _current(tar, Path(program)):
        Image(REDIS, Path(program)).write(tar)
    return tar


def compiled(source: Path, name: str, folder: Path) -> Path:
    """The archive of an image of one C program, in that folder."""
    program = folder / source.stem
    checked(["gcc", "-static", "-O2", "-D_GNU_SOURCE", "-o", str(program), str(source)])
    tar = folder / f"{source.stem}.tar"
    Image(name, program).write(tar)
    return tar


def _current(tar: Path, source: Path) -> bool:
    # A package's files keep the times of their build.
    return tar.exists() and tar.stat().st_mtime > max(source.stat().st_mtime, source.stat().st_ctime)
