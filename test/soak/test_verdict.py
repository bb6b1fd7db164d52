"""Tests of the verdict and of the plan, without a soak."""

import random
import unittest

from changes import LANES, Done, plan
from loads import Counted, lost
from report import Result, page
from verdict import MIB, Sample, growth, log_faults, quarters, warnings


def samples(memory: float = 0, descriptors: float = 0) -> list[Sample]:
    """Samples of an hour. Memory in MiB and descriptors grow by this much in the hour."""
    draw = random.Random(1)
    return [Sample(at, "steady", {
        "memory": (60 + memory * at / 3600 + draw.uniform(-3, 3)) * MIB, "other descriptors": 100 + descriptors * at / 3600 + draw.uniform(-20, 20),
        "threads": 5, "connections": 40,
    }) for at in range(0, 3600, 10)]


class Verdict(unittest.TestCase):
    def test_noise_is_flat(self) -> None:
        self.assertEqual(growth(samples(), "steady"), [])

    def test_short_peaks_are_flat(self) -> None:
        found = samples()
        for sample in found[::4]:
            sample.values["other descriptors"] += 400
        self.assertEqual(growth(found, "steady"), [])

    def test_growing_memory_is_a_fault(self) -> None:
        (fault,) = growth(samples(memory=30), "steady")
        self.assertIn("memory grew", fault)

    def test_growing_descriptors_are_a_fault(self) -> None:
        (fault,) = growth(samples(descriptors=120), "steady")
        self.assertIn("other descriptors grew", fault)

    def test_growth_during_the_warm_up_is_flat(self) -> None:
        found = samples()
        for sample in found[:30]:
            sample.values["memory"] /= 4
        self.assertEqual(growth(found, "steady"), [])

    def test_missing_samples_are_a_fault(self) -> None:
        self.assertIn("too few samples", growth([], "steady")[0])
        self.assertIsNone(quarters([(0, 1), (10, 1)]))

    def test_errors_and_panics_in_logs_are_faults(self) -> None:
        lines = ["2026-11-27T10:00:00Z  INFO sluicegate: ready", "2026-11-27T10:00:00Z ERROR sluicegate: no", "thread 'worker-0' panicked at src/a.rs:1:1:"]
        self.assertEqual(log_faults(lines), lines[1:])

    def test_warnings_are_counted_by_text(self) -> None:
        lines = ["T  WARN a: host 0a1b2c3d at 127.0.0.1", "T  WARN a: host ffffffff at 127.0.0.2", "T  INFO a: b"]
        self.assertEqual(warnings(lines), {"a: host N at N.N.N.N": 2})

    def test_each_kind_of_failure_of_the_load_counts(self) -> None:
        counts = {"errors": {"kinds": {"read_reset": 1, "write": 0}, "wrong": {"other_id": 2}, "total": 3}, "statuses": {"200": 90, "503": 4}}
        self.assertEqual(lost(counts), {"read_reset": 1, "other_id": 2, "status 503": 4})


class Report(unittest.TestCase):
    def result(self) -> Result:
        counted = [Counted("UDP", "steady", 1000, {}, notes={"resumed": 3}), Counted("UDP", "replaced", 500)]
        return Result("make soak HOURS=1 SEED=1", "sluicegate 1.2.3", "release", 1, 3600, ["steady"], ["steady"], counted,
                      [Done(3, "routes", "replace 20 hosts", took=2)], samples())

    def test_report_tells_that_the_soak_passed(self) -> None:
        text = page(self.result())
        self.assertIn("**The soak passed: 0 of 1,500 requests failed, during 1 changes in 60 min.**", text)
        self.assertIn("| UDP | 1,000 | 500 | 0 | 3 resumed |", text)
        self.assertIn("| replace 20 hosts | 1 | 0 | 2.0 s | 2.0 s |", text)

    def test_report_lists_the_faults(self) -> None:
        result = self.result()
        result.counted[1].failures = {"timeout": 7}
        result.faults = ["steady: memory grew"]
        text = page(result)
        self.assertIn("**The soak failed with 1 faults: 7 of 1,500 requests failed", text)
        self.assertIn("- steady: memory grew", text)


class Plan(unittest.TestCase):
    def test_seed_repeats_the_plan(self) -> None:
        self.assertEqual(plan(7, 600), plan(7, 600))
        self.assertNotEqual(plan(7, 600), plan(8, 600))

    def test_short_soak_has_a_change_of_each_lane(self) -> None:
        for seed in range(20):
            changes = plan(seed, 75)
            self.assertEqual({change.lane for change in changes}, set(LANES))
            self.assertLess(max(change.at for change in changes), 75 * 0.9)

    def test_long_soak_has_each_kind_of_change(self) -> None:
        self.assertEqual({change.kind for change in plan(1, 7200)}, {kind for lane in LANES.values() for kind in lane.kinds})


if __name__ == "__main__":
    unittest.main()
