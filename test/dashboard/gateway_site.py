"""A gateway with a dashboard, its endpoints, some traffic, and a browser."""

import base64
import http.client
import json
import os
import sys
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(PROJECT / "test/ingress-nginx"), str(PROJECT / "test/oidc")]

import estate  # noqa: E402
from browser import Browser  # noqa: E402
from process import Program, free_ports  # noqa: E402

PROGRAM = Path(os.environ.get("SLUICEGATE") or PROJECT / "target/debug/sluicegate").resolve()
"""The program: the file of the environment variable SLUICEGATE, or the debug build."""

AXE = PROJECT / "target/tools/dashboard/node_modules/axe-core/axe.min.js"

PUBLISHED = "portal.localhost"
"""The host of the portal behind the gateway itself."""

WIDE, PHONE = (1440, 900), (360, 740)


class Endpoint(BaseHTTPRequestHandler):
    """Responds with JSON; some paths respond with errors."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        status = 500 if self.path.startswith("/cart/broken") else 404 if self.path.startswith("/account/missing") else 200
        if self.path.startswith("/account"):
            time.sleep(0.015)
        body = json.dumps({"path": self.path, "method": self.command, "items": [{"article": "AB-1234", "quantity": 2}]}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


class Site:
    """A gateway that serves the shop and an estate."""

    def __init__(self, folder: Path, *, routes: int = 0, apis: int = 0, token: str | None = None, port: int | None = None, changes: bool = False) -> None:
        self.folder, self.manifests = folder, folder / "manifests"
        self.manifests.mkdir()
        self.http, self.https, self.admin, own, self.portal = free_ports(5)
        self.dashboard = port or own
        self.endpoints = ThreadingHTTPServer(("0.0.0.0", 0), Endpoint)
        self.endpoints.daemon_threads = True
        threading.Thread(target=self.endpoints.serve_forever, daemon=True).start()
        endpoint = self.endpoints.server_address[1]
        (self.manifests / "shop.yaml").write_text(estate.shop(endpoint, folder))
        (self.manifests / "faulty.yaml").write_text(estate.FAULTY)
        if routes or apis:
            estate.estate(self.manifests, routes, apis, endpoint)
        options = []
        if token is not None:
            (folder / "token").write_text(token)
            options = ["--dashboard-token-file", str(folder / "token"), *(["--dashboard-changes"] if changes else [])]
        (folder / "visitors.yaml").write_text(estate.VISITORS)
        options += ["--portal-host", PUBLISHED, "--portal-address", f"127.0.0.1:{self.portal}", "--portal-token-file", str(folder / "visitors.yaml"), "--analytics"]
        # The files are named by their folder, as a user would see them.
        self.program = Program(["env", "--chdir", str(folder), str(PROGRAM), "serve", "--manifests", "manifests", "--listen", f"127.0.0.1:{self.http}", "--listen-https", f"127.0.0.1:{self.https}", "--admin", f"127.0.0.1:{self.admin}",
                                "--dashboard-address", f"127.0.0.1:{self.dashboard}", "--trusted-proxies", "127.0.0.0/8", "--workers", "1", "--no-takeover", "--shutdown-grace", "0s", "--shutdown-idle", "0s",
                                "--shutdown-timeout", "1s", "--audit", "--analytics-database", "sqlite:audit.db", *options], folder / "gateway.log", self.is_ready)
        self.origin = f"http://localhost:{self.dashboard}"
        self.portal_origin = f"http://localhost:{self.portal}"
        self.published_origin = f"https://{PUBLISHED}:{self.https}"
        self.stopping = threading.Event()

    def is_ready(self) -> bool:
        try:
            return self.get(self.admin, "/readyz")[0] == 200
        except OSError:
            return False

    def get(self, port: int, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()

    def api(self, path: str, **headers: str) -> Any:
        return json.loads(self.get(self.dashboard, f"/api/{path}", **headers)[2])

    def traffic(self, seconds: float, rate: int = 120) -> None:
        """Sends requests of several kinds, evenly, until the time is over."""
        kinds = [("shop.example", "/", {}), ("shop.example", "/account/orders", {}), ("shop.example", "/cart/1", {}), ("shop.example", "/", {}),
                 ("api.shop.example", "/orders/orders?customer=4711", {"X-API-Key": estate.SECRETS[0]}), ("shop.example", "/account/missing", {}), ("api.shop.example", "/orders/orders", {})]
        end, at = time.monotonic() + seconds, 0
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=10)
        while time.monotonic() < end and not self.stopping.is_set():
            host, path, headers = kinds[at % len(kinds)]
            if at % 211 == 0:
                path = "/cart/broken"
                host = "shop.example"
            at += 1
            wave = 1 + 0.35 * ((at // 600) % 3)
            try:
                connection.request("GET", path, headers={"Host": host, "X-Forwarded-Proto": "https", **headers})
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                connection.close()
            time.sleep(1 / (rate * wave))
        connection.close()

    def stop(self) -> None:
        self.stopping.set()
        self.program.stop()
        self.endpoints.shutdown()
        self.endpoints.server_close()


class Window(Browser):
    """A browser that records errors of pages."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ["--host-resolver-rules=MAP *.shop.example 127.0.0.1, MAP stock.shop.example 127.0.0.1", "--hide-scrollbars", "--ignore-certificate-errors"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.scheme("light")

    def resize(self, size: tuple[int, int], scale: float = 1) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=scale, mobile=size[0] < 600)

    def scheme(self, name: str) -> None:
        """Sets the preferred scheme. Nothing moves, so that every contrast is that of the final state."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name},
                                                              {"name": "prefers-reduced-motion", "value": "reduce"}])

    def open(self, url: str, ready: str, seconds: float = 15) -> None:
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait(ready, seconds)

    def errors(self) -> list[str]:
        """The errors on the console, exceptions, and violations of the content security policy."""
        self.call("Runtime.evaluate", expression="1")
        found = []
        for event in self.events:
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"].get("exception", {}).get("description") or params["exceptionDetails"]["text"]))
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert", "warning"):
                found.append(str([each.get("value") or each.get("description") for each in params["args"]]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        return found

    def findings(self) -> list[str]:
        """The serious and critical findings of axe-core."""
        # The policy of the page forbids no script of the DevTools protocol.
        self.call("Runtime.evaluate", expression=AXE.read_text())
        found = self.value("axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations"
                           ".filter((of) => ['serious', 'critical'].includes(of.impact)).map((of) => `${of.id}: ${of.help}: ` + of.nodes.slice(0, 4).map((node) => node.target.join(' ') + ' ' + (node.any[0]?.message ?? '')).join('; ')))")
        if found is None:
            raise AssertionError("axe-core did not run")
        return found

    def picture(self, file: Path) -> None:
        data = self.call("Page.captureScreenshot", format="png")["data"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(data))
