"""A browser for tests, of ingress-nginx and of the dashboard."""

import http.client
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from process import Program, accepts, free_ports


class Browser:
    """Chromium without a window, driven by the DevTools protocol."""

    def __init__(self, folder: Path, options: list[str]) -> None:
        port, = free_ports(1)
        self.program = Program(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={folder}/profile",
                                *options, f"--remote-debugging-port={port}", "about:blank"],
                               folder / "chromium.log", lambda: accepts(port))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/json")
        pages = json.loads(connection.getresponse().read())
        connection.close()
        self.path = urlsplit(next(each["webSocketDebuggerUrl"] for each in pages if each["type"] == "page")).path
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.connection.connect()
        self.socket = self.connection.sock
        self.socket.sendall((f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n").encode())
        self.file = self.socket.makefile("rb")
        while self.file.readline().strip():
            pass
        self.count = 0
        self.events: list[dict[str, Any]] = []
        """The events that arrived while a call waited for its answer."""

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.count += 1
        data = json.dumps({"id": self.count, "method": method, "params": params}).encode()
        # A frame of text with a mask of zeros.
        length = b"\xfe" + len(data).to_bytes(2, "big") if len(data) < 1 << 16 else b"\xff" + len(data).to_bytes(8, "big")
        self.socket.sendall(b"\x81" + length + bytes(4) + data)
        while True:
            answer = self.message()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer.get("result", {})
            if "method" in answer:
                self.events.append(answer)

    def message(self) -> dict[str, Any]:
        """Reads a message, which may have several frames."""
        data = b""
        while True:
            head = self.file.read(2)
            length = head[1]
            if length >= 126:
                length = int.from_bytes(self.file.read(2 if length == 126 else 8), "big")
            data += self.file.read(length)
            if head[0] & 0x80:
                return json.loads(data)

    def value(self, script: str) -> Any:
        """The value of a script, or of its promise."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        return answer.get("result", {}).get("value")

    def wait(self, script: str, seconds: float = 10) -> None:
        end = time.monotonic() + seconds
        while not self.is_true(script):
            if time.monotonic() > end:
                raise AssertionError(f"{script} is not true at {self.value('location.href')}: {self.value('document.body.innerText')}")
            time.sleep(0.05)

    def is_true(self, script: str) -> bool:
        try:
            return self.value(script) is True
        except AssertionError as error:
            # A page that the browser leaves has no answer.
            if "navigated" in str(error) or "context was destroyed" in str(error):
                return False
            raise

    def stop(self) -> None:
        self.connection.close()
        self.program.stop()
