"""Tests of logins with a real provider and a real browser."""

import json
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

from login_site import ACCESS_SECONDS, API, CLIENT_SECRET, SOLO, SSO, Browser, Site


class Login(unittest.TestCase):
    site: Site
    folder: Path

    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        cls.site = Site(cls.folder)
        cls.addClassCleanup(cls.site.stop)

    def setUp(self) -> None:
        profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(profile.cleanup)
        self.browser = Browser(Path(profile.name), ["--ignore-certificate-errors"])
        self.addCleanup(self.browser.stop)

    def go(self, url: str) -> None:
        self.browser.call("Page.navigate", url=url)

    def page(self, url: str) -> dict[str, Any]:
        """Waits for a page of the endpoint, and returns the request that the endpoint received."""
        self.browser.wait(f"location.href === {json.dumps(url)} && document.readyState === 'complete' && document.body.innerText.startsWith('{{')", 60)
        return json.loads(self.browser.value("document.body.innerText"))

    def log_in(self, host: str, path: str = "/") -> dict[str, Any]:
        url = self.site.origin(host) + path
        self.go(url)
        self.site.provider.log_in(self.browser)
        return self.page(url)

    def cookies(self) -> list[dict[str, Any]]:
        return [each for each in self.browser.call("Network.getAllCookies")["cookies"] if "sluicegate-" in each["name"]]

    def fetched(self, path: str) -> int:
        """The status that a script of the page receives."""
        return self.browser.value(f"fetch({json.dumps(path)}).then((response) => response.status)")

    def test_user_logs_in_and_returns_to_the_page(self) -> None:
        seen = self.log_in(SOLO, "/orders?id=7&x=%26")
        self.assertEqual(seen["path"], "/orders?id=7&x=%26")
        headers = seen["headers"]
        self.assertEqual(headers["x-email"], ["alice@example.com"])
        self.assertEqual(len(headers["x-user"]), 1)
        self.assertTrue(headers["authorization"][0].startswith("Bearer "))
        self.assertNotIn("cookie", headers)
        for cookie in self.cookies():
            self.assertTrue(cookie["name"].startswith("__Host-"), cookie["name"])
            self.assertTrue(cookie["httpOnly"] and cookie["secure"] and cookie["sameSite"] == "Lax", cookie)
        self.assertEqual(self.browser.value("document.cookie"), "")
        # No log and no dump shows a token.
        token = headers["authorization"][0].split()[1]
        for text in (self.site.get(self.site.admin, "/config")[2].decode(), (self.folder / "gateway.log").read_text(), (self.folder / "access.log").read_text()):
            self.assertFalse(token in text or CLIENT_SECRET in text, "a secret is shown")
        callbacks = [line for line in (self.folder / "access.log").read_text().splitlines() if "/oauth2/callback?" in line]
        self.assertGreater(len(callbacks), 0)
        for line in callbacks:
            self.assertIn("code=***", line)

    def test_hosts_of_a_domain_share_the_session(self) -> None:
        self.log_in(SSO[0])
        started = self.site.sessions("login_started")
        url = self.site.origin(SSO[1]) + "/guide"
        self.go(url)
        self.assertEqual(self.page(url)["headers"]["x-email"], ["alice@example.com"])
        self.assertEqual(self.site.sessions("login_started"), started)
        for cookie in self.cookies():
            self.assertEqual((cookie["domain"], cookie["name"][:9]), (".sso.localhost", "__Secure-"))
        # The other host asks the provider, which knows the user.
        url = self.site.origin(SOLO) + "/"
        self.go(url)
        self.page(url)
        self.assertEqual(self.site.sessions("login_started"), started + 1)

    def test_session_is_refreshed_while_the_user_works(self) -> None:
        first = self.log_in(SOLO)["headers"]["authorization"]
        refreshed = self.site.sessions("refreshed")
        end = time.monotonic() + 3 * ACCESS_SECONDS
        while self.site.sessions("refreshed") < refreshed + 2:
            self.assertLess(time.monotonic(), end, "no refresh")
            self.assertEqual([self.fetched("/a"), self.fetched("/b")], [200, 200])
            time.sleep(0.2)
        url = self.site.origin(SOLO) + "/later"
        self.go(url)
        self.assertNotEqual(self.page(url)["headers"]["authorization"], first)

    def test_script_without_a_session_receives_401(self) -> None:
        self.log_in(SOLO)
        self.assertEqual(self.fetched("/data"), 200)
        self.browser.call("Network.clearBrowserCookies")
        started = self.site.sessions("login_started")
        self.assertEqual(self.fetched("/data"), 401)
        self.assertEqual(self.site.sessions("login_started"), started)

    def test_logout_ends_the_session_here_and_at_the_provider(self) -> None:
        self.log_in(SSO[0])
        self.go(self.site.origin(SSO[0]) + "/oauth2/logout")
        self.site.provider.confirm_logout(self.browser)
        # The browser returns to a page that needs a login, and the provider does not know the user any more.
        self.browser.wait(self.site.provider.form, 60)
        self.assertEqual([each["name"] for each in self.cookies() if ".l" not in each["name"]], [])
        self.site.provider.log_in(self.browser)
        self.page(self.site.origin(SSO[0]) + "/bye")

    def test_access_token_of_a_session_is_introspected(self) -> None:
        token = self.log_in(SOLO)["headers"]["authorization"][0]
        status, body = self.site.over_tls(API, "/v1", Authorization=token)
        self.assertEqual(status, 200, body)
        self.assertEqual(len(json.loads(body)["headers"]["x-user"]), 1)
        self.assertEqual(self.site.over_tls(API, "/v1", Authorization="Bearer forged")[0], 401)
        self.assertEqual(self.site.over_tls(API, "/v1")[0], 401)


if __name__ == "__main__":
    unittest.main()
