"""The images of the cluster."""

import shutil
import tempfile
from pathlib import Path

from harness.errors import ClusterError
from harness.paths import IMAGES, PROJECT
from harness.processes import checked

from .image import Image

PAUSE = "sluicegate.dev/cluster/pause:1"
BACKEND = "sluicegate.dev/cluster/backend:1"
"""The lab's backend, with the arguments of `sluicegate-lab backend`. The default port is 9000."""
REDIS = "sluicegate.dev/cluster/redis:1"
"""Redis from Debian, with its default settings."""

PAUSE_SOURCE = Path(__file__).with_name("pause.c")
LAB = [PROJECT / "target/local/sluicegate-lab", PROJECT / "target/debug/sluicegate-lab"]


def pause() -> Path:
    """Returns the archive of the pause image, which each pod runs."""
    tar = IMAGES / "pause.tar"
    if not _current(tar, PAUSE_SOURCE):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "pause"
            checked(["gcc", "-static", "-O2", "-s", "-o", str(program), str(PAUSE_SOURCE)])
            Image(PAUSE, program).write(tar)
    return tar


def backend(program: Path | None = None) -> Path:
    """Returns the archive of the lab's backend, from the given program or from the newest build."""
    built = sorted((path for path in LAB if path.exists()), key=lambda path: path.stat().st_mtime)
    if program is None and not built:
        raise ClusterError("sluicegate-lab is not built: make build")
    program = program or built[-1]
    tar = IMAGES / "backend.tar"
    if not _current(tar, program):
        Image(BACKEND, program, ["backend", "--listen", "0.0.0.0:9000"]).write(tar)
    return tar


def redis() -> Path:
    """Returns the archive of an image of the installed Redis."""
    program = shutil.which("redis-server")
    if not program:
        raise ClusterError("redis-server is not installed: scripts/setup cluster")
    tar = IMAGES / "redis.tar"
    if not _current(tar, Path(program)):
        Image(REDIS, Path(program)).write(tar)
    return tar


def compiled(source: Path, name: str, folder: Path) -> Path:
    """Returns the archive of an image of a C program, in the folder."""
    program = folder / source.stem
    checked(["gcc", "-static", "-O2", "-D_GNU_SOURCE", "-o", str(program), str(source)])
    tar = folder / f"{source.stem}.tar"
    Image(name, program).write(tar)
    return tar


def _current(tar: Path, source: Path) -> bool:
    # The files of a package have the times of its build.
    return tar.exists() and tar.stat().st_mtime > max(source.stat().st_mtime, source.stat().st_ctime)
