"""Edits of what protects a controller's HTTP (rows S6 and S7)."""

from __future__ import annotations

from tests.mutants.edit import Edit

_PAGES = "unit/raftctl/node/test_foreign_pages.py"

EDITS = (
    Edit(
        "name_of_another_site_is_served",
        "node._http_access:no_foreign_pages",
        "_normal(_without_port(host)) not in hosts",
        "not host",
        f"{_PAGES}::test_a_name_that_was_made_to_resolve_to_a_node_is_refused"
        "[evil.example.org:9093]",
    ),
    Edit(
        "page_of_another_site_is_served",
        "node._http_access:no_foreign_pages",
        '"Origin" in request.headers',
        "False",
        f"{_PAGES}::test_a_request_of_a_page_is_refused_whatever_it_asks_for[/page]",
    ),
)
