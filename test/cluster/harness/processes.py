"""Processes in /proc."""

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
    """Calls `probe` until its result is true, and returns the result. `what` names the condition in the message of a timeout."""
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
    """A process, identified by its id and its start time, because ids are reused."""

    pid: int
    started: str
    """The start time, in clock ticks since boot."""

    @classmethod
    def find(cls, pid: int) -> "Process | None":
        """Returns the running process with this id. A zombie is not running."""
        fields = _stat(pid)
        return cls(pid, fields[19]) if fields and fields[0] != "Z" else None

    @property
    def running(self) -> bool:
        return Process.find(self.pid) == self

    @property
    def stopped(self) -> bool:
        """Whether SIGSTOP has stopped the process."""
        fields = _stat(self.pid)
        return self.running and fields is not None and fields[0] == "T"

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, if the process is still running."""
        if self.running:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def children(self) -> list["Process"]:
        """Returns the child processes."""
        found = []
        for pid in all_pids():
            fields = _stat(pid)
            if fields and fields[1] == str(self.pid) and fields[0] != "Z":
                found.append(Process(pid, fields[19]))
        return found


def all_pids() -> list[int]:
    """Returns all processes of the machine."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def kill_all(find: Callable[[], Iterable[Process]], what: str, timeout: float = 10) -> None:
    """Kills the processes that `find` returns, until it returns none."""

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
    """Returns the name of the program of a process."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "gone"

def checked(argv: list[str], **options: object) -> str:
    """Returns the output of a command, which must succeed."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    except FileNotFoundError as error:
        raise ClusterError(f"{error.filename} is not installed: scripts/setup cluster") from None
    if done.returncode != 0:
        raise ClusterError(f"`{' '.join(argv)}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _stat(pid: int) -> list[str] | None:
    """Returns the fields of /proc/PID/stat from the state on. The state has the index 0 here, and 3 in proc(5)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
