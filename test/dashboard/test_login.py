"""Tests of the login of the dashboard and of the portal at a real OpenID provider, in a browser."""

import json
import time
import unittest
from pathlib import Path

import estate
from gateway_site import PHONE, PUBLISHED, WIDE
from test_dashboard import PAGES, InBrowser

# gateway_site adds the folder.
from certified import CLIENT_ID, CLIENT_SECRET, Certified  # isort: skip

DASHBOARD_RULES = "roles: [{group: platform, role: operator}, {group: staff, role: viewer}]"
PORTAL_RULES = "consumers: [{group: partners, consumers: [shop/partner]}]"


def write_users(file: Path, users: str, provider: Certified, origin: str, rules: str) -> None:
    """Writes a file with users and with the login at a provider."""
    section = f"""openIdConnect:
  issuer: {provider.issuer}
  clientId: {CLIENT_ID}
  clientSecret: {CLIENT_SECRET}
  publicUrl: {origin}
  name: Shop login
  scopes: [openid, groups]
  {rules}
"""
    # The gateway never reads half a file.
    new = file.with_name(file.name + ".new")
    new.write_text(users + section)
    new.rename(file)


class Login(InBrowser):
    options = {"token": estate.OPERATORS, "changes": True}
    provider: Certified

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        site = cls.site
        cls.provider = Certified(site.folder, [site.origin, site.portal_origin])
        cls.addClassCleanup(cls.provider.stop)
        write_users(site.folder / "token", estate.OPERATORS, cls.provider, site.origin, DASHBOARD_RULES)
        write_users(site.folder / "visitors.yaml", estate.VISITORS, cls.provider, site.portal_origin, PORTAL_RULES)
        end = time.monotonic() + 15
        while any(json.loads(site.get(port, "/api/session")[2]).get("openid") is None for port in (site.dashboard, site.portal)):
            assert time.monotonic() < end, "the gateway does not read the file"
            time.sleep(0.1)

    def setUp(self) -> None:
        self.window.resize(WIDE)
        self.window.call("Network.clearBrowserCookies")

    def begin(self, url: str) -> None:
        """Opens the login page of a site, and goes to the provider."""
        self.window.open(url, "document.querySelector('#provider') !== null")
        self.window.value("document.querySelector('#provider').click()")

    def log_in(self, path: str, name: str) -> None:
        self.begin(self.site.origin + path)
        self.provider.log_in(self.window, name)
        self.window.wait(f"location.origin === '{self.site.origin}' && document.getElementById('facts')?.innerText.includes('{name}')", 20)

    def status(self, script: str) -> int:
        return self.window.value(f"fetch({script}).then((response) => response.status)")

    def test_login_page_has_no_serious_finding(self) -> None:
        for origin, path in ((self.site.origin, "/"), (self.site.portal_origin, "/login")):
            for size in (WIDE, PHONE):
                self.window.resize(size)
                for scheme in ("light", "dark"):
                    self.window.scheme(scheme)
                    with self.subTest(origin=origin, size=size, scheme=scheme):
                        self.window.open(origin + path, "document.querySelector('#provider') !== null && document.querySelector('#token') !== null")
                        self.assertEqual(self.window.findings(), [])
                        self.assertEqual([error for error in self.window.errors() if "404" not in error], [])
                        self.assertLessEqual(self.window.value("document.documentElement.scrollWidth"), size[0], "the page scrolls sideways")
        self.window.scheme("light")
        self.assertEqual(self.window.value("document.activeElement.id"), "provider", "the keyboard is at the login")

    def test_operator_logs_in_changes_a_key_and_logs_out(self) -> None:
        self.log_in("/keys?search=second", "olga")
        self.assertEqual(self.window.value("location.pathname + location.search"), "/keys?search=second")
        self.assertIn("olga (operator)", self.window.value("document.getElementById('facts').innerText"))
        for cookie in self.window.call("Network.getAllCookies")["cookies"]:
            if cookie["name"].startswith("sluicegate_"):
                self.assertEqual((cookie["name"], cookie["httpOnly"], cookie["sameSite"]), ("sluicegate_session", True, "Strict"))
        self.assertEqual(self.window.value("document.cookie"), "")
        self.window.wait("[...document.querySelectorAll('button')].some((button) => button.innerText.includes('Issue a key'))")
        self.window.value("[...document.querySelectorAll('button')].find((button) => button.innerText.includes('Issue a key')).click()")
        self.window.wait("document.querySelector('dialog.modal') !== null")
        self.window.value("document.querySelector('dialog.modal input').value = 'shop/partner'; document.querySelector('dialog.modal form').requestSubmit()")
        self.window.wait("document.querySelector('#new-key') !== null")
        log = (self.site.folder / "gateway.log").read_text()
        self.assertIn("issue a key of Consumer shop/partner", log)
        self.assertIn("olga", log)
        self.assertFalse(CLIENT_SECRET in log or "eyJ" in log, "a secret is in the log")

        self.window.open(self.site.origin + "/keys", PAGES["/keys"])
        self.window.value("document.getElementById('logout').click()")
        self.provider.confirm_logout(self.window)
        self.window.wait(f"location.href === '{self.site.origin}/' && document.querySelector('#provider') !== null", 20)
        self.assertEqual(self.status("'/api/routes'"), 401)
        # The session at the provider has ended too: the provider asks for the name again.
        self.window.value("document.querySelector('#provider').click()")
        self.window.wait(self.provider.form)

    def test_viewer_reads_and_changes_nothing(self) -> None:
        self.log_in("/keys", "vera")
        self.window.wait(PAGES["/keys"])
        self.assertIn("vera (viewer)", self.window.value("document.getElementById('facts').innerText"))
        self.assertFalse(self.window.value("document.body.innerText.includes('Issue a key')"))
        status = self.status("""'/api/change', {method: 'POST', headers: {'content-type': 'application/json', 'x-sluicegate-change': '1'},
          body: JSON.stringify({change: 'issue', consumer: 'shop/partner'})}""")
        self.assertEqual(status, 403)

    def test_user_without_a_role_has_no_access(self) -> None:
        self.begin(self.site.origin + "/routes")
        self.provider.log_in(self.window, "nora")
        self.window.wait("document.body.innerText.includes('The user nora has no role in the dashboard.')", 20)
        self.assertEqual(self.window.findings(), [])
        self.assertEqual(self.status("'/api/routes'"), 401)

    def test_users_of_the_portal_see_the_apis_of_their_groups(self) -> None:
        for name, apis, keys in (("paula", ["orders", "parcels", "stock"], 1), ("otto", ["stock"], 0)):
            with self.subTest(name=name):
                self.window.call("Network.clearBrowserCookies")
                self.begin(self.site.portal_origin + "/login")
                self.provider.log_in(self.window, name)
                self.window.wait(f"location.origin === '{self.site.portal_origin}' && document.getElementById('facts')?.innerText === '{name}'", 20)
                self.window.wait(f"document.querySelectorAll('.cards .card').length === {len(apis)}")
                found = self.window.value("fetch('/api/apis').then((response) => response.json()).then((apis) => apis.items.map((api) => api.name))")
                self.assertEqual(sorted(found), apis)
                self.assertEqual(self.status("'/api/api?namespace=shop&name=orders'"), 200 if "orders" in apis else 404)
                self.assertEqual(self.window.value("fetch('/api/keys').then((response) => response.json()).then((keys) => keys.total > 0)"), keys > 0)
        # The session of the portal is no session of the dashboard.
        self.window.open(self.site.origin + "/", "document.querySelector('#provider') !== null")
        self.assertEqual(self.status("'/api/routes'"), 401)


class Published(InBrowser):
    """The portal behind an HTTPS route of the gateway itself."""

    provider: Certified

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        site = cls.site
        objects = [
            *estate.service("shop", "portal", [("127.0.0.1", True)], site.portal),
            estate.certificate(site.folder, "shop", "portal-tls", [PUBLISHED], 30),
            estate.ingress("shop", "portal", PUBLISHED, [("/", "portal")], "portal-tls"),
            estate.named("Consumer", "shop", "carla", {}),
        ]
        (site.manifests / "portal.yaml").write_text(estate.dumped(*objects))
        cls.provider = Certified(site.folder, [site.published_origin])
        cls.addClassCleanup(cls.provider.stop)
        rules = "consumers: [{user: paula, consumers: [shop/carla]}]"
        write_users(site.folder / "visitors.yaml", estate.VISITORS, cls.provider, site.published_origin, rules)

    def test_user_logs_in_subscribes_and_calls_with_a_new_key(self) -> None:
        origin, carla = self.site.published_origin, "token-of-paula-01234567"
        self.window.resize(WIDE)
        end = time.monotonic() + 15
        while json.loads(self.site.get(self.site.portal, "/api/session")[2]).get("openid") is None:
            self.assertLess(time.monotonic(), end, "the gateway does not read the file")
            time.sleep(0.1)
        self.window.open(f"{origin}/apis/shop/orders", "document.querySelector('main h1') !== null", 30)
        self.window.open(f"{origin}/login", "document.querySelector('#provider') !== null")
        self.assertTrue(self.window.value("window.isSecureContext"))
        self.window.value("document.querySelector('#provider').click()")
        self.provider.log_in(self.window, "paula")
        self.window.wait(f"location.origin === '{origin}' && document.getElementById('facts')?.innerText === 'paula'", 20)
        cookies = [each for each in self.window.call("Network.getAllCookies")["cookies"] if "sluicegate" in each["name"]]
        self.assertEqual([(each["name"], each["secure"], each["sameSite"]) for each in cookies], [("__Host-sluicegate_portal_session", True, "Strict")])
        self.window.open(f"{origin}/apis/shop/orders", "document.body.innerText.includes('Gold')")
        self.window.value("[...document.querySelectorAll('button')].find((button) => button.getAttribute('aria-label') === 'Subscribe by the plan Gold').click()")
        self.window.wait("document.querySelector('dialog.modal') !== null")
        self.window.value("document.querySelector('dialog.modal form').requestSubmit()")
        self.window.wait("location.pathname === '/subscriptions' && document.body.innerText.includes('Pending')", 20)
        self.window.open(f"{origin}/keys", "[...document.querySelectorAll('button')].some((button) => button.innerText.includes('Issue a key'))")
        self.window.value("[...document.querySelectorAll('button')].find((button) => button.innerText.includes('Issue a key')).click()")
        self.window.wait("document.querySelector('dialog.modal') !== null")
        self.window.value("document.querySelector('dialog.modal form').requestSubmit()")
        self.window.wait("document.querySelector('#new-key') !== null", 20)
        self.assertTrue(self.window.value("document.querySelector('#new-key').innerText.trim()").startswith("sgk_"))
        self.check_errors()
        # A user with a token logs in over the same route.
        self.window.call("Network.clearBrowserCookies")
        self.window.open(f"{origin}/login", "document.querySelector('#token') !== null")
        self.window.value(f"document.querySelector('#token').value = '{carla}'; document.querySelector('#token').form.requestSubmit()")
        self.window.wait("document.querySelector('#token') === null && document.getElementById('facts').innerText === 'paula'")
        self.window.open(f"{origin}/subscriptions", "document.querySelector('meter') !== null")


if __name__ == "__main__":
    unittest.main()
