"""The differential corpus: nginx, configured like ingress-nginx, and the gateway must behave the same."""

import os
import tempfile
import unittest
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from case import Case
from cases import CASES, forwarded
from corpus import Corpus
from differences import INTENDED
from gateway import PROJECT

ONLY = os.environ.get("CASES", "").split()
"""The names of cases, if not all cases shall run."""


class Controllers(unittest.TestCase):
    """Starts nginx and the gateway."""

    cases: list[Case] = []
    settings: dict[str, str] = {}
    """The ConfigMap of both controllers."""
    corpus: Corpus
    seen: set[str] = set()
    """The reasons of the intended differences that were observed, by all classes."""
    counts: Counter[str]
    """The numbers of requests without a difference, with intended differences, and with faults."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.counts = Counter()
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.corpus = Corpus(Path(cls.folder.name), cls.cases, cls.settings)
        cls.addClassCleanup(cls.corpus.stop)

    @classmethod
    def tearDownClass(cls) -> None:
        total = max(cls.counts.total(), 1)
        shares = ", ".join(f"{count} {name} ({count * 100 / total:.1f}%)" for name, count in cls.counts.items())
        print(f"\n{cls.counts.total()} requests: {shares}")


class DifferentialCorpus(Controllers):
    """All cases with the defaults of ingress-nginx."""

    cases = CASES

    def test_intended_differences_still_exist_and_are_in_the_docs(self) -> None:
        """Runs after the cases, because tests run in the order of the names of classes and tests."""
        docs = (PROJECT / "docs/migrate/ingress-nginx.md").read_text()
        for each in INTENDED:
            self.assertTrue(each.reason in docs, f"docs/migrate/ingress-nginx.md lacks: {each.reason}")
        if not ONLY:
            self.assertEqual({each.reason for each in INTENDED} - self.seen, set())

    def test_corpus_is_large_and_its_names_are_distinct(self) -> None:
        self.assertGreaterEqual(len(CASES), 25)
        self.assertGreaterEqual(sum(len(case.requests) for case in CASES), 60)
        self.assertEqual(len({case.host for case in CASES}), len(CASES))
        self.assertEqual(len({case.name for case in CASES}), len(CASES))
        names = [each["metadata"]["name"] for case in CASES for each in case.objects if each["kind"] == "Ingress"]
        self.assertEqual(len(set(names)), len(names))


def test_of(case: Case) -> Callable[[Controllers], None]:
    def test(self: Controllers) -> None:
        faults: list[str] = []
        for request in case.requests:
            found = list(self.corpus.differences(case, request))
            unexpected = [each for each in found if each.reason is None]
            self.seen.update(each.reason for each in found if each.reason is not None)
            self.counts["different" if unexpected else "intentionally different" if found else "same"] += 1
            if unexpected:
                faults += [unexpected[0].request, *(f"    {each}" for each in unexpected)]
        if faults:
            self.fail("\n".join(["", *faults]))

    return test


class BehindTrustedProxy(Controllers):
    """The cases behind a proxy whose headers both controllers trust."""

    cases = forwarded.CASES
    settings = forwarded.SETTINGS


for _class in (DifferentialCorpus, BehindTrustedProxy):
    for _case in _class.cases:
        if not ONLY or _case.name in ONLY:
            setattr(_class, "test_case_" + _case.name.replace("-", "_"), test_of(_case))

# Otherwise unittest would find the last class twice.
del _class, _case


if __name__ == "__main__":
    unittest.main()
