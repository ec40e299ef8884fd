"""The dashboard: panels of what nodes serve, in a document that Grafana imports."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.monitoring.dashboard import document
from tests.monitoring.panels import WIDTH, panels
from tests.monitoring.promql import labels_of, problems, selectors

PANELS: list[dict[str, Any]] = document()["panels"]
UNITS = {"short", "none", "bytes", "Bps", "cps", "reqps", "ms", "s", "percentunit"}
"""Names that Grafana has for units."""


@pytest.mark.req("O5")
def test_panels_show_what_nodes_serve() -> None:
    queries = [query for panel in panels() for query in panel.queries]
    assert [found for query in queries for found in problems(query.expression)] == []


def test_a_legend_names_labels_that_its_series_have() -> None:
    for panel in panels():
        for query in panel.queries:
            given = {
                label for one in selectors(query.expression) for label in labels_of(one.name) or ()
            }
            named = {part.partition("}}")[0] for part in query.legend.split("{{")[1:]}
            assert named <= given, query
            assert all(f"{label}" in query.expression.partition(" by ")[2] for label in named)


@pytest.mark.req("O5")
def test_the_classes_of_grafana_know_all_of_the_document() -> None:
    """A key that Grafana does not know would be lost on the way through its own classes."""
    plugins.register_default_plugins()
    known = Dashboard.from_json(document())
    assert contains(json.loads(JSONEncoder().encode(known)), document())


def contains(whole: Any, part: Any) -> bool:
    """Whether a document has all keys and values of another."""
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        pairs = zip(whole, part, strict=True)
        return all(contains(one, other) for one, other in pairs)
    return bool(whole == part)


@pytest.mark.req("O5")
def test_grafana_can_import_the_document() -> None:
    """No two panels share an id or a place; a query has a letter of its own; units are known."""
    numbers = [panel["id"] for panel in PANELS]
    assert sorted(set(numbers)) == sorted(numbers)
    for panel in PANELS:
        if panel["type"] == "row":
            continue
        letters = [target["refId"] for target in panel["targets"]]
        assert sorted(set(letters)) == letters
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["datasource"]["uid"] == "${datasource}"
    variables = [variable["name"] for variable in document()["templating"]["list"]]
    assert variables == ["datasource", "cluster", "instance"]


def test_no_panel_lies_on_another() -> None:
    places = [panel["gridPos"] for panel in PANELS]
    assert all(place["x"] + place["w"] <= WIDTH for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
