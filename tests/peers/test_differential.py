"""The same raw requests to Apache Kafka and to us have the same answers, or the list says why not.

What the list does not cover fails, and so does what it says and is not so: the table is run by hand
with `python -m tests.peers.differential`, which also counts the list anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench.kafka.clusters import kafka_jars
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
