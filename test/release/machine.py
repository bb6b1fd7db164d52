"""A machine with systemd and with a disposable copy of this machine's files, for tests of the Debian package. Needs root."""

import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from released import PATIENCE

# The files are an overlay in memory, which ends with the mount namespace. Few units start: basic.target starts no servers.
BOOT = """
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
rm -f "$1/root/usr/sbin/policy-rc.d" "$1/root/etc/machine-id"
touch "$1/root/etc/machine-id"
mkdir -p "$1/root/files"
cp "${@:2}" "$1/root/files"
exec systemd-nspawn --quiet --boot --directory="$1/root" --register=no --keep-unit --private-network --link-journal=no --console=pipe \
  systemd.unit=basic.target
"""


class Machine:
    """`files` are in the folder /files of the machine."""

    def __init__(self, files: list[Path]):
        self.folder = tempfile.TemporaryDirectory(prefix="machine")
        boot = ["unshare", "--mount", "--fork", "--kill-child", "bash", "-c", BOOT, "boot", self.folder.name, *files]
        self.process = subprocess.Popen(boot, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.leader = self.until(self.find_leader, "systemd starts")
        self.until(lambda: self.run("systemctl", "is-active", "basic.target", check=False).returncode == 0, "systemd has started")

    def stop(self) -> None:
        # The kernel ends all processes of a namespace whose first process has ended.
        os.kill(self.leader, signal.SIGKILL)
        self.process.wait()
        self.folder.cleanup()

    def find_leader(self) -> int | None:
        """The process of systemd: a descendant of the process that this class started."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                pid, command, parent = re.match(r"(\d+) \((.*)\) \w (\d+)", stat.read_text(), re.DOTALL).groups()
            except OSError:
                continue
            parents[int(pid)] = (int(parent), command)
        for pid, (parent, command) in parents.items():
            ancestor = parent
            while ancestor in parents and ancestor != self.process.pid:
                ancestor = parents[ancestor][0]
            if command == "systemd" and ancestor == self.process.pid:
                return pid
        return None

    def inside(self, *command: object) -> list[str]:
        spaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
        return ["nsenter", f"--target={self.leader}", *spaces, "--root", "--wdns=/", *map(str, command)]

    def run(self, *command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(self.inside(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE * 5)
        if check and done.returncode:
            journal = self.run("journalctl", "--no-pager", "--lines=40", check=False).stdout
            raise AssertionError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}\n{journal}")
        return done

    def read(self, *command: object) -> str:
        return self.run(*command).stdout.strip()

    def until(self, holds, promise: str):
        """Waits until a condition holds, and returns its value."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if value := holds():
                return value
            if self.process.poll() is not None:
                raise AssertionError(f"systemd-nspawn ended with {self.process.returncode}")
            time.sleep(0.05)
        raise AssertionError(f"not within {PATIENCE} s: {promise}")
