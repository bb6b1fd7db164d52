"""Tests of `sluicegate migrate diff` between nginx, as ingress-nginx configures it, and the gateway."""

import json
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

from case import Case, ingress, path
from client import ask
from corpus import Corpus
from gateway import PROGRAM
from nginx import location, server

LOG_OPTION = "--access-log"

SAME, PLANTED = "same.test", "planted.test"
LOG = "access_log @FOLDER@/{host}.log upstreaminfo;"
FORMATS = """\
    log_format upstreaminfo '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" '
        '$request_length $request_time [default-web-80] [] $upstream_addr $upstream_response_length $upstream_response_time $upstream_status $req_id';"""
"""The default format of ingress-nginx."""

FRAME = "more_set_headers \"X-Frame-Options: DENY\";"


def both(name: str, service: str = "web", extra: str = "", **more: Any) -> str:
    """Returns the two locations of a path of the type Prefix."""
    return "\n".join(location(each, service, extra, **more) for each in (f"/{name}/", f"= /{name}"))


def only(name: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return ingress(f"planted-{name}", PLANTED, [path(f"/{name}")], annotations)


SAME_CASE = Case("same", SAME, [
    ingress("same", SAME, [path("/"), path("/api", "api")]),
    ingress("same-framed", SAME, [path("/framed")], {"configuration-snippet": FRAME}),
    ingress("same-moved", SAME, [path("/moved")], {"permanent-redirect": "https://new.example/"}),
    ingress("same-sticky", SAME, [path("/sticky", "shop")], {"affinity": "cookie"}),
    ingress("same-closed", SAME, [path("/closed")], {"whitelist-source-range": "192.0.2.0/24"}),
], server(SAME, location("/", "web"), both("api", "api"), both("framed", extra=FRAME), both("moved", extra="return 301 https://new.example/;"),
          both("sticky", "shop", 'add_header Set-Cookie "INGRESSCOOKIE=x; Path=/sticky; HttpOnly";'),
              both("closed", extra="allow 192.0.2.0/24; deny all;"),
          extra=LOG.format(host=SAME)), [], FORMATS)

PLANTED_CASE = Case("planted", PLANTED, [
    only("status"), only("lost-header"), only("value", {"configuration-snippet": FRAME}), only("body"), only("service"),
    only("redirect", {"permanent-redirect": "https://new.example/"}), only("cookie", {"affinity": "cookie"}),
    only("new-header", {"configuration-snippet": "more_set_headers \"X-New: 1\";"}), only("closed"),
], server(PLANTED, both("status", extra="return 410;"), both("lost-header", extra="more_set_headers 'X-Old: 1';"),
          both("value", extra="more_set_headers 'X-Frame-Options: SAMEORIGIN';"), both("body", extra="rewrite ^ /other break;"),
              both("service", "api"),
          both("redirect", extra="return 301 https://old.example/;"),
              both("cookie", extra='add_header Set-Cookie "INGRESSCOOKIE=x; Path=/cookie";'),
          both("route"), both("new-header"), both("closed", extra="return 444;"),
          extra=LOG.format(host=PLANTED), has_root=False), [])

PLANTS = {
    "/status": "status", "/lost-header": "header x-old", "/value": "header x-frame-options", "/body": "body", "/service": "service",
    "/redirect": "header location", "/cookie": "header set-cookie", "/route": "status", "/new-header": "header x-new", "/closed": "response",
}
"""The planted differences: paths, and the part of the response that differs."""

SAME_TARGETS = ["/", "/x?y=1", "/api", "/api/v1", "/framed", "/moved", "/sticky", "/closed"]


class MigrateDiff(unittest.TestCase):
    corpus: Corpus
    folder: Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.corpus = Corpus(cls.folder, [SAME_CASE, PLANTED_CASE])
        cls.addClassCleanup(cls.corpus.stop)

    def diff(self, *options: str, new: int | None = None) -> subprocess.CompletedProcess[str]:
        old = f"http://127.0.0.1:{self.corpus.nginx.http}"
        command = [str(PROGRAM), "migrate", "diff", "--old", old, "--new", f"http://127.0.0.1:{new or self.corpus.gateway.http}",
                   "--service-header", "x-service", *options]
        self.corpus.backends.take()
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def differences(self, *options: str) -> tuple[dict[str, list[str]], int]:
        """Returns the parts that differ by target, and the exit code."""
        done = self.diff(*options, "--json")
        report = json.loads(done.stdout)
        return {each["request"].split(".test")[1]: [one["part"] for one in each["differences"]] for each in report["mismatches"]}, done.returncode

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def har(self, name: str, host: str, requests: list[tuple[str, str]]) -> str:
        entries = [{"request": {"method": method, "url": f"https://{host}{target}", "headers": []}} for method, target in requests]
        return self.write(name, json.dumps({"log": {"version": "1.2", "entries": entries}}))

    def logged(self, host: str, requests: list[tuple[str, str]]) -> str:
        """Sends requests to nginx, and returns its access log."""
        file = self.folder / "nginx" / f"{host}.log"
        before = file.read_text().count("\n") if file.exists() else 0
        for method, target in requests:
            ask(self.corpus.nginx.http, f"{method} {target} HTTP/1.1", [("Host", host)], b"", False, None)
        end = time.monotonic() + 10
        while file.read_text().count("\n") < before + len(requests):
            self.assertLess(time.monotonic(), end, "nginx writes no log")
            time.sleep(0.01)
        return str(file)

    def assert_same(self, *options: str) -> None:
        done = self.diff(*options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("(100%)", done.stdout)

    def assert_all_plants(self, *options: str) -> None:
        """From Ingresses, the command also makes requests below their paths."""
        found, code = self.differences(*options)
        self.assertEqual(code, 1)
        self.assertEqual({"/" + target.split("/")[1].split("?")[0] for target in found}, set(PLANTS))
        for target, part in PLANTS.items():
            self.assertIn(part, found[target], target)

    def test_equal_controllers_are_100_percent_same_by_access_log(self) -> None:
        self.assert_same(LOG_OPTION, self.logged(SAME, [("GET", target) for target in SAME_TARGETS]), "--host", SAME)

    def test_equal_controllers_are_100_percent_same_by_har_file(self) -> None:
        self.assert_same("--har", self.har("same.har", SAME, [(method, target) for method in ("GET", "HEAD") for target in SAME_TARGETS]))

    def test_equal_controllers_are_100_percent_same_by_ingresses(self) -> None:
        self.assert_same(self.write("same.yaml", "\n---\n".join(json.dumps(each) for each in SAME_CASE.objects)))

    def test_all_planted_differences_are_found_by_access_log(self) -> None:
        self.assert_all_plants(LOG_OPTION, self.logged(PLANTED, [("GET", target) for target in PLANTS]), "--host", PLANTED)

    def test_all_planted_differences_are_found_by_log_of_json(self) -> None:
        lines = [json.dumps({"host": PLANTED, "request_method": "GET", "request_uri": target}) for target in PLANTS]
        self.assert_all_plants(LOG_OPTION, self.write("planted.json", "\n".join(lines)))

    def test_all_planted_differences_are_found_by_har_file(self) -> None:
        self.assert_all_plants("--har", self.har("planted.har", PLANTED, [("GET", target) for target in PLANTS]))

    def test_all_planted_differences_are_found_by_ingresses(self) -> None:
        objects = [*PLANTED_CASE.objects, only("route")]
        self.assert_all_plants(self.write("planted.yaml", "\n---\n".join(json.dumps(each) for each in objects)))

    def test_text_names_every_difference_and_the_percentage(self) -> None:
        done = self.diff("--har", self.har("text.har", PLANTED, [("GET", target) for target in PLANTS]))
        self.assertEqual(done.returncode, 1)
        self.assertIn("0 of 10 responses are the same (0%)", done.stdout)
        self.assertRegex(done.stdout, f'GET {PLANTED}/redirect\n(  .*\n)*  header location: "https://old.example/" became "https://new.example/"\n')

    def test_unsafe_methods_are_sent_only_if_they_are_named(self) -> None:
        file = self.har("unsafe.har", SAME, [(method, f"/{method}") for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "PURGE")])
        done = self.diff("--har", file)
        self.assertEqual({each.method for each in self.corpus.backends.take()}, {"GET"})
        self.assertIn("5 requests were not sent", done.stdout)
        self.diff("--har", file, "--method", "POST")
        self.assertEqual([each.method for each in self.corpus.backends.take() if each.method != "GET"], ["POST", "POST"])

    def test_rate_is_bounded(self) -> None:
        file = self.har("rate.har", SAME, [("GET", f"/{nth}") for nth in range(11)])
        start = time.monotonic()
        self.assertEqual(self.diff("--har", file, "--rate", "10").returncode, 0)
        self.assertGreaterEqual(time.monotonic() - start, 1.0)

    def test_controller_that_does_not_run_is_a_difference(self) -> None:
        # No server listens on port 1.
        done = self.diff("--har", self.har("dead.har", SAME, [("GET", "/")]), new=1)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot connect", done.stdout)


if __name__ == "__main__":
    unittest.main()
