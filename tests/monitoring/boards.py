"""Dashboards and rules of Strimzi, read from a checkout of strimzi-kafka-operator.

They are no part of the project. The folder is `packaging/examples/metrics` there.
"""

from __future__ import annotations

import json
import re
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.monitoring.prometheus import Prometheus

DASHBOARDS = ("strimzi-kafka", "strimzi-kraft", "strimzi-kafka-exporter")
NOTHING = "absent(vector(1))"
"""An expression that never has data."""
_PLACE = "packaging/examples/metrics"
_RULES = ("prometheus-kafka-rules", "prometheus-kafka-exporter-topic-rules-group")
_QUERY_RESULT = re.compile(r"query_result\((.+)\)$", re.DOTALL)
_LABEL_VALUES = re.compile(r"label_values\((.+),\s*(\w+)\)$", re.DOTALL)


class Shown(NamedTuple):
    """An expression of a panel, with the variables of the dashboard filled in."""

    board: str
    panel: str
    expression: str


def shown(folder: Path, prometheus: Prometheus) -> Iterator[Shown]:
    """Every expression of the dashboards, with all values of their variables chosen.

    Where a variable has no values, its dashboard is one expression without data.
    """
    for name in DASHBOARDS:
        board = json.loads(_text_of(folder, f"{name}.json"))
        values: dict[str, str] = {}
        queried = [one for one in board["templating"]["list"] if one["type"] == "query"]
        for variable in queried:
            if found := _values(variable, values, prometheus):
                values[variable["name"]] = "|".join(found)
            else:
                yield Shown(name, f"${variable['name']}", NOTHING)
                break
        if len(values) == len(queried):
            for panel in _panels(board["panels"]):
                # Rows have targets without expressions.
                for target in panel.get("targets", ()):
                    if "expr" in target:
                        yield Shown(name, panel["title"], _filled(target["expr"], values))


def rules(folder: Path) -> dict[str, str]:
    """The files of rules as Prometheus reads them, by name."""
    found = {}
    for name in _RULES:
        resource = _text_of(folder, f"{name}.yaml")
        found[f"{name}.yml"] = textwrap.dedent(resource.partition("\nspec:\n")[2])
    return found


def _text_of(folder: Path, name: str) -> str:
    """The file of this name, wherever it lies below the folder."""
    for path in sorted(folder.rglob(name)):
        return path.read_text(encoding="utf-8")
    raise FileNotFoundError(f"--dashboards: no {name} below {folder}; name {_PLACE} of a checkout")


def _panels(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The panels, those inside of rows, too."""
    for panel in panels:
        yield panel
        yield from _panels(panel.get("panels", []))


def _filled(text: str, values: dict[str, str]) -> str:
    """The text with each variable as Grafana writes it: `(one|another)` of several values."""

    def value(match: re.Match[str]) -> str:
        found = values[match[1]]
        return f"({found})" if "|" in found else found

    names = "|".join(sorted(values, key=len, reverse=True))
    return re.sub(rf"\$({names})\b", value, text) if values else text


def _values(variable: dict[str, Any], values: dict[str, str], prometheus: Prometheus) -> list[str]:
    """What can be chosen for a variable: all, or one where only one can be."""
    query = _filled(variable["query"], values)
    by_label = _LABEL_VALUES.match(query)
    by_result = _QUERY_RESULT.match(query)
    if by_label:
        found = {one["metric"].get(by_label[2], "") for one in prometheus.query(by_label[1])}
    else:
        assert by_result, query
        pattern = re.compile(_filled(variable["regex"].strip("/"), values), re.DOTALL)
        lines = map(_line, prometheus.query(by_result[1]))
        found = {match[1] for match in map(pattern.match, lines) if match}
    chosen = sorted(found - {""})
    return chosen if variable.get("includeAll") or variable.get("multi") else chosen[:1]


def _line(series: dict[str, Any]) -> str:
    """A series as Grafana writes it for the pattern of a variable."""
    labels = ",".join(f'{name}="{value}"' for name, value in series["metric"].items())
    return (
        f"{series['metric'].get('__name__', '')}{{{labels}}} {' '.join(map(str, series['value']))}"
    )
