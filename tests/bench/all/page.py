"""The page of all figures, and its pictures, from one JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.bench.all import charts
from tests.bench.all.goals import GOALS, OURS, PEERS, RATIO, State, beside, outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.bench.all.goals import Outcome

PAGE = "figures.md"
IMAGES = "images"
SUMMARY = (
    "puts_256_of_256_B_ratio",
    "puts_1_of_256_B_time_ratio",
    "produce_1024_B_ratio",
    "consume_cached_ratio",
    "paced_1000_p50_ratio",
    "paced_1000_p99_ratio",
    "paced_1000_cpu_ratio",
    "commits_ratio",
    "transactions_8_ratio",
    "rebalance_consumer_ratio",
)
"""Figures of goals."""
BARS: dict[str, tuple[str, Sequence[str]]] = {
    "summary": ("raftctl beside Apache Kafka and etcd", SUMMARY),
    "puts": ("Puts beside etcd", ["puts_"]),
    "produce": ("Produce beside Apache Kafka", ["produce_"]),
    "consume": ("Consume beside Apache Kafka", ["consume_"]),
    "paced": ("Records at a steady pace beside Apache Kafka", ["paced_"]),
    "groups": (
        "Groups and transactions beside Apache Kafka",
        ["commits", "transactions_", "rebalance_", "members_", "load"],
    ),
}
"""Name of a picture to its title, and how the figures of its goals begin."""
COLUMNS = ("figure", "raftctl", "peer", "ratio", "processor time", "goal", "")


class Growth(NamedTuple):
    """How figures grow with something: a picture."""

    name: str
    title: str
    across: str
    up: str
    pattern: str
    """Of the figures: what it grows with, and whose figure it is: ours if that is empty."""


GROWTHS = (
    Growth(
        "record-size",
        "Produce, acks=all, by the size of a record",
        "bytes of a record",
        "MB/s",
        r"produce_(?P<x>\d+)_B_(?P<who>raftctl|kafka)",
    ),
    Growth(
        "rate",
        "End to end by rate: 99th percentile",
        "records a second",
        "ms",
        r"paced_(?P<x>\d+)_p99_(?P<who>raftctl|kafka)",
    ),
    Growth(
        "outstanding",
        "Puts a second by the number outstanding, 256 B",
        "puts outstanding",
        "puts/s",
        r"puts_(?P<x>\d+)_of_256_B_(?P<who>raftctl|etcd)",
    ),
    Growth(
        "partitions",
        "A topic made, by partitions on each broker",
        "partitions on each broker",
        "s until all logs are there",
        r"partitions_(?P<x>\d+)_hosted_(?P<who>raftctl|kafka)",
    ),
    Growth(
        "partitions-idle",
        "Idle brokers, by partitions on each",
        "partitions on each broker",
        "% of a core, all brokers",
        r"partitions_(?P<x>\d+)_idle_(?P<who>raftctl|kafka)",
    ),
    Growth(
        "partitions-stall",
        "Longest stall of a controller's loop, by partitions of the cluster",
        "partitions of the cluster",
        "ms",
        r"scale_(?P<x>\d+)_stall(?P<who>)",
    ),
    Growth(
        "connections",
        "Memory of a connection, by their number",
        "connections of one broker",
        "KiB each",
        r"connections_(?P<x>\d+)_memory_(?P<who>raftctl|kafka)",
    ),
    Growth(
        "groups",
        "Commits by the number of groups of one coordinator",
        "groups, one commit of each under way",
        "commits/s",
        r"commits_by_(?P<x>\d+)_(?P<who>raftctl|kafka)",
    ),
)


def write(document: Mapping[str, Any], folder: Path) -> None:
    """Writes the page and its pictures into the folder."""
    images = folder / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    pictures = dict(_pictures(document["figures"]))
    for name, (_, svg) in pictures.items():
        (images / f"{name}.svg").write_text(svg, encoding="utf-8")
    lines = [*_head(document), *_table(document["figures"])]
    for name, (title, _) in pictures.items():
        lines += ["", f"![{title}]({IMAGES}/{name}.svg)"]
    lines += _parts(document)
    (folder / PAGE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def outcomes(figures: Mapping[str, Any]) -> list[Outcome]:
    """What became of every goal."""
    return [outcome(goal, figures) for goal in GOALS]


def _head(document: Mapping[str, Any]) -> Iterator[str]:
    machine = document["machine"]
    counts = dict.fromkeys(State, 0)
    for one in outcomes(document["figures"]):
        counts[one.state] += 1
    yield "# All figures of one run"
    yield ""
    yield "<!-- Written by `make bench-all`. -->"
    yield ""
    yield "How they are measured and what limits them: [benchmarks](README.md)."
    yield ""
    yield f"* {machine['cores']} cores, Python {machine['python']}; commit {document['commit']}."
    yield "* Peers take turns in one run. A figure is the median of its turns; the JSON has all."
    yield "* A ratio is raftctl's median divided by the peer's."
    yield "* A peer that could not keep the pace has no figure; the table says what it kept."
    yield f"* Goals: {', '.join(f'{count} {state}' for state, count in counts.items())}."
    yield ""


def _table(figures: Mapping[str, Any]) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|" + "---|" * len(COLUMNS)
    for one in outcomes(figures):
        found = beside(one.goal.figure, figures)
        ours, peer = _cell(found.pop(OURS, None)), ""
        for name, of in found.items():
            peer = f"{_cell(of)} ({PEERS[name]})"
        is_ratio = one.goal.figure.endswith(RATIO)
        ratio = one.said or ("" if one.value is None or not is_ratio else f"{one.value:.2f}")
        cells = (one.goal.label, ours, peer, ratio, _processor(one, figures), str(one.goal))
        yield f"| {' | '.join(cells)} | {one.state} |"


def _cell(found: Mapping[str, Any] | None) -> str:
    if found is None or found["median"] is None:
        return ""
    return f"{charts.short(found['median'])} {found['unit']}"


def _processor(one: Outcome, figures: Mapping[str, Any]) -> str:
    """Ratio of the processor time for the same, where it was measured."""
    found = figures.get(one.goal.figure.removesuffix(RATIO) + "_cpu" + RATIO)
    return "" if found is None or found["median"] is None else f"{found['median']:.2f}"


def _pictures(figures: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Name to title and picture, of what was measured."""
    found = outcomes(figures)
    for name, (title, begins) in BARS.items():
        chosen = [one for one in found if one.goal.figure.startswith(tuple(begins))]
        rows = [row for one in chosen if (row := _row(one, figures))]
        if rows:
            yield name, (title, charts.bars(title, rows))
    for growth in GROWTHS:
        series: dict[str, list[tuple[float, float]]] = {}
        for name, value in figures.items():
            match = re.fullmatch(growth.pattern, name)
            if match and value["median"] is not None:
                who = PEERS.get(match["who"], OURS)
                series.setdefault(who, []).append((float(match["x"]), value["median"]))
        if any(len(of) > 1 for of in series.values()):
            svg = charts.curves(growth.title, growth.across, growth.up, series)
            yield f"by-{growth.name}", (growth.title, svg)


def _row(one: Outcome, figures: Mapping[str, Any]) -> charts.Row | None:
    found = beside(one.goal.figure, figures)
    if OURS not in found or found[OURS]["median"] is None:
        return None
    ours = found.pop(OURS)
    name, peer = next(iter(found.items()), ("", None))
    value = "" if one.value is None else f"{one.value:.2f} {one.goal.unit}, "
    return charts.Row(
        one.goal.label,
        ours["unit"],
        ours["median"],
        None if peer is None else peer["median"],
        PEERS.get(name, ""),
        one.said or f"{value}goal {one.goal}: {one.state}",
        one.state is State.MET,
    )


def _parts(document: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield "## The parts of the run"
    yield ""
    yield "| part | what it is | took, s | budget, s | ended | given before: MB; s of a load |"
    yield "|---|---|---|---|---|---|"
    for name, one in document["parts"].items():
        cells = (name, one["about"], one["seconds"], one["budget_s"], one["ended"], _warmth(one))
        yield f"| {' | '.join(map(str, cells))} |"


def _warmth(part: Mapping[str, Any]) -> str:
    given = part.get("warmth", {}).get("given", {})
    said = []
    for name, one in given.items():
        loads = ", ".join(f"{load} {seconds:.0f}" for load, seconds in one["seconds"].items())
        said.append(f"{PEERS.get(name, name)}: {one['megabytes']:,.0f}; {loads}")
    return ". ".join(said)
