"""The table as Apache Kafka fills it: `found.toml`, written by `python -m` this package.

A row's cells are a letter each, in the order of the columns; then what it was refused with.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.peers.authorization.cases import CASES
from tests.peers.authorization.verdicts import ALLOWED, LEFT_OUT, is_refusal

if TYPE_CHECKING:
    from tests.peers.authorization.cells import Cell

FILE = Path(__file__).with_name("found.toml")
COLUMNS = tuple(dict.fromkeys(case.name for case in CASES))
SIGNS = {ALLOWED: "+", LEFT_OUT: "o"}
REFUSED, NO_CELL = "-", " "
HEAD = """# Written by `python -m tests.peers.authorization --write`: what Apache Kafka answers.
"""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The table."""

    apis: Sequence[int]
    """That its brokers offer to clients."""
    signs: Mapping[str, str]
    """By keys of rows."""
    refusals: Mapping[str, str]
    """By keys of rows; empty if no cell was refused with an error."""
    operations: Mapping[str, Mapping[str, str]]
    """Of requests for operations: case to answer, by keys of rows."""


def recorded() -> Recorded:
    """What the file has."""
    document = tomllib.loads(FILE.read_text(encoding="utf-8"))
    cells = document["cells"]
    width = len(COLUMNS)
    return Recorded(
        document["apis"],
        {key: line[:width] for key, line in cells.items()},
        {key: line[width:].strip() for key, line in cells.items()},
        document["operations"],
    )


def of_cells(verdicts: Mapping[Cell, str], apis: Iterable[int]) -> Recorded:
    """What a run has found."""
    signs: dict[str, list[str]] = {}
    refusals: dict[str, set[str]] = {}
    operations: dict[str, dict[str, str]] = {}
    for cell, one in verdicts.items():
        key = cell.row.key
        if cell.row.operations:
            operations.setdefault(key, {})[cell.case.name] = one
            continue
        line = signs.setdefault(key, [NO_CELL] * len(COLUMNS))
        line[COLUMNS.index(cell.case.name)] = SIGNS.get(one, REFUSED)
        refusals.setdefault(key, set()).update([one] if is_refusal(one) else [])
    return Recorded(
        sorted(apis),
        {key: "".join(line) for key, line in signs.items()},
        {key: " or ".join(sorted(some)) for key, some in refusals.items()},
        operations,
    )


def updated(before: Recorded, found: Recorded, keys: Iterable[str]) -> Recorded:
    """What was recorded, with what a run has found in its place; rows in the order of the keys."""
    signs = {**before.signs, **found.signs}
    refusals = {**before.refusals, **found.refusals}
    operations = {**before.operations, **found.operations}
    order = list(dict.fromkeys(keys))
    return Recorded(
        found.apis,
        {key: signs[key] for key in order if key in signs},
        {key: refusals[key] for key in order if key in refusals},
        operations,
    )


def write(table: Recorded) -> None:
    """Writes the file."""
    lines = [HEAD + f"apis = {list(table.apis)}", "", "[cells]"]
    for key, signs in table.signs.items():
        line = f"{signs}  {table.refusals[key]}".rstrip(" ").ljust(len(COLUMNS))
        lines.append(f"{json.dumps(key)} = {json.dumps(line)}")
    for key, answers in table.operations.items():
        lines += ["", f"[operations.{json.dumps(key)}]"]
        lines += [f"{json.dumps(case)} = {json.dumps(one)}" for case, one in answers.items()]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
