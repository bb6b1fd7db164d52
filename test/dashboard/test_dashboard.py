"""Tests of the dashboard in a browser: each page, light and dark, wide and on a phone."""

import os
import pwd
import tempfile
import threading
import time
import unittest
from pathlib import Path

import estate
from gateway_site import PHONE, WIDE, Site, Window

PAGES = {
    "/": "document.querySelectorAll('.tile').length >= 10",
    "/analytics": "document.querySelector('main h1') !== null",
    "/audit": "document.querySelectorAll('td .as-link').length > 0",
    "/routes": "document.querySelectorAll('[role=grid] [role=gridcell] code').length > 3",
    "/explain?method=GET&url=http%3A%2F%2Fshop.example%2Fcart": "document.querySelectorAll('.flow > li').length > 2",
    "/explain?method=GET&url=http%3A%2F%2Fnowhere.example%2F": "document.querySelector('.verdict.bad') !== null",
    "/upstreams": "document.querySelector('[role=gridcell]') !== null",
    "/certificates": "document.body.innerText.includes('days left')",
    "/policies": "document.querySelector('[role=gridcell]') !== null",
    "/apis": "document.body.innerText.includes('Orders')",
    "/apis/shop/orders": "document.querySelectorAll('details.operation').length === 5",
    "/apis/shop/parcels": "document.querySelectorAll('nav.segmented a').length === 2 && document.querySelector('.tryit') !== null",
    "/plans": "document.body.innerText.includes('50 requests in 1s')",
    "/subscriptions": "document.body.innerText.includes('partner-orders')",
    "/keys": "document.body.innerText.includes('Revoked')",
    "/consumers": "document.body.innerText.includes('mobile')",
    "/problems": "document.body.innerText.includes('SecurityPolicy shop/account-login')",
    "/nowhere": "document.querySelector('main h1') !== null",
}

FIRST_PAINT_MAX = 1000
"""The time to the first paint, in milliseconds."""

FRAME_MAX = 16
"""The processor time of a frame while a list scrolls, in milliseconds: at 60 frames in a second, a frame has 16.7 ms."""

ROUTES, APIS = 5000, 1000


class InBrowser(unittest.TestCase):
    options: dict[str, object] = {}
    site: Site
    window: Window

    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.addClassCleanup(temporary.cleanup)
        folder = Path(temporary.name)
        cls.site = Site(folder, **cls.options)  # type: ignore[arg-type]
        cls.addClassCleanup(cls.site.stop)
        cls.window = Window(folder)
        cls.addClassCleanup(cls.window.stop)

    def open(self, path: str, ready: str) -> None:
        self.window.open(self.site.origin + path, ready)

    def check_errors(self) -> None:
        self.assertEqual(self.window.errors(), [])

    def check_environments(self, origin: str) -> None:
        """The page of an API shows the document of the chosen environment, and "Try it" has the hosts of this document."""
        self.window.open(f"{origin}/apis/shop/parcels", "document.querySelector('.tryit') !== null")
        for version, host, other in (("1", "parcels.shop.example", "next"), ("2", "parcels.next.shop.example", "production")):
            self.window.wait(f"document.querySelector('.tryit') !== null && document.body.innerText.includes('Version {version}')")
            self.assertEqual(self.window.value("document.querySelector('.tryit input').value"), f"http://{host}")
            self.assertEqual(self.window.value("document.querySelectorAll('.tryit select').length"), 0)
            self.assertEqual(self.window.findings(), [])
            self.check_errors()
            self.window.value(f"[...document.querySelectorAll('nav.segmented a')].find((link) => link.innerText === '{other}').click()")
        # An environment that does not exist.
        self.window.open(f"{origin}/apis/shop/parcels?environment=none", "document.body.innerText.includes('has no environment')")

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.window.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)


class Pages(InBrowser):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        threading.Thread(target=cls.site.traffic, args=(600, 60), daemon=True).start()

    def test_every_page_has_no_error_and_no_serious_finding(self) -> None:
        for name, size in (("wide", WIDE), ("phone", PHONE)):
            self.window.resize(size)
            for scheme in ("light", "dark"):
                self.window.scheme(scheme)
                for path, ready in PAGES.items():
                    with self.subTest(path=path, scheme=scheme, size=name):
                        self.open(path, ready)
                        if path == "/apis/shop/orders":
                            self.window.value("document.querySelectorAll('details.operation')[1].open = true")
                            self.window.wait("document.querySelector('.tryit') !== null && document.querySelector('.schema') !== null")
                        self.assertEqual(self.window.findings(), [])
                        self.check_errors()
                        self.assertLessEqual(self.window.value("document.documentElement.scrollWidth"), size[0], "the page scrolls sideways")

    def test_mark_of_a_change_names_the_actor_and_links_to_the_audit_trail(self) -> None:
        self.window.resize(WIDE)
        self.open("/", PAGES["/"])
        file = self.site.manifests / "extra.yaml"
        self.addCleanup(file.unlink)
        file.write_text(estate.dumped(estate.ingress("shop", "extra", "extra.example", [("/", "web")])))
        # The owner of the file is the actor.
        user = pwd.getpwuid(os.getuid()).pw_name
        self.window.wait(f"document.body.innerText.includes('{user} created Ingress shop/extra')", 40)
        self.assertEqual(self.window.findings(), [])
        self.window.value("[...document.querySelectorAll('.list a')].find((link) => link.parentElement.innerText.includes('Ingress shop/extra')).click()")
        self.window.wait("location.pathname === '/audit' && document.body.innerText.includes('Only changes from') && document.body.innerText.includes('Ingress shop/extra')")
        self.assertRegex(self.window.value("location.search"), r"^\?from=\d+&to=\d+$")
        self.assertEqual(self.window.findings(), [])
        self.window.value("[...document.querySelectorAll('button')].find((button) => button.innerText === 'Show other changes').click()")
        self.window.wait("document.body.innerText.includes('the audit trail begins') && !document.body.innerText.includes('Only changes from') && location.search === ''")
        self.check_errors()
        # Another time has no changes.
        self.open("/audit?from=1000&to=1010", "document.body.innerText.includes('No changes')")
        self.check_errors()

    def test_details_of_a_row_open_by_keyboard_and_return_the_focus(self) -> None:
        self.window.resize(WIDE)
        for path in ("/routes", "/upstreams", "/policies", "/consumers", "/certificates", "/problems", "/plans", "/subscriptions", "/keys"):
            with self.subTest(path=path):
                self.open(path, "document.querySelector('.table-space [role=row] [role=gridcell]:not(:has(.skeleton))') !== null")
                self.window.value("document.querySelector('.table-space [role=row]').focus()")
                self.press("ArrowDown", 40)
                self.press("ArrowUp", 38)
                self.press("ArrowDown", 40)
                self.window.value("window.before = document.activeElement")
                self.assertEqual(self.window.value("document.activeElement.getAttribute('aria-rowindex')"), "3")
                self.press("Enter", 13)
                self.window.wait("document.querySelector('dialog[open]') !== null")
                self.assertEqual(self.window.findings(), [])
                self.press("Escape", 27)
                self.window.wait("document.querySelector('dialog') === null && document.activeElement === window.before")
                self.check_errors()

    def test_slash_focuses_the_search_and_the_search_filters(self) -> None:
        self.window.resize(WIDE)
        self.open("/routes", PAGES["/routes"])
        self.press("/", 191)
        self.window.wait("document.activeElement.matches('[data-search]')")
        self.window.call("Input.insertText", text="cart prefix")
        self.window.wait("document.querySelector('.table-foot').innerText.startsWith('1 route found')")
        self.assertIn("search=cart+prefix", self.window.value("location.search"))
        self.window.value("const field = document.querySelector('[data-search]'); field.value = 'nothing of this'; field.dispatchEvent(new Event('input'))")
        self.window.wait("document.body.innerText.includes('No routes match')")
        self.check_errors()

    def test_skip_link_and_menu_work_by_keyboard(self) -> None:
        self.window.resize(PHONE)
        self.open("/", PAGES["/"])
        self.press("Tab", 9)
        self.assertEqual(self.window.value("document.activeElement.className"), "skip")
        self.window.value("document.getElementById('menu').click()")
        self.window.wait("getComputedStyle(document.getElementById('nav')).display === 'block'")
        self.assertEqual(self.window.findings(), [])
        self.press("Escape", 27)
        self.window.wait("getComputedStyle(document.getElementById('nav')).display === 'none'")
        self.check_errors()

    def test_theme_of_the_switch_stays(self) -> None:
        self.window.resize(WIDE)
        self.window.scheme("light")
        self.open("/problems", PAGES["/problems"])
        before = self.window.value("getComputedStyle(document.body).backgroundColor")
        self.window.value("document.getElementById('theme').click(); document.getElementById('theme').click()")
        dark = self.window.value("getComputedStyle(document.body).backgroundColor")
        self.assertNotEqual(before, dark)
        self.open("/problems", PAGES["/problems"])
        self.assertEqual(self.window.value("getComputedStyle(document.body).backgroundColor"), dark)
        self.window.value("localStorage.clear()")

    def test_api_is_tried_from_the_browser(self) -> None:
        self.window.resize(WIDE)
        self.open("/apis/shop/orders", PAGES["/apis/shop/orders"])
        self.window.value("document.querySelectorAll('details.operation')[0].open = true")
        self.window.wait("document.querySelector('.tryit') !== null")
        fill = ("{{ const place = document.querySelector('.tryit'); const inputs = place.querySelectorAll('input');"
                f"place.querySelector('select').value = '1'; inputs[0].value = '{{}}';"
                "place.querySelector('textarea').value = '{}'; place.querySelector('.primary').click(); }}")
        address = f"http://api.staging.shop.example:{self.site.http}"
        self.window.value(fill.format(address, f"X-API-Key: {estate.SECRETS[0]}"))
        # The origin is not among the allowed origins, so the browser hides the response.
        self.window.wait("document.querySelector('.tryit').innerText.includes('does not allow pages of')")
        text = self.window.value("document.querySelector('.tryit').innerText")
        self.assertIn(f'cors: {{allowOrigins: ["{self.site.origin}"]}}', text)
        shop = self.site.manifests / "shop.yaml"
        shop.write_text(shop.read_text().replace("http://localhost:9903", self.site.origin))
        end = time.monotonic() + 20
        while "200" not in self.window.value("document.querySelector('.tryit .notice strong').innerText"):
            self.assertLess(time.monotonic(), end, self.window.value("document.querySelector('.tryit').innerText"))
            self.window.value("document.querySelector('.tryit .primary').click()")
            time.sleep(0.3)
        self.assertIn("AB-1234", self.window.value("document.querySelector('.tryit pre[aria-label=Body]').innerText"))
        # Another host is not reachable from this page.
        self.window.value(fill.format(f"http://shop.example:{self.site.http}", "A: b"))
        self.window.wait("document.querySelector('.tryit').innerText.includes('only to the hosts of this API')")

    def test_each_environment_has_its_own_document_and_its_own_requests(self) -> None:
        self.window.resize(WIDE)
        self.check_environments(self.site.origin)

    def test_change_of_a_route_is_marked(self) -> None:
        web = self.site.manifests / "more.yaml"
        web.write_text(estate.dumped(estate.ingress("shop", "news", "news.shop.example", [("/", "web")])))
        end = time.monotonic() + 20
        while not any("Ingress shop/news" in mark["objects"] for mark in self.site.api("overview")["marks"]):
            self.assertLess(time.monotonic(), end, "there is no mark")
            time.sleep(0.2)
        self.window.resize(WIDE)
        self.open("/", "document.querySelector('.chart .mark') !== null && document.body.innerText.includes('Ingress shop/news')")
        points = self.site.api("overview")["points"]
        self.assertGreater(sum(point["requests"] for point in points), 0)
        self.check_errors()

    def test_no_document_has_a_secret(self) -> None:
        for name in ("overview", "routes", "upstreams", "certificates", "policies", "consumers", "apis", "problems", "plans", "subscriptions", "keys", "api?namespace=shop&name=orders"):
            body = self.site.get(self.site.dashboard, f"/api/{name}")[2].decode()
            for secret in [*estate.SECRETS, "PRIVATE KEY"]:
                self.assertNotIn(secret, body, name)


class Locked(InBrowser):
    options = {"token": "a-token-of-16-bytes"}

    def test_login_opens_the_dashboard_and_logout_closes_it(self) -> None:
        self.window.resize(WIDE)
        self.open("/routes", "document.querySelector('#token') !== null")
        self.assertEqual(self.window.findings(), [])
        self.check_errors()
        self.assertEqual(self.site.get(self.site.dashboard, "/api/routes")[0], 401)
        login = "document.querySelector('#token').value = '{}'; document.querySelector('form').requestSubmit()"
        self.window.value(login.format("wrong"))
        self.window.wait("document.body.innerText.includes('The token is wrong.')")
        self.window.value(login.format("a-token-of-16-bytes"))
        self.window.wait(PAGES["/routes"])
        cookie, = self.window.call("Network.getCookies", urls=[self.site.origin])["cookies"]
        self.assertTrue(cookie["httpOnly"] and cookie["sameSite"] == "Strict", cookie)
        self.window.value("document.getElementById('logout').click()")
        self.window.wait("document.querySelector('#token') !== null")


class Large(InBrowser):
    """5,000 routes of Ingresses, and 1,000 Apis."""

    options = {"routes": ROUTES, "apis": APIS}

    def test_first_paint_is_fast(self) -> None:
        self.window.resize(WIDE)
        for path in ("/", "/routes", "/apis"):
            with self.subTest(path=path):
                self.open(path, "performance.getEntriesByName('first-contentful-paint').length > 0")
                paint = self.window.value("performance.getEntriesByName('first-contentful-paint')[0].startTime")
                self.window.wait(PAGES[path])
                rows = self.window.value("performance.now()")
                print(f"{path}: first paint {paint:.0f} ms, content {rows:.0f} ms")
                self.assertLess(paint, FIRST_PAINT_MAX)
                self.check_errors()

    def test_list_of_all_routes_scrolls_without_a_stutter(self) -> None:
        self.window.resize(WIDE)
        self.open("/routes", PAGES["/routes"])
        self.window.wait("document.querySelector('[role=grid]').getAttribute('aria-rowcount') > 5000")
        # Processor time of the page, which does not depend on other load of the machine.
        self.window.call("Performance.enable", timeDomain="threadTicks")
        before = self.metrics()
        frames = self.window.value("""new Promise((done) => {
          const place = document.querySelector('.table-scroll');
          let frames = 0;
          const step = () => { place.scrollTop += 400; frames += 1; if (frames < 200) requestAnimationFrame(step); else done(frames); };
          requestAnimationFrame(step);
        })""")
        spent = {name: (value - before[name]) * 1000 / frames for name, value in self.metrics().items()}
        print(", ".join(f"{name} {value:.2f} ms" for name, value in spent.items()), "of processor time in each of 200 frames")
        self.assertLess(sum(spent.values()), FRAME_MAX)
        self.window.value("document.querySelector('.table-scroll').scrollTop = 1e9")
        self.window.wait("[...document.querySelectorAll('.table-space [role=row]')].pop().getAttribute('aria-rowindex') === document.querySelector('[role=grid]').getAttribute('aria-rowcount')")
        self.window.wait("document.querySelectorAll('.table-space .skeleton').length === 0")
        self.assertLess(self.window.value("document.querySelectorAll('[role=row]').length"), 80)
        self.check_errors()

    def metrics(self) -> dict[str, float]:
        names = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
        return {each["name"]: each["value"] for each in self.window.call("Performance.getMetrics")["metrics"] if each["name"] in names}

    def test_documents_are_bounded(self) -> None:
        self.assertEqual(self.site.api("apis")["total"], APIS + 3)
        self.assertGreater(self.site.api("routes")["total"], ROUTES)
        for name in ("routes", "apis", "upstreams", "overview", "policies", "consumers", "certificates", "problems"):
            query = "" if name == "overview" else "?limit=500"
            self.assertLess(len(self.site.get(self.site.dashboard, f"/api/{name}{query}")[2]), 512 * 1024, name)


if __name__ == "__main__":
    unittest.main()
