"""The results of the conformance suite, compared with the expected failures."""

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

LEVELS = ["core", "extended"]


@dataclass
class Test:
    """A test of the suite, and its result."""

    name: str
    profiles: dict[str, str] = field(default_factory=dict)
    """The level of the test, `core` or `extended`, by profile."""
    unsupported: list[str] = field(default_factory=list)
    """The features of the test that Sluicegate does not support."""
    result: str = ""
    """`pass`, `fail` or `skip`. Empty: the test did not end."""
    seconds: float = 0
    output: str = ""

    @property
    def cause(self) -> str:
        """The first message of a failed test."""
        asserted = re.findall(r"^\s*\t(Messages|Error):\s*\t(.*(?:\n\s*\t {12}\t.*)*)", self.output, re.MULTILINE)
        # The message says what the suite awaited. The error is often only a timeout.
        messages = [text for label, text in asserted if label == "Messages"] or [text for _, text in asserted]
        logged = re.findall(r"^\s+\w+\.go:\d+: (.*)$", self.output, re.MULTILINE)
        return " ".join((messages or logged[-1:] or [""])[0].split())


class Results:
    """The results of a run. The suite writes the catalog of its tests, and then an event for each line of output."""

    def __init__(self, tests: Iterable[Test] = ()) -> None:
        self.tests = {test.name: test for test in tests}
        self.output = ""
        """The output outside of tests, such as the preparation of the suite."""
        self.failed = False
        """Whether the suite failed: one of its tests, or outside of its tests."""
        self.features: dict[str, bool] = {}
        """The features of the channel, and whether Sluicegate supports them according to the file of features."""
        self._ended = False

    def read_catalog(self, file: Path) -> None:
        """Adds the tests of the catalog, if the suite has written the catalog."""
        if not file.exists():
            return
        catalog = json.loads(file.read_text())
        self.features = catalog["features"]
        for entry in catalog["tests"]:
            self._test(entry["name"]).__dict__.update(profiles=entry["profiles"], unsupported=entry["unsupported"])

    def read_event(self, event: dict[str, Any]) -> Test | None:
        """Adds an event of `go tool test2json`. Returns the test that the event ends."""
        _, _, path = event.get("Test", "").partition("/")
        name, _, inner = path.partition("/")
        action = event["Action"]
        if not name:
            self.output += event.get("Output", "")
            if action in ("pass", "fail", "skip") and "Test" in event:
                self._ended = True
                self.failed = action != "pass"
            return None
        test = self._test(name)
        test.output += event.get("Output", "")
        if inner or action not in ("pass", "fail", "skip"):
            return None
        test.result, test.seconds = action, event.get("Elapsed", 0)
        return test

    def _test(self, name: str) -> Test:
        return self.tests.setdefault(name, Test(name))

    def named(self, result: str) -> list[Test]:
        """Returns the tests with a result, by name."""
        return sorted((test for test in self.tests.values() if test.result == result), key=lambda test: test.name)

    @property
    def broken(self) -> bool:
        """Whether the suite itself failed. The suite also fails if one of its tests fails."""
        unended = any(test.result == "" for test in self.tests.values())
        return not self._ended or unended or (self.failed and not self.named("fail"))


def expected_failures(text: str, release: str) -> dict[str, str]:
    """Returns the reasons of the expected failures of a release by test. A line is `TEST REASON`, or `TEST @RELEASE REASON` for
    one release."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, _, reason = line.strip().partition(" ")
        if not name or name.startswith("#"):
            continue
        if reason.startswith("@"):
            limit, _, reason = reason.partition(" ")
            if limit != f"@{release}":
                continue
        if not reason.strip():
            raise ValueError(f"expected-failures:{number}: {name} has no reason")
        if name in found:
            raise ValueError(f"expected-failures:{number}: {name} has a line already")
        found[name] = reason.strip()
    return found


def summary(results: Results, expected: dict[str, str], whole: bool, out: TextIO, published: Collection[str] | None = None) -> bool:
    """Prints the results by profile and the failures. Returns whether all results are as expected. `whole`: the suite had no
    filter, so that it knows every test. `published`: the features in the status of the GatewayClass."""
    failed = results.named("fail")
    problems = [test for test in failed if test.name not in expected]
    known = [test for test in failed if test.name in expected]
    mended = [test for test in results.named("pass") if test.name in expected]
    unknown = [name for name in expected if whole and name not in results.tests]

    profiles = sorted({profile for test in results.tests.values() for profile in test.profiles})
    print(f"\n{'profile':<14} {'level':<9} {'passed':>7} {'failed':>7} {'skipped':>8} {'not supported':>14}", file=out)
    for profile in profiles:
        for level in LEVELS:
            _row(profile, level, [test for test in results.tests.values() if test.profiles.get(profile) == level], out)
    if others := [test for test in results.tests.values() if not test.profiles]:
        _row("in no profile", "", others, out)
    _row("all tests", "", list(results.tests.values()), out)

    _list("failed", [f"{test.name}: {test.cause}" for test in problems], out)
    _list("failed as expected", [f"{test.name}: {expected[test.name]}" for test in known], out)
    _list("passed, but listed in expected-failures; remove the line", [test.name for test in mended], out)
    _list("listed in expected-failures, but not in the suite; remove the line", unknown, out)
    if published is not None:
        differ = [name for name, supported in sorted(results.features.items()) if supported != (name in published)]
        _list("features of which `features` and the status of the GatewayClass differ", differ, out)
    if results.broken:
        _list("did not end", [test.name for test in results.tests.values() if not test.result], out)
        print("\nThe suite failed outside of its tests. The end of its output:", file=out)
        print("\n".join(f"  {line}" for line in results.output.splitlines()[-20:]), file=out)
    good = not (problems or mended or unknown or results.broken)
    print(f"\n{'conformance: as expected' if good else 'conformance: FAILED'}", file=out)
    return good


def _row(profile: str, level: str, tests: list[Test], out: TextIO) -> None:
    if not tests:
        return
    skipped = [test for test in tests if test.result == "skip"]
    unsupported = [test for test in skipped if test.unsupported]
    passed, failed = ([test for test in tests if test.result == result] for result in ("pass", "fail"))
    print(f"{profile:<14} {level:<9} {len(passed):>7} {len(failed):>7} {len(skipped) - len(unsupported):>8}"
          f" {len(unsupported):>14}", file=out)


def _list(what: str, lines: list[str], out: TextIO) -> None:
    if lines:
        print(f"\n{len(lines)} {what}:", file=out)
        print("\n".join(f"  {line}" for line in lines), file=out)
