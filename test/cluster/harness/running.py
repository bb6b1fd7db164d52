"""Commands that run beside a test."""

import signal
import subprocess
from pathlib import Path

from .errors import ClusterError


class Running:
    """A command in the cluster's network, with its output in a file."""

    def __init__(self, argv: list[str], enter: list[str], log: Path, environment: dict[str, str]) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*enter, *argv], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def output(self) -> str:
        """Returns the output so far, from standard output and standard error."""
        return self.log.read_text(errors="replace")

    def wait(self, timeout: float = 30) -> int:
        """Waits for the end, and returns the exit code. A negative code is the signal that killed the command."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{self.process.args} still runs after {timeout:g} s:\n{self.output()[-2000:]}") from None

    def terminate(self, timeout: float = 30) -> int:
        """Ends the command by SIGTERM, and returns its exit code."""
        self.send(signal.SIGTERM)
        return self.wait(timeout)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kills the command, if it is running."""
        if self.running:
            self.process.kill()
        self.process.wait()
