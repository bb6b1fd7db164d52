#!/usr/bin/env python3
"""Draws docs/images/dashboard.png, the overview of a shop whose routes change while requests flow, and docs/images/portal.png, an API in the portal."""

import tempfile
import threading
import time
from pathlib import Path

import estate
from gateway_site import PROJECT, Site, Window
from test_portal import PAULA

SECONDS = 100
"""The time in which requests flow before the picture."""


def main() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        site = Site(folder, routes=120, apis=18)
        (site.manifests / "faulty.yaml").unlink()
        window = None
        try:
            threading.Thread(target=site.traffic, args=(SECONDS + 30,), daemon=True).start()
            for name in ("news", "blog", "jobs"):
                time.sleep(SECONDS / 4)
                path = site.manifests / f"{name}.yaml"
                path.write_text(estate.dumped(estate.ingress("shop", name, f"{name}.shop.example", [("/", "web")])))
            time.sleep(SECONDS / 4)
            window = Window(folder)
            window.resize((1280, 860), 1.5)
            window.scheme("light")
            window.open(site.origin + "/?minutes=5", "document.querySelectorAll('.chart .mark').length > 2")
            time.sleep(0.5)
            window.picture(PROJECT / "docs/images/dashboard.png")
            window.open(site.portal_origin + "/login", "document.querySelector('#token') !== null")
            window.value(f"document.querySelector('#token').value = '{PAULA}'; document.querySelector('form').requestSubmit()")
            window.wait("document.querySelector('#token') === null && document.getElementById('facts').innerText !== ''")
            window.open(site.portal_origin + "/apis/shop/orders", "document.querySelectorAll('details.operation').length === 5")
            time.sleep(0.5)
            window.picture(PROJECT / "docs/images/portal.png")
        finally:
            if window:
                window.stop()
            site.stop()


if __name__ == "__main__":
    main()
