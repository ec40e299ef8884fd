"""Every right that Apache Kafka checks is checked alike: the truth table of authorization.

`python -m tests.peers.authorization` runs it by hand, and records what Apache Kafka answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.protocol.versions import SERVED
from tests.bench.kafka.clusters import kafka_jars
from tests.peers.authorization import page
from tests.peers.authorization.cells import cells, users
from tests.peers.authorization.recorded import of_cells, recorded
from tests.peers.authorization.run import Table, differences, lines, tables
from tests.peers.authorization.systems import both
from tests.peers.authorization.table import operations, rows
from tests.peers.tools import CACHE, INSTALL_TIMEOUT_S, KAFKA_VERSION, installing, need

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = [row.key for row in rows()]
PLAY_S = 300

pytestmark = [
    pytest.mark.req("S4"),
    pytest.mark.timeout(INSTALL_TIMEOUT_S + PLAY_S),
    pytest.mark.xdist_group("authorization"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Table, Table]]:
    """The tables of Apache Kafka and of ours."""
    need("java", "mvn")
    with installing():
        jars = kafka_jars(KAFKA_VERSION, CACHE)
    table = cells()
    with both(tmp_path_factory.mktemp("authorization"), jars, users(table)) as systems:
        yield tables(*systems, table)


@pytest.mark.parametrize("key", KEYS)
def test_a_row_is_decided_as_apache_kafka_decides_it(found: tuple[Table, Table], key: str) -> None:
    """In every case; a refusal shows no more."""
    different = (
        (cell, one)
        for cell, one in differences(*found)
        if cell.row.key == key and not cell.row.operations
    )
    assert lines(different) == []


def test_operations_in_answers_are_apache_kafkas(found: tuple[Table, Table]) -> None:
    different = ((cell, one) for cell, one in differences(*found) if cell.row.operations)
    assert lines(different) == []


def test_the_recorded_table_is_apache_kafkas(found: tuple[Table, Table]) -> None:
    kafka, _ = found
    assert of_cells(kafka.verdicts(), kafka.apis) == recorded()


def test_what_we_serve_is_what_we_say(found: tuple[Table, Table]) -> None:
    _, ours = found
    assert sorted(ours.apis) == sorted(SERVED)


def test_every_row_of_apache_kafkas_page_is_asked_or_is_not_served() -> None:
    assert page.unexplained() == []
    assert not set(page.WHY) & set(SERVED)


def test_rows_have_keys_of_their_own() -> None:
    assert len(KEYS) == len(set(KEYS))
    asked = [row.key for row in operations.rows()]
    assert len(asked) == len(set(asked))
