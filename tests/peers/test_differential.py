"""The same raw requests to Apache Kafka and to us have the same answers, or the list says why not.

What the list does not cover fails, and so does what it says and is not so: the table is run by hand
with `python -m tests.peers.differential`, which also counts the list anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.protocol.versions import ApiKey
from raftctl.errors import ErrorCode
from tests.bench.kafka.clusters import kafka_jars
from tests.peers.differential.answers import Symbols, normal
from tests.peers.differential.listed import listed, unexpected
from tests.peers.differential.run import compared
from tests.peers.differential.systems import both
from tests.peers.differential.table import scripts
from tests.peers.tools import CACHE, INSTALL_TIMEOUT_S, KAFKA_VERSION, installing, need

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.req("N1")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 300)
@pytest.mark.xdist_group("differential")
def test_answers_are_apache_kafkas(tmp_path: Path) -> None:
    need("java", "mvn")
    with installing():
        jars = kafka_jars(KAFKA_VERSION, CACHE)
    table = scripts()
    with both(tmp_path, jars) as (kafka, ours):
        found, asked = compared(kafka, ours, table)
    assert asked == sum(len(list(script.requests())) for script in table)
    assert unexpected(found, listed()) == []


@pytest.mark.req("N1")
def test_an_error_that_an_old_version_does_not_know_is_the_one_it_is_told_else() -> None:
    """Apache Kafka tells either, as another request at the same moment has it."""
    newer = {"error_code": ErrorCode.TRANSACTION_ABORTABLE, "error_message": None}
    older = {"error_code": ErrorCode.INVALID_TXN_STATE, "error_message": "Partition was not added"}

    def compared_in(version: int) -> list[dict[str, object]]:
        symbols = Symbols(prefix="d")
        return [normal(ApiKey.PRODUCE, version, one, {}, symbols) for one in (newer, older)]

    first, second = compared_in(9)
    assert first == second == {"error_code": "INVALID_TXN_STATE", "error_message": "<text>"}
    first, second = compared_in(11)
    assert first["error_code"] == "TRANSACTION_ABORTABLE" != second["error_code"]
