"""Tests of the figures of bench.py, and of their report."""

import unittest

from benchmark.figures import Figure, faults, line, milliseconds, percentile, report


class Figures(unittest.TestCase):
    def test_percentile_is_a_measured_value(self) -> None:
        values = [float(value) for value in range(1000, 0, -1)]
        self.assertEqual([percentile(values, share) for share in (0.5, 0.99, 0.999, 1)], [500, 990, 999, 1000])
        self.assertEqual([percentile([7.0], share) for share in (0.5, 0.99)], [7, 7])

    def test_times_are_milliseconds_with_the_target_of_a_percentile(self) -> None:
        p50, p99, longest = milliseconds("delay", [0.001, 0.002, 0.2], {"p99": 100})
        self.assertEqual([p50.value, p99.value, longest.value], [2, 200, 200])
        self.assertEqual([p50.meets_target, p99.meets_target, longest.meets_target], [True, False, True])

    def test_missed_time_breaks_no_promise_but_a_fault_does(self) -> None:
        slow, good, bad = Figure("delay", 7, "s", target=5), faults("failed requests", 0), faults("failed requests", 1)
        self.assertEqual([each.breaks_promise for each in (slow, good, bad)], [False, False, True])

    def test_line_tells_whether_the_target_is_met(self) -> None:
        self.assertEqual(line(Figure("RSS", 99.96, "MiB", target=100)), "RSS: 100 MiB  (target 100: met)")
        self.assertEqual(line(Figure("RSS", 1234.5, "MiB", target=100, note="high")), "RSS: 1,234 MiB  (target 100: MISSED)  high")

    def test_report_has_the_figures_and_the_error_of_a_failed_experiment(self) -> None:
        text = report({"machine": "2 CPUs"}, {"probe": [Figure("p99", 101, "ms", target=100)], "scale": "no answer"},
                      {"probe": "Routes.", "scale": "Gateways."})
        self.assertIn("- machine: 2 CPUs\n", text)
        self.assertIn("| p99 | 101 ms | 100 | **no** |  |", text)
        self.assertIn("**The experiment failed:** no answer", text)


if __name__ == "__main__":
    unittest.main()
