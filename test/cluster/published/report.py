"""The results of the runs as a table."""

from .run import OF_THE_STUDY, Load, Outcome


def table(outcomes: list[Outcome], load: Load) -> str:
    """Returns the table as Markdown. Latency starts at the due time of a request. The table shows p99.9 also as a multiple of the static run."""
    lines = [
        f"{load.rate:,} requests/s over {load.connections:,} TLS connections for {load.seconds} s. Times in milliseconds.",
        "",
        "| gateway | run | changes | connect | timeout | read | write | not 2xx | wrong | unsent | p50 | p99 | p99.9 | of static |"
        " longest | load late p99 |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        errors = " | ".join(f"{count:,}" for count in outcome.errors.values())
        p50, p99, p999 = (outcome.percentile(which) for which in ["50", "99", "99.9"])
        ratio = against_static(outcome, outcomes)
        longest = outcome.load["latency"]["max_us"] / 1000
        late = outcome.load["lateness"]["percentiles_us"]["99"] / 1000
        lines.append(f"| {outcome.gateway} | {outcome.run} {outcome.nth} | {outcome.changes} | {errors} | {p50:.1f} | {p99:.1f} | {p999:.1f} |"
                     f" {'' if ratio is None else f'{ratio:.2f}'} | {longest:.1f} | {late:.1f} |")
    return "\n".join(lines)


def against_static(outcome: Outcome, outcomes: list[Outcome]) -> float | None:
    """Returns the p99.9 of a run as a multiple of the static run of the same round."""
    for other in outcomes:
        if (other.gateway, other.run, other.nth) == (outcome.gateway, "static", outcome.nth) and outcome.run != "static":
            static = other.percentile("99.9")
            return outcome.percentile("99.9") / static if static else None
    return None


def failures(outcomes: list[Outcome]) -> list[str]:
    """Returns the broken promises of Sluicegate. The promises: no error, no wrong response, no unsent request, and p99.9 below 100 ms and at
    most 1.5 times the p99.9 of the static run."""
    found = []
    for outcome in outcomes:
        if outcome.gateway != "sluicegate" or outcome.run not in OF_THE_STUDY:
            continue
        where = f"{outcome.run} {outcome.nth}"
        if any(outcome.errors.values()) or outcome.load["errors"]["total"]:
            found.append(f"{where}: errors {outcome.errors}")
        if outcome.percentile("99.9") >= 100:
            found.append(f"{where}: p99.9 is {outcome.percentile('99.9'):.1f} ms")
        ratio = against_static(outcome, outcomes)
        if ratio is not None and ratio > 1.5:
            found.append(f"{where}: p99.9 is {ratio:.2f} times that of the static run")
    return found
