"""Processes as the kernel shows them in /proc."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from .errors import ClusterError

T = TypeVar("T")


def wait_until(probe: Callable[[], T], what: str, timeout: float = 30, interval: float = 0.05) -> T:
    """Asks `probe` until its answer is true, and returns that. `what` is for the message: what is waited for."""
    deadline = time.monotonic() + timeout
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {timeout:g} s in vain: {what}")
        time.sleep(interval)


@dataclass(frozen=True)
class Process:
    """A process that is not mistaken for a later one with the same id."""

    pid: int
    started: str
    """When it was started, in clock ticks since boot."""

    @classmethod
    def find(cls, pid: int) -> "Process | None":
        """The running process of that id; a zombie is none."""
        fields = _stat(pid)
        return cls(pid, fields[19]) if fields and fields[0] != "Z" else None

    @property
    def running(self) -> bool:
        return Process.find(self.pid) == self

    @property
    def stopped(self) -> bool:
        """Whether it stands still because of SIGSTOP."""
        fields = _stat(self.pid)
        return self.running and fields is not None and fields[0] == "T"

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, if the process is still there."""
        if self.running:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def children(self) -> list["Process"]:
        """The processes that it started."""
        found = []
        for pid in all_pids():
            fields = _stat(pid)
            if fields and fields[1] == str(self.pid) and fields[0] != "Z":
                found.append(Process(pid, fields[19]))
        return found


def all_pids() -> list[int]:
    """Every process of the machine."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def kill_all(find: Callable[[], Iterable[Process]], what: str, timeout: float = 10) -> None:
    """Kills what `find` finds until it finds nothing any more."""

    def gone() -> bool:
        found = list(find())
        for process in found:
            process.send(signal.SIGKILL)
        return not found

    try:
        wait_until(gone, what, timeout, 0.02)
    except ClusterError:
        left = ", ".join(f"{process.pid} ({command(process.pid)})" for process in find())
        raise ClusterError(f"{what}: processes do not end after SIGKILL: {left}") from None


def command(pid: int) -> str:
    """The name of a process's program."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "gone"

def checked(argv: list[str], **options: object) -> str:
    """The output of a command that has to succeed."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    except FileNotFoundError as error:
        raise ClusterError(f"{error.filename} is not installed: scripts/setup cluster") from None
    if done.returncode != 0:
        raise ClusterError(f"`{' '.join(argv)}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on, which is 0 here and 3 in proc(5)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
