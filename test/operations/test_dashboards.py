"""Tests of the form of the dashboards."""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from expressions import BUILT_IN, OPERATIONS, PROJECT, dashboards, parsed  # noqa: E402

PANELS = {"row", "stat", "timeseries", "heatmap", "table"}
"""The panels that each Grafana from version 10 has without plugins."""

UNITS = {"short", "percentunit", "s", "bytes", "Bps", "reqps", "ops", "cps"}

SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def panels(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in document["panels"] if panel["type"] != "row"]


class Dashboards(unittest.TestCase):
    def each(self) -> Any:
        for name, document in dashboards().items():
            with self.subTest(name):
                yield name, document

    def test_types_of_the_sdk_of_grafana_accept_each_dashboard(self) -> None:
        files = sorted(map(str, (OPERATIONS / "dashboards").glob("*.json")))
        self.assertEqual(sdk(*files), "")

    def test_types_of_the_sdk_of_grafana_reject_unknown_fields_of_panels(self) -> None:
        document = dashboards()["overview"]
        panels(document)[0]["options"]["misspelt"] = True
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(json.dumps(document))
            file.flush()
            self.assertIn("misspelt", sdk(file.name))

    def test_files_are_those_that_the_script_generates(self) -> None:
        subprocess.run([PROJECT / "scripts/dashboards", "--check"], check=True)

    def test_address_title_and_tags_are_fixed(self) -> None:
        self.assertEqual(dashboards().keys(), {"overview", "routes", "upstreams", "apis"})
        for name, document in self.each():
            self.assertEqual((document["uid"], document["tags"]), (f"sluicegate-{name}", ["sluicegate"]))
            self.assertTrue(document["title"].startswith("Sluicegate / "))
            # Grafana assigns the number.
            self.assertNotIn("id", document)
            # Grafana 10.0 writes 38. Later versions convert it.
            self.assertEqual(document["schemaVersion"], 38)

    def test_each_panel_has_a_description_a_unit_and_the_selected_data_source(self) -> None:
        for _, document in self.each():
            for panel in panels(document):
                self.assertIn(panel["type"], PANELS)
                self.assertRegex(panel["description"], r"\.$", panel["title"])
                self.assertEqual(panel["datasource"], SOURCE)
                self.assertTrue(all(target["datasource"] == SOURCE for target in panel["targets"]))
                units = [each["value"] for override in panel["fieldConfig"]["overrides"] for each in override["properties"] if each["id"] == "unit"]
                units += [panel["fieldConfig"]["defaults"].get("unit") or panel["options"].get("yAxis", {}).get("unit")] if panel["type"] != "table" else []
                self.assertTrue(units, panel["title"])
                self.assertLessEqual(set(units), UNITS, panel["title"])

    def test_panels_have_unique_numbers_and_do_not_overlap(self) -> None:
        for _, document in self.each():
            numbers = [panel["id"] for panel in document["panels"]]
            self.assertEqual(len(numbers), len(set(numbers)))
            cells = set()
            for panel in document["panels"]:
                at = panel["gridPos"]
                self.assertLessEqual(at["x"] + at["w"], 24)
                own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
                self.assertEqual(cells & own, set(), panel["title"])
                cells |= own

    def test_each_variable_is_defined_and_used(self) -> None:
        for _, document in self.each():
            variables = document["templating"]["list"]
            defined = {variable["name"] for variable in variables}
            texts = json.dumps([document["panels"], document["annotations"], [variable.get("query") for variable in variables]])
            used = {name for name in re.findall(r"\$\{?(\w+)", texts) if name not in BUILT_IN and not name.startswith(("__data", "__value", "__url"))}
            self.assertEqual(used, defined)
            self.assertEqual(variables[0]["type"], "datasource")
            for variable in variables[1:]:
                # All also selects the series without the label, such as those of a Prometheus that adds no label `pod`.
                self.assertEqual((variable["allValue"], variable["datasource"]), (".*", SOURCE))

    def test_links_lead_to_dashboards_with_the_variables_of_the_link(self) -> None:
        known = {document["uid"]: {variable["name"] for variable in document["templating"]["list"]} for document in dashboards().values()}
        for _, document in self.each():
            self.assertEqual([(link["type"], link["tags"], link["includeVars"], link["keepTime"]) for link in document["links"]], [("dashboards", ["sluicegate"], True, True)])
            for address in re.findall(r'"url": "(/d/[^"]+)"', json.dumps(document["panels"])):
                uid = address.removeprefix("/d/").partition("?")[0]
                self.assertLessEqual(set(re.findall(r"var-(\w+)=", address)), known[uid])

    def test_counters_are_read_as_rates_over_the_interval_of_the_panel(self) -> None:
        for _, document in self.each():
            for panel in panels(document):
                for target in panel["targets"]:
                    parsed(target["expr"].replace("$__rate_interval", "5m"))
                    for function, interval in re.findall(r"\b(rate|increase)\([^\[]*\[([^\]]+)\]", target["expr"]):
                        self.assertEqual(interval, "$__rate_interval", (panel["title"], function))


def sdk(*files: str) -> str:
    """Returns the faults of dashboards."""
    # The first run downloads modules, and says so on standard error.
    done = subprocess.run(["go", "run", ".", *files], capture_output=True, text=True, cwd=Path(__file__).parent / "schema")
    return done.stdout + (done.stderr if done.returncode else "")


if __name__ == "__main__":
    unittest.main()
