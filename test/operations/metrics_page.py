"""The reference page of the metrics, from the output of running gateways."""

import re
from dataclasses import dataclass, field

HEAD = """<!-- This page is generated from the output of running gateways: SLUICEGATE_UPDATE_PAGES=1 make check-operations. -->

# Metrics

`/metrics` of the admin interface has these metrics. The columns name each metric as a query of Prometheus does, its type, and the labels of its samples.
A metric without samples can have no labels in the table. [Metrics and alerts](../operate/metrics.md) explains the important metrics. With the dialect of
ingress-nginx, the gateway also has [the metrics of ingress-nginx](../migrate/ingress-nginx.md#metrics). In a cluster, the gateway also has these metrics:

- `sluicegate_leader` is 1 for the pod that holds the Lease, otherwise 0.
- `sluicegate_kubernetes_connected` is 1 while all watches of the Kubernetes API work, otherwise 0.
- `sluicegate_endpoints_confirmed_timestamp_seconds` is the time until which the Kubernetes API confirmed the endpoints, in seconds since 1970. While the watches work,
  this time is now.

| metric | type | labels | meaning |
|---|---|---|---|
"""
ROW = re.compile(r"^\| `(?P<name>[a-z0-9_]+)` \| (?P<kind>\w+) \| (?P<labels>[^|]*) \| (?P<help>.*) \|$", re.MULTILINE)


@dataclass
class Family:
    kind: str = ""
    help: str = ""
    labels: set[str] = field(default_factory=set)


def text(scrapes: list[str]) -> str:
    """Returns the page of the metrics of these scrapes."""
    families: dict[str, Family] = {}
    for scrape in scrapes:
        for line in scrape.split("\n"):
            match line.split(" ", 3):
                case ["#", "HELP", name, said]:
                    families.setdefault(name, Family()).help = said
                case ["#", "TYPE", name, kind]:
                    families.setdefault(name, Family()).kind = kind
                case _ if line and not line.startswith("#"):
                    name = re.match(r"[a-zA-Z0-9_:]+", line)
                    family = name and _family(families, name[0])
                    if family:
                        family.labels |= set(re.findall(r'[{,]([a-z_]+)="', line)) - {"le"}
    rows = [f"| `{name}` | {of.kind} | {', '.join(f'`{label}`' for label in sorted(of.labels))} | {_escaped(of.help)} |\n"
            for name, of in sorted(families.items())]
    return HEAD + "".join(rows)


def lacks(page: str, now: str) -> list[str]:
    """Returns what the page lacks of the metrics of now."""
    known = {row["name"]: row for row in ROW.finditer(page)}
    problems = []
    for row in ROW.finditer(now):
        old = known.get(row["name"])
        if old is None:
            problems.append(f"{row['name']} is not on the page")
        elif (old["kind"], old["help"]) != (row["kind"], row["help"]) or not set(row["labels"].split(", ")) - {""} <= set(old["labels"].split(", ")):
            problems.append(f"{row['name']} differs")
    gone = known.keys() - {row["name"] for row in ROW.finditer(now)}
    return problems + [f"{name} does not exist" for name in sorted(gone)]


def _family(families: dict[str, Family], sample: str) -> Family | None:
    for suffix in ("", "_bucket", "_sum", "_count", "_total", "_info"):
        name = sample.removesuffix(suffix) if suffix else sample
        if name in families:
            return families[name]
    return None


def _escaped(help_text: str) -> str:
    return help_text.replace("|", "\\|").replace("<", "&lt;")
