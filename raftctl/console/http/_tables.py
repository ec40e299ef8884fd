"""Tables by window: the rows that a page shows, of as many as there are."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from raftctl.http_json import BadFieldError
from raftctl.integers import INT_MAX
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from raftctl.http_json import Fields

    Row = Mapping[str, Any]

T = TypeVar("T")

LIMIT_MAX = 500
LIMIT = 100
_RUN = 1_000
"""Items that are looked at, or sorted, before other work has its turn."""


class Window(NamedTuple):
    """Which rows of a table, in which order."""

    offset: int = 0
    limit: int = LIMIT
    sort: str | None = None
    """A column; None leaves the table's own order."""
    falling: bool = False
    filter: str = ""
    """A part of the name, in lower case."""

    @classmethod
    def of(cls, fields: Fields, columns: Iterable[str]) -> Window:
        """Take the window from a request's fields. BadFieldError with the columns there are."""
        sort = fields.text_or_none("sort")
        column = None if sort is None else sort.removeprefix("-")
        known = list(columns)
        if column is not None and column not in known:
            raise BadFieldError("sort", f"must be one of {', '.join(known)}, or - and one of them")
        return cls(
            fields.number("offset", 0, 0, INT_MAX),
            fields.number("limit", LIMIT, 1, LIMIT_MAX),
            column,
            sort is not None and sort.startswith("-"),
            fields.text("filter", "").lower(),
        )


class Table(Generic[T]):
    """How items become rows: a name, which the filter looks at, and columns to sort by.

    Items may be anything small, such as ids. Rows are made for the window only.
    """

    def __init__(
        self,
        row: Callable[[T], Row],
        columns: Mapping[str, Callable[[T], Any]],
        *,
        name: Callable[[T], str],
    ) -> None:
        """`columns` has the value of each column by which the table can be sorted.

        An item without a value, None, stands at the end of either order.
        """
        self._row = row
        self._columns = columns
        self._name = name

    async def answer(
        self, items: Sequence[T], fields: Fields, metadata_offset: int
    ) -> dict[str, Any]:
        """Return the document for a request with these fields."""
        found, window = await self.select(items, fields)
        shown = found[window.offset : window.offset + window.limit]
        return document(list(map(self._row, shown)), len(found), window, metadata_offset)

    async def select(self, items: Sequence[T], fields: Fields) -> tuple[Sequence[T], Window]:
        """Return what passes the filter, in order, and the window. BadFieldError as `Window.of`."""
        window = Window.of(fields, self._columns)
        fields.end()
        found = items
        if window.filter:
            name, part = self._name, window.filter
            found = await _in_slices(
                found, lambda some: [one for one in some if part in name(one).lower()]
            )
        if window.sort is not None:
            found = await _sorted(found, self._columns[window.sort], falling=window.falling)
        return found, window


def document(
    rows: Sequence[Row], total: int, window: Window, metadata_offset: int
) -> dict[str, Any]:
    """Return the document of a table whose rows have been cut to the window."""
    return {
        "total": total,
        "offset": window.offset,
        "rows": rows,
        "metadata_offset": metadata_offset,
    }


async def _sorted(items: Sequence[T], value: Callable[[T], Any], *, falling: bool) -> Sequence[T]:
    """Sort runs of the items, a run at a time, then all at once, which only merges the runs."""

    def run(some: Iterable[T]) -> list[tuple[Any, T]]:
        pairs = [(value(one), one) for one in some]
        there = [pair for pair in pairs if pair[0] is not None]
        there.sort(key=_first, reverse=falling)
        return there + [pair for pair in pairs if pair[0] is None]

    runs = await _in_slices(items, run)
    there = [pair for pair in runs if pair[0] is not None]
    there.sort(key=_first, reverse=falling)
    return [one for _, one in there] + [one for found, one in runs if found is None]


def _first(pair: tuple[Any, object]) -> Any:
    return pair[0]


async def _in_slices(items: Iterable[T], step: Callable[[list[T]], list[Any]]) -> list[Any]:
    slices, rest, found = Slices(), iter(items), []
    while some := list(islice(rest, _RUN)):
        found += step(some)
        await slices.rest()
    return found
