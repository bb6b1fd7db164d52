#!/usr/bin/env python3
"""Writes an image of one program as a docker-archive, which `ctr images import` and `docker load` read.

The image includes the shared libraries of the program. The same content gives the same bytes and the same digest.
"""

import argparse
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Image:
    """An image with one layer."""

    name: str
    """The name with a tag, such as `sluicegate.dev/cluster/pause:1`. The tag `latest` is unusable, because Kubernetes always pulls it."""
    program: Path
    """The program in the root folder, which is the entry point."""
    arguments: list[str] = field(default_factory=list)
    """The default arguments of the program."""
    files: dict[str, Path] = field(default_factory=dict)
    """Further files by their path in the image."""
    user: str = ""
    """The user id of the program. By default, root."""

    def write(self, tar: Path) -> None:
        """Writes the archive atomically."""
        layer = self._layer()
        entry = f"/{self.program.name}"
        digest = hashlib.sha256(layer).hexdigest()
        config = json.dumps({
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
            "os": "linux",
            "config": {"Entrypoint": [entry], "Cmd": self.arguments, "Env": ["PATH=/"], "WorkingDir": "/", "User": self.user},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }, sort_keys=True).encode()
        config_name = f"{hashlib.sha256(config).hexdigest()}.json"
        manifest = json.dumps([{"Config": config_name, "RepoTags": [self.name], "Layers": [f"{digest}.tar"]}]).encode()
        tar.parent.mkdir(parents=True, exist_ok=True)
        new = tar.with_name(f".{tar.name}.{os.getpid()}")
        new.write_bytes(_archive({config_name: (config, 0o644), f"{digest}.tar": (layer, 0o644),
                                  "manifest.json": (manifest, 0o644)}))
        new.replace(tar)

    def _layer(self) -> bytes:
        content = {self.program.name: (self.program.read_bytes(), 0o755)}
        for library in libraries(self.program):
            content[str(library).lstrip("/")] = (library.read_bytes(), 0o755)
        for path, source in self.files.items():
            content[path.lstrip("/")] = (source.read_bytes(), source.stat().st_mode & 0o777)
        return _archive(content)


def libraries(program: Path) -> list[Path]:
    """Returns the shared libraries of a program and the loader according to ldd(1). A static program has none."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True)
    if "not found" in listed.stdout:
        raise FileNotFoundError(f"{program} lacks libraries:\n{listed.stdout}")
    return [Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+)", listed.stdout, re.MULTILINE)]


def _archive(content: dict[str, tuple[bytes, int]]) -> bytes:
    """Returns a tar of the files and their folders, without times or users of this machine."""
    folders = sorted({str(parent) for path in content for parent in Path(path).parents if str(parent) != "."})
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for folder in folders:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for path in sorted(content):
            data, mode = content[path]
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes an image of one program and its libraries as a docker-archive.")
    parser.add_argument("tar", type=Path, help="the archive to write")
    parser.add_argument("--name", required=True, help="the image's name with its tag, which must not be latest")
    parser.add_argument("--program", type=Path, required=True, help="the program; it becomes the entry point")
    parser.add_argument("--file", action="append", default=[], metavar="PATH=FILE", help="another file, and its path in the image")
    parser.add_argument("--arguments", nargs=argparse.REMAINDER, default=[], metavar="ARGUMENT",
                        help="the last option: the default arguments of the program, which a pod can replace")
    options = parser.parse_args()
    files = {path: Path(file) for path, _, file in (each.partition("=") for each in options.file)}
    Image(options.name, options.program, options.arguments, files).write(options.tar)


if __name__ == "__main__":
    main()
