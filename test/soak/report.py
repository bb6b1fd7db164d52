"""The report of a soak, as Markdown: a page of the documentation."""

from __future__ import annotations

import os
import statistics
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from changes import LANES, Done
from loads import Counted
from verdict import TOLERANCES, Sample, of, quarters, shown

ROWS = 12
"""The number of rows of a table over time."""


@dataclass
class Result:
    """All that the report tells."""

    command: str
    version: str
    profile: str
    seed: int
    seconds: float
    flat: list[str]
    """The processes whose memory and descriptors must be flat."""
    processes: list[str]
    counted: list[Counted] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    warnings: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return sum(each.requests for each in self.counted)

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.counted)


def duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.0f} min" if seconds >= 600 else f"{seconds:.0f} s"


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def memory() -> str:
    kib = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return f"{int(kib.split()[1]) / 1024 / 1024:.0f} GiB"


def page(result: Result) -> str:
    passed = "passed" if not result.faults else f"failed with {len(result.faults)} faults"
    parts = [f"""# Soak

<!-- test: examples, because a soak takes hours and needs root; make soak wrote this page -->

`make soak` runs Sluicegate under a load of all protocols while everything changes: pods, routes, certificates, policies, processes of the gateway, and the
API server. Beside the load, attackers flood the gateway. No request of the load may fail, and memory and file descriptors must be flat.
[The guide](../../test/soak/README.md) describes each part. This page is the report of one run:

```console
$ {result.command}
```

## Result

**The soak {passed}: {result.failed:,} of {result.requests:,} requests failed, during {len(result.done):,} changes in {duration(result.seconds)}.**
""", table(["", ""], [
        ["version", f"{result.version}, profile `{result.profile}`"], ["seed", str(result.seed)], ["duration", duration(result.seconds)],
        ["machine", f"{os.cpu_count()} CPUs, {memory()}; the gateways share the CPUs with the load, the pods, etcd and the API server"],
    ])]
    if result.faults:
        parts.append("### Faults\n\n" + "\n".join(f"- {' '.join(fault.split())[:400]}" for fault in result.faults))
    parts += ["## Requests\n\nThree gateways received the same load: `steady` and the data plane ran for the whole soak, and `replaced` was taken over by new processes.",
              requests(result), "## Changes", changes(result), "## Memory and file descriptors", flat(result), over_time(result)]
    if result.warnings:
        parts.append("## Warnings in the logs\n\nA warning is no fault. `N` stands for numbers.")
        parts.append(table(["warning", "times"], [[cell(text), f"{count:,}"] for text, count in sorted(result.warnings.items(), key=lambda item: -item[1])[:20]]))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def cell(text: str) -> str:
    return "`" + text.replace("|", "\\|").replace("`", "'")[:160] + "`"


def requests(result: Result) -> str:
    gateways = list(dict.fromkeys(each.gateway for each in result.counted))
    rows = []
    for protocol in dict.fromkeys(each.protocol for each in result.counted):
        of_protocol = [each for each in result.counted if each.protocol == protocol]
        by_gateway = [f"{sum(each.requests for each in of_protocol if each.gateway == gateway):,}" for gateway in gateways]
        notes = Counter[str]()
        for each in of_protocol:
            notes.update(each.notes)
        rows.append([protocol, *by_gateway, f"{sum(each.failed for each in of_protocol):,}", ", ".join(f"{count:,} {note}" for note, count in notes.items())])
    rows.append(["**all**", *(f"{sum(each.requests for each in result.counted if each.gateway == gateway):,}" for gateway in gateways), f"{result.failed:,}", ""])
    return table(["load", *(f"`{gateway}`" for gateway in gateways), "failed", "of these"], rows)


def changes(result: Result) -> str:
    rows = []
    for kind in (kind for lane in LANES.values() for kind in lane.kinds):
        done = [each for each in result.done if each.kind == kind]
        if done and kind not in (row[0] for row in rows):
            took = [each.took for each in done]
            rows.append([kind, str(len(done)), str(sum(bool(each.error) for each in done)), f"{statistics.median(took):.1f} s", f"{max(took):.1f} s"])
    return table(["change", "times", "failed", "median time", "longest time"], rows) + "\n\nThe time of a change includes its planned waits, and the wait for its effect."


def flat(result: Result) -> str:
    rows = []
    for process in result.flat:
        for name, tolerance in TOLERANCES.items():
            medians = quarters(of(result.samples, process, name))
            if medians:
                allowed = f"{tolerance.share:.0%} + {shown(name, tolerance.plus)}"
                rows.append([f"`{process}`", name, shown(name, medians[0]), shown(name, medians[1]), allowed])
    return ("The verdict compares the medians of the second and of the last quarter of the time after the warm-up.\n"
            "`other descriptors` are descriptors without idle connections to endpoints and without connections to the API server.\n\n"
            + table(["process", "value", "second quarter", "last quarter", "allowed growth"], rows))


def over_time(result: Result) -> str:
    end = max((sample.at for sample in result.samples), default=0)
    columns = [(process, name) for process in result.processes for name in ("memory", "descriptors", *(["pools"] if process in result.flat else []))]
    step = max(end / ROWS, 1)
    rows = []
    for row in range(ROWS):
        line = [f"{duration(row * step)}"]
        for process, name in columns:
            values = [value for at, value in of(result.samples, process, name) if row * step <= at < (row + 1) * step]
            line.append(shown(name, statistics.median(values)) if values else "")
        rows.append(line)
    head = ["from", *(f"`{process}` {name}" for process, name in columns)]
    return ("Medians over time. `pools` are the idle connections to endpoints, which are among the descriptors. New processes replaced the processes of\n"
            "`replaced` and of the control plane during the soak.\n\n" + table(head, rows))
