"""Tests of the changes of the dashboard in a browser."""

import time

import estate
from gateway_site import PHONE, WIDE
from test_dashboard import PAGES, InBrowser

ADA, VICTOR = "token-of-ada-0123456789", "token-of-victor-0123456"


class Changes(InBrowser):
    options = {"token": estate.OPERATORS, "changes": True}

    def log_in(self, token: str, path: str) -> None:
        self.window.resize(WIDE)
        self.window.call("Network.clearBrowserCookies")
        self.open(path, "document.querySelector('#token') !== null")
        self.window.value(f"document.querySelector('#token').value = '{token}'; document.querySelector('form').requestSubmit()")
        self.window.wait(PAGES[path])

    def click(self, text: str, within: str = "document") -> None:
        script = f"[...{within}.querySelectorAll('button')].find((button) => button.innerText.trim() === '{text}' && !button.disabled)"
        self.window.wait(f"{script} !== undefined")
        self.window.value(f"{script}.click()")

    def open_row(self, text: str) -> None:
        row = f"[...document.querySelectorAll('.table-space [role=row]')].find((row) => row.innerText.includes('{text}'))"
        self.window.wait(f"{row} !== undefined")
        self.window.value(f"{row}.click()")
        self.window.wait("document.querySelector('dialog.drawer') !== null")

    def status(self, key: str) -> int:
        return self.site.get(self.site.http, "/orders/orders?customer=4711", Host="api.staging.shop.example", **{"X-API-Key": key})[0]

    def wait_for_status(self, key: str, status: int) -> None:
        end = time.monotonic() + 15
        while self.status(key) != status:
            self.assertLess(time.monotonic(), end, f"{self.status(key)} in place of {status}")
            time.sleep(0.1)

    def new_key(self) -> str:
        self.window.wait("document.querySelector('#new-key') !== null")
        self.assertEqual(self.window.findings(), [])
        key = self.window.value("document.querySelector('#new-key').innerText.trim()")
        self.click("I have the key")
        self.window.wait("document.querySelector('#new-key') === null")
        return key

    def test_operator_issues_rotates_revokes_and_removes_a_key(self) -> None:
        self.log_in(ADA, "/keys")
        self.click("Issue a key")
        self.window.wait("document.querySelector('dialog.modal') !== null")
        for size in (PHONE, WIDE):
            self.window.resize(size)
            for scheme in ("dark", "light"):
                self.window.scheme(scheme)
                self.assertEqual(self.window.findings(), [])
        self.window.value("{ const [consumer, name] = document.querySelectorAll('dialog.modal input'); consumer.value = 'shop/partner'; name.value = 'browser'; }")
        self.click("Issue the key", "document.querySelector('dialog.modal')")
        key = self.new_key()
        self.assertTrue(key.startswith("sgk_"))
        self.wait_for_status(key, 200)

        self.open_row("browser")
        self.click("Rotate")
        self.window.wait("document.querySelector('dialog.modal') !== null")
        self.click("Rotate the key", "document.querySelector('dialog.modal')")
        newer = self.new_key()
        self.wait_for_status(newer, 200)
        self.assertEqual(self.status(key), 200, "the old key stays valid for the overlap")

        self.open_row("browser")
        self.click("Revoke")
        self.click("Revoke the key", "document.querySelector('dialog.modal')")
        self.wait_for_status(key, 401)
        self.window.wait("[...document.querySelectorAll('.table-space [role=row]')].some((row) => row.innerText.includes('browser') && row.innerText.includes('Revoked'))")
        self.open_row("browser")
        self.click("Remove the entry")
        self.click("Remove the entry", "document.querySelector('dialog.modal')")
        self.window.wait("![...document.querySelectorAll('.table-space [role=row]')].some((row) => row.innerText.includes('browser'))")
        self.check_errors()
        # Only the response of the change and the caller have the key.
        for file in [*self.site.folder.glob("*.log"), *self.site.manifests.glob("*")]:
            if file.name != "chromium.log":
                self.assertNotIn(newer, file.read_text(), file.name)
        for document in ("keys", "consumers", "problems"):
            self.assertNotIn(newer, self.site.get(self.site.dashboard, f"/api/{document}", Authorization=f"Bearer {ADA}")[2].decode())
        self.assertNotIn(newer, self.site.get(self.site.admin, "/config")[2].decode())
        self.assertIn("issue a key of Consumer shop/partner", (self.site.folder / "gateway.log").read_text())

    def test_operator_approves_and_suspends_a_subscription(self) -> None:
        self.log_in(ADA, "/subscriptions")
        for button, state in (("Approve", "Active"), ("Suspend", "Suspended"), ("Resume", "Active"), ("Reject", "Rejected")):
            self.open_row("reports-orders")
            self.click(button, "document.querySelector('dialog.drawer')")
            self.click(button, "document.querySelector('dialog.modal')")
            self.window.wait(f"[...document.querySelectorAll('.table-space [role=row]')].some((row) => row.innerText.includes('reports-orders') && row.innerText.includes('{state}'))")
        self.check_errors()

    def test_fault_of_a_change_is_shown(self) -> None:
        self.log_in(ADA, "/keys")
        self.click("Issue a key")
        self.window.wait("document.querySelector('dialog.modal') !== null")
        self.window.value("document.querySelector('dialog.modal input').value = 'shop/nobody'")
        self.click("Issue the key", "document.querySelector('dialog.modal')")
        self.window.wait("document.querySelector('dialog.modal').innerText.includes('shop/nobody')")
        self.assertEqual(self.window.findings(), [])

    def test_viewer_has_no_buttons_and_no_right(self) -> None:
        self.log_in(VICTOR, "/keys")
        self.assertFalse(self.window.value("document.body.innerText.includes('Issue a key')"))
        self.open_row("second")
        self.assertEqual(self.window.value("document.querySelectorAll('dialog.drawer .button').length"), 0)
        status = self.window.value("""fetch('/api/change', {method: 'POST', headers: {'content-type': 'application/json', 'x-sluicegate-change': '1'},
          body: JSON.stringify({change: 'issue', consumer: 'shop/partner'})}).then((response) => response.status)""")
        self.assertEqual(status, 403)


