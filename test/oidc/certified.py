"""The provider oidc-provider, which is certified by the OpenID Foundation, for tests with a browser."""

import shutil
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(PROJECT / "test/ingress-nginx"))

from browser import Browser  # noqa: E402
from process import Program, accepts, free_ports  # noqa: E402

TOOLS = PROJECT / "target/tools"

CLIENT_ID, CLIENT_SECRET = "shop", "the-secret-of-the-shop"


class Certified:
    """The provider with one client, whose redirect URIs are at `origins`."""

    def __init__(self, folder: Path, origins: list[str], access_seconds: int = 300) -> None:
        port, = free_ports(1)
        shutil.copy(PROJECT / "test/oidc/provider.mjs", TOOLS / "oidc/provider.mjs")
        self.program = Program(["node", str(TOOLS / "oidc/provider.mjs"), str(port), str(access_seconds), *origins], folder / "provider.log", lambda: accepts(port))
        self.issuer = f"http://127.0.0.1:{port}"
        self.introspection = f"{self.issuer}/token/introspection"

    form = "document.querySelector('input[name=login]') !== null"

    def log_in(self, browser: Browser, name: str = "alice") -> None:
        browser.wait(self.form)
        browser.value(f"document.querySelector('input[name=login]').value = '{name}'; document.querySelector('input[name=password]').value = 'x'; document.querySelector('form').submit()")
        browser.wait("document.querySelector('input[name=prompt][value=consent]') !== null")
        browser.value("document.querySelector('form').submit()")

    def confirm_logout(self, browser: Browser) -> None:
        browser.wait("document.querySelector('button[name=logout]') !== null")
        browser.value("document.querySelector('button[name=logout]').click()")

    def stop(self) -> None:
        self.program.stop()
