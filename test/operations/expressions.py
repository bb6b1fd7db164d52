"""The expressions of the dashboards and of the rules, and their metrics and labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml

PROJECT = Path(__file__).resolve().parents[2]
OPERATIONS = PROJECT / "charts/sluicegate/operations"
RULES = OPERATIONS / "rules.yaml"
BUILT_IN = ["__rate_interval"]
"""The variables that Grafana defines."""


def dashboards() -> dict[str, dict[str, Any]]:
    """Returns the dashboards by the name of their file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((OPERATIONS / "dashboards").glob("*.json"))}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


@dataclass
class Expression:
    where: str
    """The file, and the title of the panel or the name of the rule."""
    text: str
    """The expression, with values for the variables of the dashboard."""
    labels: set[str] = field(default_factory=set)
    """The labels that a panel shows."""
    is_instant: bool = True


def with_values(text: str, interval: str = "5m") -> str:
    """Replaces the variables of Grafana as for the selection All."""
    text = text.replace("$__rate_interval", interval)
    return re.sub(r"\$\{?\w+\}?", ".*", text)


def of_dashboards(interval: str = "5m") -> Iterator[Expression]:
    for name, document in dashboards().items():
        for annotation in document["annotations"]["list"]:
            shown = set(re.findall(r"{{(\w+)}}", annotation["textFormat"]))
            yield Expression(f"{name}: {annotation['name']}", with_values(annotation["expr"], interval), shown)
        for variable in document["templating"]["list"]:
            if variable["type"] == "query":
                found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
                assert found, variable["query"]["query"]
                yield Expression(f"{name}: ${variable['name']}", with_values(found[1], interval), {found[2]})
        for panel in document["panels"]:
            for target in panel.get("targets", []):
                shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
                if panel["type"] == "table":
                    organize = panel["transformations"][-1]["options"]
                    shown |= set(organize["indexByName"]) - set(organize["renameByName"])
                yield Expression(f"{name}: {panel['title']}", with_values(target["expr"], interval), shown, target["instant"])


def of_rules() -> Iterator[Expression]:
    for rule in rules():
        yield Expression(f"rules: {rule.get('alert') or rule['record']}", rule["expr"])


@dataclass
class Selector:
    metric: str
    labels: set[str]
    """The labels of its matchers."""
    values: set[tuple[str, str]]
    """The labels and the values of its matchers, without patterns for any value."""


def parsed(text: str) -> Any:
    return promql.parse(text)


def selectors(tree: Any) -> Iterator[Selector]:
    """Returns the selectors of an expression."""
    for each in nodes(tree):
        if isinstance(each, promql.VectorSelector):
            matchers = each.matchers.matchers
            values = {(matcher.name, value) for matcher in matchers for value in alternatives(matcher)}
            yield Selector(each.name, {matcher.name for matcher in matchers}, values)


def alternatives(matcher: Any) -> list[str]:
    """Returns the values that a matcher names."""
    if matcher.op in (promql.MatchOp.Equal, promql.MatchOp.NotEqual):
        return [matcher.value]
    return [value for value in matcher.value.split("|") if re.fullmatch(r"\w+", value)]


def groupings(tree: Any) -> Iterator[tuple[set[str], set[str]]]:
    """Returns the labels of each `by`, `without`, `on` and `group_left`, and the metrics below."""
    for each in nodes(tree):
        modifier = getattr(each, "modifier", None)
        if modifier is None:
            continue
        metrics = {selector.metric for selector in selectors(each)}
        if isinstance(each, promql.AggregateExpr):
            yield set(modifier.labels) - {"le"}, metrics
        elif modifier.matching is not None:
            yield set(modifier.matching.labels), metrics


def nodes(tree: Any) -> Iterator[Any]:
    """Returns a tree and all trees below."""
    yield tree
    below = []
    for name in ("lhs", "rhs", "expr", "param", "vector_selector", "args"):
        value = getattr(tree, name, None)
        below += value if isinstance(value, list) else [] if value is None else [value]
    for each in below:
        yield from nodes(each)
