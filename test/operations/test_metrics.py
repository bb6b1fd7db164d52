"""Tests of the expressions of the dashboards and the rules with a real gateway and a real Prometheus."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import metrics_page  # noqa: E402
from expressions import PROJECT, RULES, alerts, groupings, of_dashboards, of_rules, parsed, rules, selectors  # noqa: E402
from operations_site import Site  # noqa: E402

OF_CLUSTERS = {"sluicegate_leader": set(), "sluicegate_kubernetes_connected": set(), "sluicegate_endpoints_confirmed_timestamp_seconds": set(),
               "sluicegate_admission_reviews_total": {"verdict"}}
"""The metrics that a gateway has only in a cluster, and their labels."""

OF_TARGETS = {"job", "instance", "pod"}
"""The labels that Prometheus adds."""

OF_PROMETHEUS = {"up": set()}

EMPTY = {
    "overview: Leader", "overview: Reviews of the admission webhook",
}
"""The panels that have no data without a cluster."""

PATIENCE = 60.0
"""The time in seconds in which each expression must have data."""


@functools.cache
def sources() -> str:
    """Returns the sources of the program."""
    return "\n".join(path.read_text() for path in (PROJECT / "crates").glob("*/src/**/*.rs"))


class Metrics(unittest.TestCase):
    site: Site

    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.addClassCleanup(temporary.cleanup)
        cls.site = Site(Path(temporary.name))
        cls.addClassCleanup(cls.site.stop)
        # The rate of one second needs samples of some seconds only. The gateway has few routes, so the rules are cheap.
        rules = Path(temporary.name) / "rules.yaml"
        rules.write_text(RULES.read_text().replace("[5m]", "[10s]"))
        cls.site.start_prometheus(rules)

    def test_gateway_has_each_metric_label_and_value_of_each_expression(self) -> None:
        expressions = [*of_dashboards(), *of_rules()]
        records = {rule["record"] for rule in rules() if "record" in rule}
        end = time.monotonic() + PATIENCE
        while True:
            problems = self.unknown(expressions, records)
            if not problems or time.monotonic() > end:
                break
            time.sleep(1)
        self.assertEqual(problems, [])

    def test_reference_page_has_each_metric_with_its_labels(self) -> None:
        scrapes = [self.site.get(port, "/metrics")[1].decode() for port in (self.site.admin, self.site.control_admin, self.site.data_admin)]
        page = PROJECT / "docs/reference/metrics.md"
        text = metrics_page.text(scrapes)
        if os.environ.get("SLUICEGATE_UPDATE_PAGES"):
            page.write_text(text)
        # The labels of a sample depend on the traffic so far, so the page may have more labels than this run.
        self.assertEqual(metrics_page.lacks(page.read_text(), text), [], "run SLUICEGATE_UPDATE_PAGES=1 make check-operations")

    def unknown(self, expressions: list, records: set[str]) -> list[str]:
        """Returns what the expressions use and the gateway does not have."""
        series = self.site.series()
        labels = {name: set().union(*each) for name, each in series.items()} | OF_CLUSTERS | OF_PROMETHEUS
        values = {pair for each in series.values() for one in each for pair in one.items()}
        problems = []
        for expression in expressions:
            tree = parsed(expression.text)
            for selector in selectors(tree):
                if selector.metric in records:
                    continue
                if selector.metric not in labels:
                    problems.append(f"{expression.where}: the gateway has no {selector.metric}")
                elif missing := selector.labels - labels[selector.metric] - OF_TARGETS:
                    problems.append(f"{expression.where}: {selector.metric} has no {missing}")
                for label, value in selector.values:
                    # Some reasons need a fault that the test does not cause.
                    if (label, value) not in values and f'"{value}"' not in sources():
                        problems.append(f"{expression.where}: {selector.metric}: no {label} has the value {value}")
            for used, metrics in groupings(tree):
                known = set().union(*(labels.get(metric, used) for metric in metrics))
                if missing := used - known - OF_TARGETS:
                    problems.append(f"{expression.where}: {metrics} have no {missing}")
        return problems

    def test_metrics_of_clusters_are_in_the_sources(self) -> None:
        for metric in OF_CLUSTERS:
            self.assertIn(f'"{metric.removesuffix("_total")}"', sources())

    def test_prometheus_loads_and_evaluates_each_rule_without_an_error(self) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            loaded = [rule for group in self.site.ask("rules")["groups"] for rule in group["rules"]]
            if all(rule["health"] != "unknown" for rule in loaded) or time.monotonic() > end:
                break
            time.sleep(0.5)
        self.assertEqual(len(loaded), len(rules()))
        self.assertEqual([(rule["name"], rule.get("lastError")) for rule in loaded if rule["health"] != "ok"], [])

    def test_each_recording_rule_has_data(self) -> None:
        for rule in rules():
            if "record" in rule:
                with self.subTest(rule["record"]):
                    self.wait_for_data(rule["record"])

    def test_each_panel_has_data_with_the_labels_that_it_shows(self) -> None:
        for expression in of_dashboards("10s"):
            with self.subTest(expression.where):
                empty = expression.where in EMPTY
                found = self.site.ask("query", query=expression.text)["result"] if empty else self.wait_for_data(expression.text)
                self.assertEqual(bool(found), not empty)
                if found:
                    # A label with an empty value, such as the upstream of a mock, is absent.
                    self.assertLessEqual(expression.labels - {"le"}, set().union(*(each["metric"] for each in found)))

    def test_labels_of_objects_are_not_replaced_by_the_labels_of_the_pod(self) -> None:
        found = self.wait_for_data("sum by (namespace) (sluicegate_requests_total)")
        self.assertIn("shop", {each["metric"].get("namespace") for each in found})

    def test_alerts_of_faults_of_the_site_are_pending_and_no_others(self) -> None:
        """The site has an unusable policy, Services without a healthy endpoint, and a limit that requests reach."""
        expected = {"SluicegatePolicyUnusable", "SluicegateConfigErrors", "SluicegateNoEndpoint", "SluicegateLimitReached"}
        end, active = time.monotonic() + PATIENCE, set()
        while True:
            now = {alert["labels"]["alertname"] for alert in self.site.ask("alerts")["alerts"]}
            active |= now
            if active >= expected or time.monotonic() > end:
                break
            time.sleep(0.5)
        self.assertLessEqual(expected, active)
        # Before the first scrape, no pod is ready.
        serene = {name for name, alert in alerts().items() if name.startswith(("SluicegateNone", "SluicegateTarget", "SluicegateNotReady", "SluicegateCertificate", "SluicegateControl", "SluicegatePlanes", "SluicegateListener", "SluicegateLogLost", "SluicegateAudit"))}
        self.assertEqual(now & serene, set())

    @classmethod
    def wait_for_data(cls, query: str) -> list[dict]:
        end = time.monotonic() + PATIENCE
        while True:
            found = cls.site.ask("query", query=query)["result"]
            if found:
                return found
            if time.monotonic() > end:
                raise AssertionError(f"no data: {query}")
            time.sleep(0.5)


if __name__ == "__main__":
    unittest.main()
