"""Fills the cells of both systems, and finds where they differ."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.protocol.versions import ApiKey
from tests.peers.authorization.cases import SUPER
from tests.peers.authorization.cells import Cell
from tests.peers.authorization.playing import Client, Found, played
from tests.peers.differential.answers import TEXTS
from tests.peers.differential.comparing import differences as differing_fields

if TYPE_CHECKING:
    from tests.peers.differential.playing import System

SHOWN = 200
"""Characters of a value in a line."""


@dataclass(frozen=True, slots=True)
class Table:
    """One system's."""

    apis: Sequence[int]
    """That it offers to clients."""
    cells: Mapping[Cell, Found]

    def verdicts(self) -> dict[Cell, str]:
        """Without what answers show besides."""
        return {cell: found.verdict for cell, found in self.cells.items()}


def tables(kafka: System, ours: System, cells: Sequence[Cell]) -> tuple[Table, Table]:
    """Both tables; the systems are asked at once."""

    async def of(system: System) -> Table:
        async with Client(system, SUPER) as client:
            answer = await client.ask(ApiKey.API_VERSIONS, 3, SOFTWARE)
        apis = [one["api_key"] for one in answer["api_keys"]]
        return Table(apis, await played(system, cells))

    async def both() -> tuple[Table, Table]:
        first, second = await asyncio.gather(of(kafka), of(ours))
        return first, second

    return asyncio.run(both())


SOFTWARE = {"client_software_name": "peer", "client_software_version": "1"}


def differences(kafka: Table, ours: Table) -> Iterator[tuple[Cell, str]]:
    """Each cell that is not alike: its verdicts, or each field of a refusal."""
    for cell, theirs in kafka.cells.items():
        mine = ours.cells[cell]
        if mine.verdict != theirs.verdict:
            yield cell, f"kafka={theirs.verdict} ours={mine.verdict}"
        else:
            for one in differing_fields({"": theirs.answer}, {"": mine.answer}):
                if one.field.rpartition(".")[2] in TEXTS:
                    # Our texts are our own, as tests/peers/differential/differences.toml says.
                    continue
                yield cell, f"{one.field}: kafka={one.kafka!r:.{SHOWN}} ours={one.ours!r:.{SHOWN}}"


def lines(found: Iterator[tuple[Cell, str]]) -> list[str]:
    """A line for all cases of a row that differ alike."""
    cases: dict[tuple[str, str], list[str]] = {}
    for cell, difference in found:
        cases.setdefault((cell.row.key, difference), []).append(cell.case.name)
    return [f"{key} [{'; '.join(some)}]: {one}" for (key, one), some in cases.items()]
