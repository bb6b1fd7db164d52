"""The permanent programs of a cluster, each with a log and a file with its process id."""

import json
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .errors import ClusterError
from .paths import RunFolder
from .processes import Process, kill_all, wait_until

TAIL = 15
"""The number of lines of a log in an error."""


@dataclass
class Part:
    """A program in some namespaces that survives the command that started it."""

    name: str
    """The name, such as `kube-apiserver` or `node-1/kubelet`."""
    folder: RunFolder
    argv: list[str]
    enter: Callable[[], list[str]]
    """The prefix of the command."""
    ready: Callable[[], bool] | None = None
    """Returns whether the part is ready. Without this function, a running part is ready."""
    forks: bool = False
    """Whether `enter` forks, so that the program is a child of the started process."""
    environment: dict[str, str] | None = None
    _child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log(self) -> Path:
        return self.folder.logs / f"{self.name}.log"

    @property
    def _pids(self) -> Path:
        return self.folder.pids / f"{self.name}.json"

    @property
    def process(self) -> Process | None:
        """The process, if it is running."""
        processes = self._processes()
        return processes[-1] if processes and processes[-1].running else None

    @property
    def running(self) -> bool:
        return self.process is not None

    def launch(self) -> None:
        """Starts the part without waiting for its readiness. Does nothing if the part is running."""
        if self.running:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._pids.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("ab") as log:
                self._child = subprocess.Popen(
                    [*self.enter(), *self.argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True, cwd="/", env=self.environment,
                )
        except FileNotFoundError as error:
            raise ClusterError(f"{error.filename} is not installed: scripts/setup cluster") from None
        first = Process.find(self._child.pid)
        if first is None:
            raise self.failed("ended at once")
        processes = [first]
        if self.forks:
            processes += wait_until(lambda: first.children() or not first.running, f"{self.name} to start", 10, 0.005) \
                if first.running else []
        if not first.running:
            raise self.failed("ended at once")
        self._pids.write_text(json.dumps([[process.pid, process.started] for process in processes]))

    def wait_ready(self, timeout: float = 60) -> None:
        """Waits until the part is ready."""

        def ready() -> bool:
            if not self.running:
                raise self.failed("ended")
            return self.ready is None or self.ready()

        try:
            wait_until(ready, self.name, timeout)
        except ClusterError as error:
            raise error if "ended" in str(error) else self.failed(f"is not ready after {timeout:g} s") from None

    def start(self) -> None:
        """Starts the part, and waits until it is ready."""
        self.launch()
        self.wait_ready()

    def kill(self) -> None:
        """Kills the part (SIGKILL), and waits for its end."""
        kill_all(lambda: [process for process in self._processes() if process.running], self.name)
        self._pids.unlink(missing_ok=True)
        if self._child:
            self._child.wait()
            self._child = None

    def pause(self) -> None:
        """Pauses the part (SIGSTOP) until `resume`."""
        process = self._need()
        process.send(signal.SIGSTOP)
        wait_until(lambda: process.stopped, f"{self.name} to stand still", 10, 0.01)

    def resume(self) -> None:
        """Resumes the part (SIGCONT)."""
        # nsenter(1) stops together with its child.
        for process in reversed(self._processes()):
            process.send(signal.SIGCONT)

    def tail(self, lines: int = TAIL) -> str:
        """Returns the end of the log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def failed(self, how: str) -> ClusterError:
        """Returns the error of a failed part, with the end of its log."""
        return ClusterError(f"{self.name} {how}. The end of {self.log}:\n{self.tail()}")

    def _need(self) -> Process:
        process = self.process
        if process is None:
            raise ClusterError(f"{self.name} does not run")
        return process

    def _processes(self) -> list[Process]:
        try:
            return [Process(pid, started) for pid, started in json.loads(self._pids.read_text())]
        except (FileNotFoundError, json.JSONDecodeError):
            return []
