"""The samples of the processes, and the verdict. This file has no side effects, so that its tests need no soak."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

WARM_UP = 0.1
"""The share of the samples that do not count, at most `WARM_UP_SECONDS`."""
WARM_UP_SECONDS = 300.0


@dataclass(frozen=True)
class Tolerance:
    """The growth that counts as flat: a share of the earlier median, and an absolute part."""

    share: float
    plus: float


MIB = 1024 * 1024
TOLERANCES = {
    # The allocator keeps free pages for a while, so the resident memory follows the load of the last seconds.
    "memory": Tolerance(0.10, 4 * MIB),
    # Without idle connections to endpoints, which follow the number of pods, and without the watches, which an outage of the API server ends.
    "other descriptors": Tolerance(0.10, 15),
    "threads": Tolerance(0.0, 2),
    "connections": Tolerance(0.10, 15),
}
"""The flat values of a process that runs for the whole soak."""


@dataclass
class Sample:
    """A process at a time since the start of the load, in seconds. `values` has the names of `TOLERANCES`, and gauges of the metrics."""

    at: float
    process: str
    values: dict[str, float] = field(default_factory=dict)


def of(samples: Iterable[Sample], process: str, value: str) -> list[tuple[float, float]]:
    """Returns the times and the values of a process."""
    return [(sample.at, sample.values[value]) for sample in samples if sample.process == process and value in sample.values]


def quarters(series: list[tuple[float, float]]) -> tuple[float, float] | None:
    """Returns the medians of the second and of the last quarter of the time after the warm-up, or None with too few samples."""
    if not series:
        return None
    end = series[-1][0]
    begin = min(end * WARM_UP, WARM_UP_SECONDS)
    length = (end - begin) / 4
    second = [value for at, value in series if begin + length <= at < begin + 2 * length]
    last = [value for at, value in series if at >= begin + 3 * length]
    if len(second) < 3 or len(last) < 3:
        return None
    return statistics.median(second), statistics.median(last)


def growth(samples: list[Sample], process: str) -> list[str]:
    """Returns the values of a process that grew beyond their tolerance."""
    found = []
    for name, tolerance in TOLERANCES.items():
        medians = quarters(of(samples, process, name))
        if medians is None:
            found.append(f"{process}: too few samples of {name}")
            continue
        second, last = medians
        if last > second * (1 + tolerance.share) + tolerance.plus:
            found.append(f"{process}: {name} grew from {shown(name, second)} (median of the second quarter) to {shown(name, last)} (last quarter)")
    return found


def shown(name: str, value: float) -> str:
    """Returns a value with its unit."""
    return f"{value / MIB:.1f} MiB" if name == "memory" else f"{value:.0f}"


FAULT = re.compile(r"\bERROR\b|panicked at|RUST_BACKTRACE|stack overflow")


def log_faults(lines: Iterable[str]) -> list[str]:
    """Returns the lines of a log that report an error or a panic."""
    return [line for line in lines if FAULT.search(line)]


def warnings(lines: Iterable[str]) -> dict[str, int]:
    """Returns the warnings of a log, and how often each occurred. Times, numbers and generated names are not compared."""
    found: dict[str, int] = {}
    for line in lines:
        if re.search(r"\bWARN\b", line):
            text = re.sub(r"\b[0-9a-f]{8}\b|\d+", "N", re.sub(r"\x1b\[\d*m", "", line).partition("WARN")[2].strip())
            found[text] = found.get(text, 0) + 1
    return found
