"""The figures of all sizes as one table, a column for each number of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """In Markdown: a line for each figure; of a list the greatest."""
    names = dict.fromkeys(name for row in rows for name in row if name != "partitions")
    heads = ["figure", *(f"{row['partitions']:,}" for row in rows)]
    lines = [heads, ["---"] * len(heads)]
    lines += [[f"`{name}`", *(_text(row.get(name)) for row in rows)] for name in names]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case list():
            return _text(max(value))
        case _:
            return f"{value:,}"
