"""A shell that runs the commands of pages one after another, like a reader at a terminal."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from page import Command, PageError, matches

PATIENCE = 30
"""The time in seconds in which the output of a command becomes as expected."""
LIMIT = 240
"""The time in seconds in which a command ends."""
REPEATABLE = re.compile(r"\b(curl|kubectl\b.*\b(get|describe|logs|events|exec)|sluicegate (routes|upstreams|explain|apis|top|audit|status|ready)|grep|cat|openssl s_client)\b")
"""The commands that a reader repeats until the output is as expected. They change nothing, or the same again."""
ENDLESS = re.compile(r"^(\w+=\S+ )*(sluicegate (serve|control-plane|data-plane)\b|kubectl\b.* port-forward\b|python3 -m http\.server\b|go-httpbin\b)")
"""The commands that run until the reader stops them, each in its own terminal."""


class Session:
    """One bash with a folder. `enter` is the prefix of a command in the network of the session."""

    def __init__(self, folder: Path, state: Path, enter: list[str], environment: dict[str, str]) -> None:
        self.folder = folder
        self._state = state
        self._count = 0
        self._terminals: list[int] = []
        """The process groups of the terminals."""
        state.mkdir(parents=True, exist_ok=True)
        self._shell = subprocess.Popen(
            [*enter, "bash", "--noprofile", "--norc"], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        )
        self._ask("set -o pipefail")

    def move(self, folder: Path) -> None:
        """Continues in another folder."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._ask(f"cd '{folder}'")

    def run(self, command: Command, terminal: bool = False) -> None:
        """Runs a command, and compares its output."""
        if terminal or ENDLESS.match(command.text):
            self._open(command)
            return
        end = time.monotonic() + PATIENCE
        while True:
            status, output = self._ask(command.text)
            right = status == 0 and (not command.expected or matches(command.expected, output))
            if right:
                return
            if not REPEATABLE.search(command.text) or time.monotonic() > end:
                break
            time.sleep(0.3)  # between attempts, as a reader does
        wanted = "\n    ".join(command.expected)
        raise PageError(f"line {command.line}: $ {command.text}\nexit status {status}; output:\n    " + output.replace("\n", "\n    ")
                        + (f"\nexpected:\n    {wanted}" if command.expected else ""))

    def _open(self, command: Command) -> None:
        self._count += 1
        log = self._state / f"terminal-{self._count}.log"
        quoted = command.text.replace("'", "'\\''")
        # kubectl ends a port-forward when its pod ends. A reader starts the command again.
        again = "while :; do {}; sleep 0.2; done" if "port-forward" in command.text else "{}"
        _, pid = self._ask(f"setsid bash -c '{again.format(quoted)}' >'{log}' 2>&1 </dev/null & echo $!")
        self._terminals.append(int(pid))
        end = time.monotonic() + PATIENCE
        while command.expected and not (log.exists() and matches([*command.expected, "..."], log.read_text(errors="replace"))):
            if time.monotonic() > end:
                raise PageError(f"line {command.line}: $ {command.text}\noutput:\n{log.read_text(errors='replace')[-4000:]}\nexpected:\n" + "\n".join(command.expected))
            time.sleep(0.1)

    def _ask(self, text: str) -> tuple[int, str]:
        """Runs text in the shell, and returns its exit status and its output."""
        self._count += 1
        out, status = self._state / f"{self._count}.out", self._state / f"{self._count}.status"
        assert self._shell.stdin
        self._shell.stdin.write(f"{{ {text}\n}} >'{out}' 2>&1 </dev/null\necho $? >'{status}.new'; mv '{status}.new' '{status}'\n")
        self._shell.stdin.flush()
        end = time.monotonic() + LIMIT
        while not status.exists():
            if self._shell.poll() is not None:
                raise PageError(f"the shell ended at: {text}\n{out.read_text(errors='replace') if out.exists() else ''}")
            if time.monotonic() > end:
                raise PageError(f"does not end within {LIMIT} s: {text}\n{out.read_text(errors='replace')}")
            time.sleep(0.01)
        return int(status.read_text()), out.read_text(errors="replace")

    def close_terminals(self, kept: int = 0) -> None:
        """Ends the terminals but the first ones."""
        for group in self._terminals[kept:]:
            _end(group)
        del self._terminals[kept:]

    @property
    def terminals(self) -> int:
        return len(self._terminals)

    def close(self) -> None:
        """Ends the shell and all its terminals."""
        self.close_terminals()
        _end(self._shell.pid)
        self._shell.wait()


def _end(group: int) -> None:
    """Ends a process group: a gateway that drains is killed after a second."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            return
        end = time.monotonic() + 1
        while time.monotonic() < end and _group_lives(group):
            time.sleep(0.05)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
