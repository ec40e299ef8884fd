"""Consistency models, and the anomalies of transactions that each forbids.

A model forbids the anomalies that it names itself, those of every weaker model, and each anomaly
that is a case of a forbidden one. `-item` says that no predicate is part of it: reads of lists have
none.
Sources: Adya, "Weak Consistency"; Bailis et al., "Highly Available Transactions"; Cerone, Bernardi
and Gotsman, "A Framework for Transactional Consistency Models with Atomic Visibility"; Daudjee and
Salem, "Lazy Database Replication with Snapshot Isolation"; put together as Elle has them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PROCESS, REALTIME = "process", "realtime"
KAFKA = "kafka"
"""The model of Kafka's transactions, which is none of the literature's."""

_SERIAL = ("G-single-item", "G-nonadjacent-item", "G2-item")
CYCLES = ("G0", "G1c", *_SERIAL)
"""Kinds of cycles in the order in which they are looked for: of one component's a later one is not
reported if an earlier one is a case of it."""

_CASES_OF: Mapping[str, tuple[str, ...]] = {
    "G0": ("G1c",),
    "G1a": ("G1",),
    "G1b": ("G1",),
    "G1c": ("G1",),
    "G-single-item": ("G-single", "G-nonadjacent-item"),
    "G-single": ("G-nonadjacent",),
    "G-nonadjacent-item": ("G-nonadjacent", "G2-item"),
    "G-nonadjacent": ("G2",),
    "G2-item": ("G2",),
    "incompatible-order": ("G1a",),
    "future-read": ("G1c",),
    "dirty-update": ("G1a",),
    "lost-update": ("write-skew", "G2-item"),
    "write-skew": ("G2",),
}
"""An anomaly to those of which it is a case."""
_ORDERED = ("G0", "G1c", "G1", *_SERIAL, "G-single", "G-nonadjacent", "G2")
"""Kinds that there are with the order of processes and real time, too."""

# To what each is stronger, and what it forbids beside what those do.
_MODELS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "read-uncommitted": ((), ("G0", "duplicate-elements", "cyclic-versions", "garbage-read")),
    "read-committed": (("read-uncommitted",), ("G1",)),
    "monotonic-atomic-view": (("read-committed",), ()),
    "read-atomic": (("monotonic-atomic-view",), ("internal", "future-read")),
    "causal-cerone": (("read-atomic",), ()),
    "update-atomic": (("read-atomic",), ("lost-update",)),
    "prefix": (("causal-cerone",), ()),
    "parallel-snapshot-isolation": (("causal-cerone", "update-atomic"), ()),
    "cursor-stability": (("read-committed",), ("lost-update",)),
    "repeatable-read": (("cursor-stability", "monotonic-atomic-view"), ("G2-item",)),
    "consistent-view": (("cursor-stability",), ("G-single",)),
    "snapshot-isolation": (
        ("consistent-view", "parallel-snapshot-isolation", "prefix"),
        ("G-nonadjacent",),
    ),
    "serializable": (("repeatable-read", "snapshot-isolation"), ("G2",)),
    "strong-session-read-uncommitted": (("read-uncommitted",), ("G0-process",)),
    "strong-session-read-committed": (
        ("read-committed", "strong-session-read-uncommitted"),
        ("G1c-process",),
    ),
    "strong-session-snapshot-isolation": (
        ("snapshot-isolation", "strong-session-read-committed"),
        ("G1-process", "G-nonadjacent-process"),
    ),
    "strong-session-serializable": (
        ("serializable", "strong-session-snapshot-isolation"),
        ("G2-process",),
    ),
    "strong-read-uncommitted": (("strong-session-read-uncommitted",), ("G0-realtime",)),
    "strong-read-committed": (
        ("strong-session-read-committed", "strong-read-uncommitted"),
        ("G1c-realtime",),
    ),
    "strong-snapshot-isolation": (
        ("strong-session-snapshot-isolation", "strong-read-committed"),
        ("G1-realtime", "G-nonadjacent-realtime"),
    ),
    "strict-serializable": (
        ("strong-session-serializable", "strong-snapshot-isolation"),
        ("G2-realtime",),
    ),
}
CONSISTENCY = (KAFKA, *_MODELS)
"""Names of the models, the strictest last."""
_KAFKA = frozenset(
    {
        "G1a",
        "G1b",
        "G1c",
        "G1c-process",
        "G1c-realtime",
        "internal",
        "future-read",
        "duplicate-elements",
        "incompatible-order",
        "garbage-read",
    }
)


@cache
def forbidden(model: str) -> frozenset[str]:
    """Return the anomalies that the model forbids. KeyError if there is no such model."""
    if model == KAFKA:
        return _KAFKA
    wanted = set(_forbidden_by(model))
    cases = _cases()
    while more := {one for one, of in cases.items() if of & wanted} - wanted:
        wanted |= more
    return frozenset(wanted)


@cache
def orders(model: str) -> tuple[str, ...]:
    """Return the orders beside the data's own that the model keeps. One client's real time has its
    order of operations in it.
    """
    if model == KAFKA:
        return (PROCESS, REALTIME)
    names = forbidden(model)
    return next(
        (
            (order,)
            for order in (REALTIME, PROCESS)
            if any(one.endswith(f"-{order}") for one in names)
        ),
        (),
    )


@cache
def implied(anomaly: str) -> frozenset[str]:
    """Return the anomalies that this one implies."""
    found, new = {anomaly}, {anomaly}
    cases = _cases()
    while new:
        new = {more for one in new for more in cases.get(one, ())} - found
        found |= new
    return frozenset(found)


def _forbidden_by(model: str) -> Iterable[str]:
    weaker, names = _MODELS[model]
    return (*names, *(name for one in weaker for name in _forbidden_by(one)))


@cache
def _cases() -> Mapping[str, frozenset[str]]:
    return {name: frozenset(of) for name, of in _all_cases()}


def _all_cases() -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, cases in _CASES_OF.items():
        yield name, (*cases, f"{name}-{PROCESS}") if name in _ORDERED else cases
    yield "G1", (f"G1-{PROCESS}",)
    yield "G2", (f"G2-{PROCESS}",)
    for order, after in ((PROCESS, REALTIME), (REALTIME, "")):
        for name in _ORDERED:
            of = [f"{one}-{order}" for one in _CASES_OF.get(name, ()) if one in _ORDERED]
            yield f"{name}-{order}", (*of, *([f"{name}-{after}"] if after else []))
