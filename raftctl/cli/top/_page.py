"""A view as lines of text that fit a terminal: sections, columns, and what is left out.

Pure. No line is longer than the terminal is wide, and there are no more lines than it is high.
Where columns do not fit, those of the least use are left out. Where rows do not fit, the title of
the section says how many are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from raftctl.cli.top._view import View

_GAP = 2
_NAME_WIDTH_MIN = 12
_SECTION_ROWS_MIN = 3
"""A title, headings and a row: with fewer lines a section is left out."""
GOOD, BAD, DIM, TITLE = "green", "bold red", "dim", "bold"
SORTS: dict[str, str] = {
    "i": "bytes_in",
    "o": "bytes_out",
    "m": "messages",
    "z": "size",
    "n": "name",
}
"""Key -> the column by which topics are sorted."""
KEYS = (
    ("q, Ctrl-C", "ends it"),
    ("p, space", "stops the picture, and goes on"),
    ("i o m z n", "sorts topics by bytes in, bytes out, messages, size or name"),
    ("r", "turns the order round"),
    ("h, ?", "shows this, and hides it"),
)


@dataclass(frozen=True)
class Settings:
    """What a person has chosen."""

    sort: str = "bytes_in"
    is_reversed: bool = False
    is_paused: bool = False
    shows_help: bool = False

    def pressed(self, key: str) -> Settings:
        """Return the settings after a key; unknown keys change nothing."""
        if key in SORTS:
            return replace(self, sort=SORTS[key], is_reversed=False)
        match key:
            case "r":
                return replace(self, is_reversed=not self.is_reversed)
            case "p" | " ":
                return replace(self, is_paused=not self.is_paused)
            case "h" | "?":
                return replace(self, shows_help=not self.shows_help)
        return self


class _Column(NamedTuple):
    heading: str
    cell: Callable[[Any], str]
    use: int = 1
    """Columns of the least use are left out first; 0 is never left out."""
    is_name: bool = False
    """Set left, and cut if it must be; all else is set right."""


def render(view: View, settings: Settings, width: int, height: int | None) -> list[Text]:
    """Return the page; `height` None: as long as it comes."""
    head = _head(view, settings, width)
    if settings.shows_help:
        return _fit([*head, Text(), *_help()], width, height)
    sections = [_section(*one, width) for one in _tables(view, settings)]
    foot = [] if height is None else [Text("q quits  p pauses  i o m z n sort  h helps", DIM)]
    kept = sections if height is None else _share(sections, height - len(head) - len(foot))
    lines = [*head, *(line for section in kept for line in section)]
    if height is not None:
        lines = lines[: height - len(foot)]
        lines += [Text()] * (height - len(foot) - len(lines)) + foot
    return _fit(lines, width, height)


def _head(view: View, settings: Settings, width: int) -> list[Text]:
    leader = "no leader" if view.leader_id is None else f"leader {view.leader_id}"
    line = Text()
    line.append(leader, BAD if view.leader_id is None else GOOD)
    line.append(f"  epoch {whole(view.epoch)}  offset {whole(view.high_watermark)}")
    line.append(f"  in {size(view.bytes_in)}/s  out {size(view.bytes_out)}/s")
    if settings.is_paused:
        line.append("  paused", TITLE)
    health = Text(f"topics {whole(view.topics)}  partitions {whole(view.partitions)}  ")
    for number, what in ((view.offline, "offline"), (view.under_replicated, "under-replicated")):
        health.append(f"{what} {whole(number)}", BAD if number else "")
        health.append("  ")
    silent = [Text(_clean(one), BAD) for one in view.silent]
    return [line, health, *(_cut(one, width) for one in silent)]


def _tables(
    view: View, settings: Settings
) -> list[tuple[str, Sequence[_Column], Sequence[Any], str]]:
    column, is_name = settings.sort, settings.sort == "name"
    # Numbers begin with the largest, names with A.
    topics = sorted(
        view.traffic,
        key=lambda row: getattr(row, column) or 0,
        reverse=settings.is_reversed == is_name,
    )
    groups = sorted(view.groups, key=lambda row: (-row.lag, row.name))
    by = settings.sort.replace("_", " ")
    tables: list[tuple[str, Sequence[_Column], Sequence[Any], str]] = [
        ("QUORUM", _QUORUM, view.quorum, "no controller is known"),
        ("BROKERS", _BROKERS, view.brokers, "no broker is known"),
    ]
    if view.trouble:
        tables.append(("PARTITIONS IN TROUBLE", _TROUBLE, view.trouble, ""))
    tables.append((f"TOPICS by {by}", _TOPICS, topics, "no broker serves metrics of topics"))
    tables.append(("GROUPS by lag", _GROUPS, groups, "no group with committed offsets is known"))
    return tables


def _section(
    title: str, columns: Sequence[_Column], rows: Sequence[Any], empty: str, width: int
) -> list[Text]:
    """The title, the headings, a line for each row."""
    if not rows:
        return [Text(title, TITLE), Text(empty, DIM)]
    cells = [[column.cell(row) for column in columns] for row in rows]
    shown = list(range(len(columns)))
    widths = [max(len(columns[at].heading), *(len(line[at]) for line in cells)) for at in shown]
    while len(shown) > 1 and _least(columns, widths, shown) > width:
        spare = [at for at in shown if columns[at].use]
        if not spare:
            break
        # Of those of equal use the last.
        shown.remove(min(reversed(spare), key=lambda at: columns[at].use))
    names = [at for at in shown if columns[at].is_name]
    over = sum(widths[at] for at in shown) + _GAP * (len(shown) - 1) - width
    if names and over > 0:
        longest = max(names, key=lambda at: widths[at])
        widths[longest] = max(_NAME_WIDTH_MIN, widths[longest] - over)
    lines = [Text(title, TITLE)]
    headings = [column.heading for column in columns]
    for number, line in enumerate([headings, *cells]):
        parts = [_set(line[at], widths[at], is_left=columns[at].is_name) for at in shown]
        text = Text((" " * _GAP).join(parts).rstrip())
        if not number:
            text.stylize(DIM)
        elif set(line) & _BAD_STATES:
            text.stylize(BAD)
        lines.append(text)
    return lines


_BAD_STATES = {"silent", "fenced", "unknown"}


def _least(columns: Sequence[_Column], widths: Sequence[int], shown: Sequence[int]) -> int:
    """The width of these columns with names cut as far as they may be."""
    each = [min(widths[at], _NAME_WIDTH_MIN) if columns[at].is_name else widths[at] for at in shown]
    return sum(each) + _GAP * (len(shown) - 1)


def _share(sections: Sequence[list[Text]], height: int) -> list[list[Text]]:
    """Cut the sections so that all lines fit. Each keeps some, the long ones give."""
    room = list(map(len, sections))
    while room and sum(room) > height:
        longest = max(range(len(room)), key=lambda at: room[at])
        if room[longest] <= _SECTION_ROWS_MIN:
            # Not even the least of each fits: the last sections go.
            del room[-1]
            continue
        room[longest] -= 1
    return [_cut_rows(lines, count) for lines, count in zip(sections, room, strict=False)]


def _cut_rows(lines: list[Text], count: int) -> list[Text]:
    if len(lines) <= count:
        return lines
    title = lines[0].copy()
    title.append(f"  {count - 2} of {len(lines) - 2}", DIM)
    return [title, *lines[1:count]]


def _help() -> list[Text]:
    return [Text(f"{keys:<12}{what}") for keys, what in KEYS]


def _fit(lines: Sequence[Text], width: int, height: int | None) -> list[Text]:
    return [_cut(line, width) for line in (lines if height is None else lines[:height])]


def _cut(line: Text, width: int) -> Text:
    if line.cell_len > width:
        line = line.copy()
        line.truncate(width, overflow="ellipsis")
    return line


def _set(cell: str, width: int, *, is_left: bool) -> str:
    if len(cell) > width:
        cell = f"{cell[: width - 1]}…"
    return cell.ljust(width) if is_left else cell.rjust(width)


def _clean(name: str) -> str:
    """A name as a terminal may be sent it: groups and nodes are called as their users like."""
    return "".join(one if one.isprintable() else "·" for one in name)


def whole(value: float | None) -> str:
    """Return a number without fraction; a dash if it is not known."""
    return "-" if value is None else f"{value:.0f}"


def size(value: float | None) -> str:
    """Return bytes in the largest unit that leaves a digit: 0, 999, 1.2K, 15M."""
    if value is None:
        return "-"
    for unit in ("", "K", "M", "G", "T"):
        if value < 1_000 or unit == "T":
            break
        value /= 1_000
    return f"{value:.1f}{unit}" if unit and value < 10 else f"{value:.0f}{unit}"


def _tenth(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


_QUORUM = (
    _Column("NODE", lambda row: str(row.node_id), 0),
    _Column("ROLE", lambda row: row.role, 0, is_name=True),
    _Column("EPOCH", lambda row: whole(row.epoch), 3),
    _Column("LOG-END", lambda row: whole(row.log_end), 2),
    _Column("LAG", lambda row: whole(row.lag), 4),
    _Column("FETCHED-MS-AGO", lambda row: whole(row.fetched_ms_ago), 1),
)
_BROKERS = (
    _Column("NODE", lambda row: str(row.broker_id), 0),
    _Column("STATE", lambda row: row.state, 0, is_name=True),
    _Column("LEADERS", lambda row: whole(row.leaders), 7),
    _Column("REPLICAS", lambda row: whole(row.replicas), 6),
    _Column("IN/s", lambda row: size(row.bytes_in), 9),
    _Column("OUT/s", lambda row: size(row.bytes_out), 9),
    _Column("REQ/s", lambda row: size(row.requests), 8),
    _Column("CONN", lambda row: whole(row.connections), 5),
    _Column("LOG", lambda row: size(row.log_size), 4),
    _Column("LOOP-MS", lambda row: _tenth(row.loop_lag_ms), 3),
    _Column("MEM", lambda row: size(row.memory), 2),
    _Column("META-LAG", lambda row: whole(row.metadata_lag), 1),
)
_TROUBLE = (
    _Column("TOPIC", lambda row: _clean(row.topic), 0, is_name=True),
    _Column("PARTITION", lambda row: str(row.partition), 0),
    _Column("WHAT", lambda row: row.what, 0, is_name=True),
)
_TOPICS = (
    _Column("TOPIC", lambda row: _clean(row.name), 0, is_name=True),
    _Column("IN/s", lambda row: size(row.bytes_in), 4),
    _Column("OUT/s", lambda row: size(row.bytes_out), 3),
    _Column("MSG/s", lambda row: size(row.messages), 2),
    _Column("LOG", lambda row: size(row.size), 1),
)
_GROUPS = (
    _Column("GROUP", lambda row: _clean(row.name), 0, is_name=True),
    _Column("LAG", lambda row: whole(row.lag), 0),
    _Column("MEMBERS", lambda row: whole(row.members), 2),
    _Column("TOPICS", lambda row: str(row.topics), 1),
)
