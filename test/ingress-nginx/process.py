"""Programs that the tests start, and stop by their process IDs."""

import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

START = 30.0
"""The time in seconds in which a program must be ready."""


def free_ports(count: int) -> list[int]:
    """Returns free ports of 127.0.0.1."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Program:
    """A running program, with its output in a file."""

    def __init__(self, command: list[str], log: Path, is_ready: Callable[[], bool]) -> None:
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        end = time.monotonic() + START
        while not is_ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"{command[0]} is not ready:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def accepts(port: int) -> bool:
    """Returns whether a port of 127.0.0.1 accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False
