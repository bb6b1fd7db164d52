"""Tests of the recording rules and alerts with promtool."""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from alerts import CASES, Series  # noqa: E402
from expressions import PROJECT, RULES, alerts, rules  # noqa: E402

PAGE = PROJECT / "docs/operate/alerts.md"


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"promtool {' '.join(map(str, arguments[:2]))} failed:\n{(done.stdout + done.stderr)[-6000:]}")
    return done.stdout + done.stderr


def test_of(name: str, series: Series, at: str, firing: list[dict[str, str]]) -> dict[str, Any]:
    """A test for promtool: with these series, exactly these alerts of the name fire."""
    written = [{"series": each, "values": values} for each, values in series.items()]
    samples = [{"labels": "ALERTS" + json_labels({"alertname": name, "alertstate": "firing", **labels}), "value": 1} for labels in firing]
    return {"interval": "1m", "input_series": written, "promql_expr_test": [{"expr": f'ALERTS{{alertname="{name}"}}', "eval_time": at, "exp_samples": samples}]}


def json_labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"


class Rules(unittest.TestCase):
    def test_prometheus_accepts_the_rules(self) -> None:
        self.assertIn(f"{len(rules())} rules found", promtool("check", "rules", "--lint=all", "--lint-fatal", RULES))

    def test_each_alert_fires_with_bad_series_and_is_silent_with_good_series(self) -> None:
        self.assertEqual(set(CASES), set(alerts()))
        records = [rule for rule in rules() if "record" in rule]
        with tempfile.TemporaryDirectory() as name_of_folder:
            folder = Path(name_of_folder)
            for name, case in CASES.items():
                # Each test evaluates all rules of its file, so the file has only this alert. JSON is YAML.
                groups = [{"name": "records", "rules": records}, {"name": "alert", "rules": [alerts()[name]]}]
                (folder / f"{name}.rules").write_text(json.dumps({"groups": groups}))
                firing = {**alerts()[name]["labels"], **case.labels}
                tests = [test_of(name, series, case.at, [firing]) for series in case.bad] + [test_of(name, series, case.at, []) for series in case.good]
                (folder / f"{name}.test").write_text(json.dumps({"rule_files": [f"{name}.rules"], "evaluation_interval": "1m", "group_eval_order": ["records", "alert"], "tests": tests}))
            promtool("test", "rules", *sorted(folder.glob("*.test")))

    def test_texts_of_alerts_use_only_labels_that_the_alerts_have(self) -> None:
        for name, alert in alerts().items():
            for text in alert["annotations"].values():
                used = set(re.findall(r"\$labels\.(\w+)", text.replace("or $labels.pod $labels.instance", "$labels.pod")))
                self.assertLessEqual(used, CASES[name].labels.keys(), name)

    def test_each_alert_has_a_severity_a_summary_and_a_description(self) -> None:
        for name, alert in alerts().items():
            self.assertEqual(alert["labels"].keys(), {"severity"}, name)
            self.assertIn(alert["labels"]["severity"], {"critical", "warning", "info"})
            self.assertEqual(alert["annotations"].keys(), {"summary", "description"}, name)
            self.assertTrue(all(text == text.strip() for text in alert["annotations"].values()), name)
            # An alert without `for` would fire for one bad scrape. These alerts read a period.
            self.assertTrue("for" in alert or name == "SluicegateRestarts", name)

    def test_each_alert_has_a_heading_in_the_runbook(self) -> None:
        headings = re.findall(r"^### (Sluicegate\w+)$", PAGE.read_text(), re.MULTILINE)
        self.assertEqual(sorted(headings), sorted(alerts()))
        for name, alert in alerts().items():
            self.assertIn(f"\n### {name}\n\nSeverity {alert['labels']['severity']}.", PAGE.read_text())


if __name__ == "__main__":
    unittest.main()
