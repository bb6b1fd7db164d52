"""Tests of the developer portal in a browser."""

import json
import threading
import time
import unittest
from pathlib import Path
from typing import Any

import estate
from gateway_site import PHONE, WIDE
from test_dashboard import FIRST_PAINT_MAX, InBrowser

PAULA, OTTO = "token-of-paula-01234567", "token-of-otto-0123456789"

PUBLIC = {
    "/": "document.querySelectorAll('.cards .card').length === 1",
    "/apis/shop/stock": "document.querySelectorAll('details.operation').length === 1",
    "/apis/shop/orders": "document.body.innerText.includes('There is no Api shop/orders.')",
}

OWN = {
    "/": "document.querySelectorAll('.cards .card').length === 3",
    "/apis/shop/orders": "document.querySelectorAll('details.operation').length === 5 && document.body.innerText.includes('Gold')",
    "/apis/shop/stock": "document.querySelectorAll('details.operation').length === 1",
    "/apis/shop/parcels": "document.querySelectorAll('nav.segmented a').length === 2 && document.querySelector('.tryit') !== null",
    "/subscriptions": "document.querySelector('meter') !== null",
    "/keys": "document.body.innerText.includes('second')",
    "/usage": "document.querySelector('main h1') !== null && document.querySelector('select') !== null",
}


class Portal(InBrowser):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        threading.Thread(target=cls.site.traffic, args=(600, 20), daemon=True).start()

    def open(self, path: str, ready: str) -> None:
        self.window.open(self.site.portal_origin + path, ready)

    def log_in(self, token: str) -> None:
        self.window.resize(WIDE)
        self.window.call("Network.clearBrowserCookies")
        self.open("/login", "document.querySelector('#token') !== null")
        self.window.value(f"document.querySelector('#token').value = '{token}'; document.querySelector('form').requestSubmit()")
        self.window.wait("document.querySelector('#token') === null && document.getElementById('facts').innerText !== ''")

    def ask(self, path: str, token: str | None = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        status, _, body = self.site.get(self.site.portal, f"/api/{path}", **headers)
        return status, json.loads(body)

    def check_pages(self, pages: dict[str, str]) -> None:
        for name, size in (("wide", WIDE), ("phone", PHONE)):
            self.window.resize(size)
            for scheme in ("light", "dark"):
                self.window.scheme(scheme)
                for path, ready in pages.items():
                    with self.subTest(path=path, scheme=scheme, size=name):
                        self.open(path, ready)
                        if path == "/apis/shop/orders" and "Gold" in ready:
                            self.window.value("document.querySelectorAll('details.operation')[1].open = true")
                            self.window.wait("document.querySelector('.tryit') !== null && document.querySelector('.schema') !== null")
                        self.assertEqual(self.window.findings(), [])
                        # Chromium logs each response with 404 as an error.
                        self.assertEqual([error for error in self.window.errors() if "404" not in error], [])
                        self.assertLessEqual(self.window.value("document.documentElement.scrollWidth"), size[0], "the page scrolls sideways")

    def test_every_page_of_a_visitor_has_no_error_and_no_serious_finding(self) -> None:
        self.window.call("Network.clearBrowserCookies")
        self.check_pages(PUBLIC)

    def test_every_page_of_a_user_has_no_error_and_no_serious_finding(self) -> None:
        self.log_in(PAULA)
        self.check_pages(OWN)

    def test_each_environment_has_its_own_document_and_its_own_requests(self) -> None:
        self.log_in(PAULA)
        self.check_environments(self.site.portal_origin)

    def test_first_paint_is_fast(self) -> None:
        self.log_in(PAULA)
        self.open("/", OWN["/"])
        self.assertLess(self.window.value("performance.getEntriesByName('first-contentful-paint')[0].startTime"), FIRST_PAINT_MAX)

    def test_user_of_another_group_gets_nothing_of_the_api(self) -> None:
        for token in (None, OTTO):
            self.assertEqual([api["name"] for api in self.ask("apis", token)[1]["items"]], ["stock"])
            self.assertEqual(self.ask("api?namespace=shop&name=orders", token)[0], 404)
            self.assertEqual([plan["name"] for plan in self.ask("plans?namespace=shop", token)[1]["items"]], ["trial"])
        for path in ("keys", "subscriptions"):
            self.assertEqual(self.ask(path)[0], 401)
            self.assertEqual(self.ask(path, OTTO)[1]["total"], 0)
        self.assertEqual(self.ask("usage?consumer=shop/partner&since=24h", OTTO)[0], 404)
        # The documents of the dashboard are not there.
        for path in ("routes", "consumers", "problems", "overview", "explain?url=http://shop.example/", "analytics"):
            self.assertIn(self.ask(path)[0], (401, 404), path)
            self.assertEqual(self.ask(path, PAULA)[0], 404, path)

    def test_user_subscribes_and_issues_a_key(self) -> None:
        self.log_in(PAULA)
        self.open("/keys", OWN["/keys"])
        self.window.value("[...document.querySelectorAll('button')].find((button) => button.innerText.includes('Issue a key')).click()")
        self.window.wait("document.querySelector('dialog.modal') !== null")
        self.assertEqual(self.window.findings(), [])
        self.window.value("document.querySelector('dialog.modal form').requestSubmit()")
        self.window.wait("document.querySelector('#new-key') !== null")
        key = self.window.value("document.querySelector('#new-key').innerText.trim()")
        end = time.monotonic() + 15
        while self.site.get(self.site.http, "/orders/orders?customer=1", Host="api.staging.shop.example", **{"X-API-Key": key})[0] != 200:
            self.assertLess(time.monotonic(), end, "the key is not valid")
            time.sleep(0.1)
        # The trial has a quota.
        self.open("/subscriptions", OWN["/subscriptions"])
        self.window.wait("/9\\d of 100 requests remain/.test(document.body.innerText)", 20)
        self.check_errors()
        self.assertNotIn(key, (self.site.folder / "gateway.log").read_text())

    def test_request_for_a_subscription_waits_for_approval(self) -> None:
        consumer = self.site.manifests / "carla.yaml"
        consumer.write_text(estate.dumped(estate.named("Consumer", "shop", "carla", {"apiKeys": [{"name": "a", "sha256": "12" * 32}]})))
        visitors = self.site.folder / "visitors.yaml"
        token = "token-of-carla-01234567"
        visitors.write_text(estate.VISITORS + f"- {{name: carla, groups: [partners], consumers: [shop/carla], token: {token}}}\n")
        end = time.monotonic() + 15
        while self.ask("keys", token)[1].get("total") != 1:
            self.assertLess(time.monotonic(), end, "the user is not known")
            time.sleep(0.2)
        self.log_in(token)
        self.open("/apis/shop/orders", OWN["/apis/shop/orders"])
        self.window.value("[...document.querySelectorAll('button')].find((button) => button.getAttribute('aria-label') === 'Subscribe by the plan Gold').click()")
        self.window.wait("document.querySelector('dialog.modal') !== null")
        self.assertEqual(self.window.findings(), [])
        self.window.value("document.querySelector('dialog.modal form').requestSubmit()")
        self.window.wait("location.pathname === '/subscriptions' && document.body.innerText.includes('Pending')", 20)
        written, = (self.site.manifests / "portal").iterdir()
        self.assertIn("consumerRef", written.read_text())
        again = self.window.value("""fetch('/api/change', {method: 'POST', headers: {'content-type': 'application/json', 'x-sluicegate-change': '1'},
          body: JSON.stringify({change: 'subscribe', consumer: 'shop/carla', api: 'shop/orders', plan: 'trial'})}).then((response) => response.status)""")
        self.assertEqual(again, 409)
        self.check_cancellation(written)

    def check_cancellation(self, written: Path) -> None:
        """Cancels the only subscription by keyboard, after the user thought again."""
        button = "document.querySelector('.cards .card .button.danger')"
        for is_sure in (False, True):
            self.window.wait(f"{button} !== null")
            self.window.value(f"{button}.focus()")
            self.press("Enter", 13)
            self.window.wait("document.querySelector('dialog.modal[open]') !== null")
            self.assertEqual(self.window.findings(), [])
            if is_sure:
                self.window.value("document.querySelector('dialog.modal .button.danger').focus()")
                self.press("Enter", 13)
            else:
                self.press("Escape", 27)
                self.window.wait("document.querySelector('dialog') === null")
                self.assertTrue(written.exists())
        self.window.wait("document.body.innerText.includes('You have no subscriptions')", 20)
        self.assertFalse(written.exists())


if __name__ == "__main__":
    unittest.main()
