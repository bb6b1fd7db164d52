"""Tests of the verdict, on recorded events."""

import io
import unittest

from verdict import Results, Test, expected_failures, summary

ASSERTION = """\
    helpers.go:108: 
        \tError Trace:\t/conformance/utils/kubernetes/helpers.go:141
        \t            \t\t\t\t/conformance/conformance.go:131
        \tError:      \tReceived unexpected error:
        \t            \tcontext deadline exceeded
        \tTest:       \tTestConformance/HTTPRouteWeight
"""


def event(action: str, test: str = "", **more: object) -> dict[str, object]:
    return {"Action": action, "Test": f"TestConformance/{test}" if test else "TestConformance", **more}


def ended(**tests: str) -> Results:
    """Returns the results of a run that ended. `tests` maps tests to results."""
    results = Results(Test(name, {"GATEWAY-HTTP": "core"}) for name in tests)
    for name, result in tests.items():
        results.read_event(event(result, name, Elapsed=1.5))
    results.read_event(event("fail" if "fail" in tests.values() else "pass"))
    return results


class Verdict(unittest.TestCase):
    def verdict(self, results: Results, expected: dict[str, str] | None = None, whole: bool = True) -> tuple[bool, str]:
        out = io.StringIO()
        return summary(results, expected or {}, whole, out), out.getvalue()

    def test_run_without_failures_is_good(self) -> None:
        good, said = self.verdict(ended(A="pass", B="skip"))
        self.assertTrue(good, said)
        self.assertRegex(said, r"GATEWAY-HTTP +core +1 +0 +1 +0")

    def test_failure_is_listed_with_its_cause(self) -> None:
        results = ended(A="fail")
        results.tests["A"].output = ASSERTION
        good, said = self.verdict(results)
        self.assertFalse(good)
        self.assertIn("A: Received unexpected error: context deadline exceeded", said)

    def test_message_of_an_assertion_is_its_cause(self) -> None:
        test = Test("A", output=ASSERTION + "        \tMessages:   \terror waiting for Gateway\n")
        self.assertEqual(test.cause, "error waiting for Gateway")

    def test_log_line_is_the_cause_of_a_failure_without_an_assertion(self) -> None:
        self.assertEqual(Test("A", output="    a.go:1: first\n    b.go:2: last\n--- FAIL").cause, "last")

    def test_expected_failure_is_good_and_named_with_its_reason(self) -> None:
        good, said = self.verdict(ended(A="pass", B="fail"), {"B": "no mirrors yet"})
        self.assertTrue(good, said)
        self.assertIn("B: no mirrors yet", said)

    def test_expected_failure_that_passes_fails_the_run(self) -> None:
        good, said = self.verdict(ended(A="pass"), {"A": "no mirrors yet"})
        self.assertFalse(good)
        self.assertIn("1 passed, but listed in expected-failures", said)

    def test_expected_failure_of_no_test_fails_the_whole_run_only(self) -> None:
        self.assertFalse(self.verdict(ended(A="pass"), {"Gone": "no mirrors yet"})[0])
        self.assertTrue(self.verdict(ended(A="pass"), {"Gone": "no mirrors yet"}, whole=False)[0])

    def test_failed_preparation_fails_the_run(self) -> None:
        results = Results([Test("A")])
        results.read_event(event("output", Output="GatewayClass is not accepted\n"))
        results.read_event(event("fail"))
        good, said = self.verdict(results)
        self.assertFalse(good)
        self.assertIn("GatewayClass is not accepted", said)

    def test_suite_that_fails_without_a_failed_test_fails_the_run(self) -> None:
        results = ended(A="pass")
        results.read_event(event("fail"))
        self.assertFalse(self.verdict(results)[0])

    def test_suite_that_does_not_end_fails_the_run(self) -> None:
        results = Results([Test("A")])
        results.read_event(event("pass", "A"))
        self.assertFalse(self.verdict(results)[0])

    def test_test_that_does_not_end_fails_the_run(self) -> None:
        results = Results([Test("A"), Test("B")])
        results.read_event(event("fail", "A"))
        results.read_event(event("fail"))
        good, said = self.verdict(results, {"A": "no mirrors yet"})
        self.assertFalse(good)
        self.assertRegex(said, r"did not end:\n  B")

    def test_results_of_inner_tests_do_not_end_a_test(self) -> None:
        results = Results()
        self.assertIsNone(results.read_event(event("output", "A/inner", Output="line\n")))
        self.assertIsNone(results.read_event(event("fail", "A/inner")))
        test = results.read_event(event("fail", "A", Elapsed=2))
        assert test
        self.assertEqual((test.name, test.result, test.seconds, test.output), ("A", "fail", 2, "line\n"))

    def test_skipped_test_with_unsupported_features_counts_as_not_supported(self) -> None:
        results = ended(A="skip")
        results.tests["A"].unsupported = ["ListenerSet"]
        self.assertRegex(self.verdict(results)[1], r"GATEWAY-HTTP +core +0 +0 +0 +1")


    def test_features_that_differ_from_the_status_of_the_class_are_listed(self) -> None:
        results = ended(A="pass")
        results.features = {"Gateway": True, "ListenerSet": False, "TCPRoute": True, "UDPRoute": False}
        out = io.StringIO()
        summary(results, {}, True, out, ["Gateway", "UDPRoute", "Unknown"])
        self.assertRegex(out.getvalue(), r"2 features .* differ:\n  TCPRoute\n  UDPRoute\n")


class ExpectedFailures(unittest.TestCase):
    def test_each_line_names_a_test_and_its_reason(self) -> None:
        self.assertEqual(expected_failures("# comment\n\nA no mirrors yet\n", "1.6"), {"A": "no mirrors yet"})

    def test_line_with_a_release_counts_for_that_release_alone(self) -> None:
        lines = "A @1.7 no mirrors yet\nB nothing yet\n"
        self.assertEqual(expected_failures(lines, "1.7"), {"A": "no mirrors yet", "B": "nothing yet"})
        self.assertEqual(expected_failures(lines, "1.6"), {"B": "nothing yet"})

    def test_line_without_a_reason_is_an_error(self) -> None:
        with self.assertRaisesRegex(ValueError, "expected-failures:1: A has no reason"):
            expected_failures("A\n", "1.6")

    def test_second_line_of_a_test_is_an_error(self) -> None:
        with self.assertRaisesRegex(ValueError, "expected-failures:2: A has a line already"):
            expected_failures("A one\nA two\n", "1.6")


if __name__ == "__main__":
    unittest.main()
