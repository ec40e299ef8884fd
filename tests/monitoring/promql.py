"""Which metrics an expression of PromQL names, and whether nodes serve them with those labels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from raftctl.metrics._definition import Kind
from tests.monitoring.definitions import definitions

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[a-zA-Z_:][\w:]*|\d[\w.]*|[^\s\w]')
_LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
_GROUPED = re.compile(r"\bby \(([^)]*)\)")
_GROUPINGS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_WORDS = frozenset(
    {
        "and",
        "or",
        "unless",
        "bool",
        "offset",
        "sum",
        "min",
        "max",
        "avg",
        "count",
        "topk",
        "count_values",
    }
)
"""Operators; an aggregation may have its grouping before its operand."""
_OF_SUMMARY = ("_count", "_sum")
OF_PROMETHEUS = frozenset({"up", "scrape_duration_seconds", "ALERTS"})
"""Series that Prometheus itself makes, for each target."""
OF_TARGET = frozenset({"cluster", "instance", "job"})
"""Labels that a scrape configuration gives."""


class Selector(NamedTuple):
    """A metric with its conditions, as it stands in an expression, without a range."""

    name: str
    conditions: str
    """With the braces; empty without conditions."""

    @property
    def labels(self) -> list[str]:
        """The names of labels that have a condition."""
        return _LABEL.findall(self.conditions)


def selectors(expression: str) -> list[Selector]:
    """All that an expression reads."""
    return list(_selectors(_TOKEN.findall(expression)))


def _selectors(tokens: list[str]) -> Iterator[Selector]:
    at = 0
    while at < len(tokens):
        token, after = tokens[at], tokens[at + 1 : at + 2]
        at += 1
        if token == "[":
            at = tokens.index("]", at)
        elif token in _GROUPINGS:
            at = tokens.index(")", at) + 1 if after == ["("] else at
        elif not re.match(r"[a-zA-Z_:]", token) or token in _WORDS or after == ["("]:
            continue
        elif after == ["{"]:
            end = tokens.index("}", at) + 1
            yield Selector(token, "".join(tokens[at:end]))
            at = end
        else:
            yield Selector(token, "")


def problems(expression: str) -> list[str]:
    """What an expression reads or groups by that no node serves."""
    found = []
    grouped = {label for text in _GROUPED.findall(expression) for label in text.split(",")}
    given = set(OF_TARGET)
    for selector in selectors(expression):
        labels = labels_of(selector.name)
        if labels is None:
            return [f"no node serves {selector.name}"]
        given |= labels
        found += [
            f"{selector.name} has no label {label}"
            for label in selector.labels
            if label not in labels
        ]
    strange = sorted(label.strip() for label in grouped if label.strip() not in given)
    return found + [f"{label} is a label of nothing in {expression}" for label in strange]


def labels_of(series: str) -> frozenset[str] | None:
    """The labels of a series, those of its target included; None if no node serves it."""
    if series in OF_PROMETHEUS:
        return OF_TARGET
    defined = definitions().get(series)
    if defined is not None and defined.metric.kind is Kind.SUMMARY:
        return OF_TARGET.union(defined.metric.labels, ["quantile"])
    if defined is None:
        base, ending = next(
            ((series.removesuffix(end), end) for end in _OF_SUMMARY if series.endswith(end)),
            (series, ""),
        )
        defined = definitions().get(base)
        if not ending or defined is None or defined.metric.kind is not Kind.SUMMARY:
            return None
    return OF_TARGET.union(defined.metric.labels)
