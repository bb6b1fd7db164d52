"""The figures of the experiments, and their report in Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A measured value."""

    name: str
    value: float
    unit: str = ""
    target: float | None = None
    """The largest value that meets the target."""
    is_promise: bool = False
    """Whether a value over the target is a fault on every machine, such as a failed request."""
    note: str = ""

    @property
    def meets_target(self) -> bool:
        return self.target is None or self.value <= self.target

    @property
    def breaks_promise(self) -> bool:
        return self.is_promise and not self.meets_target


def faults(name: str, count: int, note: str = "") -> Figure:
    """Returns the count of faults, which must be 0."""
    return Figure(name, count, target=0, is_promise=True, note=note)


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the smallest value that is at least as large as this share of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def milliseconds(name: str, seconds: Sequence[float], targets: Mapping[str, float] | None = None) -> list[Figure]:
    """Returns p50, p99 and the largest of some times, in milliseconds. `targets` maps p50, p99 and max to targets."""
    found = {"p50": percentile(seconds, 0.5), "p99": percentile(seconds, 0.99), "max": max(seconds)}
    return [Figure(f"{name}, {which}", value * 1000, "ms", (targets or {}).get(which)) for which, value in found.items()]


def shown(value: float) -> str:
    """Returns a value with three digits, and integers in full."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def line(figure: Figure) -> str:
    """Returns a figure as a line of text."""
    target = "" if figure.target is None else f"  (target {shown(figure.target)}: {'met' if figure.meets_target else 'MISSED'})"
    note = f"  {figure.note}" if figure.note else ""
    return f"{figure.name}: {shown(figure.value)}{figure.unit and ' ' + figure.unit}{target}{note}"


def report(settings: Mapping[str, str], results: Mapping[str, Iterable[Figure] | str], about: Mapping[str, str]) -> str:
    """Returns the report in Markdown. The result of an experiment is its figures, or the error that ended it."""
    lines = ["# Benchmark of Gateway API", "", *(f"- {name}: {value}" for name, value in settings.items())]
    for name, result in results.items():
        lines += ["", f"## {name}", "", about[name], ""]
        if isinstance(result, str):
            lines.append(f"**The experiment failed:** {result}")
            continue
        lines += ["| figure | value | target | met | note |", "|---|---:|---:|---|---|"]
        for figure in result:
            met = "" if figure.target is None else "yes" if figure.meets_target else "**no**"
            target = "" if figure.target is None else shown(figure.target)
            lines.append(f"| {figure.name} | {shown(figure.value)}{figure.unit and ' ' + figure.unit} | {target} | {met} | {figure.note} |")
    return "\n".join(lines) + "\n"
