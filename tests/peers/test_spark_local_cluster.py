"""Spark with two executors, each a process: judges histories, and reads topics of real brokers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from jepsen.cli.main import run
from jepsen.errors import InputError
from tests.integration.clusters import wait_until
from tests.integration.kafka_clients import CLIENTS, Record
from tests.kit.spark.equality import write_table
from tests.kit.spark.sessions import quick_session
from tests.peers.tools import need
from tests.unit.jepsen.histories import history

pyspark = pytest.importorskip("pyspark", reason="needs raftctl[spark]")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.req("J7"), pytest.mark.timeout(600)]

TIME_MS = 1_700_000_000_123
SENT_AT = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=TIME_MS)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spark as it was installed, in a folder where executors may write."""
    made = tmp_path_factory.mktemp("spark")
    for part in Path(pyspark.__file__).parent.iterdir():
        (made / part.name).symlink_to(part)
    return made


@pytest.fixture(scope="module")
def session(home: Path) -> Iterator[Any]:
    """Two workers of one core and 1 GiB, and their executors."""
    from jepsen.spark.topics.source import TopicSource

    need("java")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home))
        with quick_session("local-cluster[2,1,1024]") as spark:
            spark.dataSource.register(TopicSource)
            yield spark


def test_two_executors_judge(
    session: Any, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def executors() -> set[str]:
        return {path.name for path in home.glob("work/app-*/*")}

    wait_until(lambda: executors() == {"0", "1"}, lambda: f"two executors: {executors()}", 300)
    table = tmp_path / "history.parquet"
    asked = [(0, "invoke", "add", 1), (0, "ok", "add", 1), (1, "invoke", "read", None)]
    reads = {f"sees {seen}": [*asked, (1, "ok", "read", seen)] for seen in ([1], [])}
    write_table({name: history(*lines) for name, lines in reads.items()}, table)
    assert run(["spark", "check", str(table), "--checker", "set"]) == 1
    said = [f"{table}:sees [1] valid", f"{table}:sees [] invalid", "all invalid"]
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(said)


def _send(bootstrap: str, topic: str, values: range, partition: int = 0, **more: Any) -> None:
    records = [
        Record(b"%d" % value, timestamp_ms=TIME_MS, partition=partition, **more) for value in values
    ]
    CLIENTS[0].write(bootstrap, topic, records)


def _values(rows: Any) -> list[tuple[int, int, int]]:
    return sorted((row["partition"], row["offset"], int(row["value"])) for row in rows)


def test_a_topic_is_a_table(
    session: Any, bootstrap: str, new_topic: Callable[[str, int], str]
) -> None:
    topic = new_topic("spark-table", 3)
    _send(bootstrap, topic, range(4), key=b"k", headers=(("h", b"1"), ("h", b"2")))
    _send(bootstrap, topic, range(4, 7), 1)

    def table(**more: str) -> Any:
        reader = session.read.format("raftctl-topic").options(**more)
        return reader.option("kafka.bootstrap.servers", bootstrap).load()

    rows = table(subscribe=topic).collect()
    assert _values(rows) == [*((0, n, n) for n in range(4)), *((1, n, n + 4) for n in range(3))]
    (first,) = table(subscribe=topic).where("value = '0'").collect()
    headers = [("h", b"1"), ("h", b"2")]
    assert (first["topic"], first["key"], [tuple(one) for one in first["headers"]]) == (
        topic,
        b"k",
        headers,
    )
    assert first["timestamp"].astimezone(UTC) == SENT_AT
    begin, end = {topic: {"0": 3, "1": 0}}, {topic: {"1": 2, "2": -1}}
    part = table(subscribe=topic, startingOffsets=json.dumps(begin), endingOffsets=json.dumps(end))
    assert _values(part.collect()) == [(0, 3, 3), (1, 0, 4), (1, 1, 5)]
    assert table(subscribe=topic, startingOffsets="latest").count() == 0
    with pytest.raises(Exception, match="the topic absent, which the cluster does not have"):
        table(subscribe="absent").count()


def test_a_stream_goes_on_from_its_checkpoint(
    session: Any, bootstrap: str, new_topic: Callable[[str, int], str], tmp_path: Path
) -> None:
    topic = new_topic("spark-stream", 2)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "8",
    }
    batches: list[Any] = []

    def judge(batch: Any, _: int) -> None:
        batches.append(_values(batch.collect()))

    def read_all() -> None:
        stream = session.readStream.format("raftctl-topic").options(**options).load()
        writer = stream.writeStream.foreachBatch(judge).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()

    _send(bootstrap, topic, range(9))
    _send(bootstrap, topic, range(3), 1)
    read_all()
    assert batches == [
        [*((0, n, n) for n in range(5)), *((1, n, n) for n in range(3))],
        [(0, n, n) for n in range(5, 9)],
    ]
    _send(bootstrap, topic, range(9, 11))
    read_all()
    assert batches[2:] == [[(0, 9, 9), (0, 10, 10)]]


def _read(bootstrap: str, topic: str, **more: str) -> list[int]:
    """The values of a table, read by this process."""
    from jepsen.spark.topics.source import TopicSource

    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **more}
    reader = TopicSource(options).reader(None)
    batches = [batch for piece in reader.partitions() for batch in reader.read(piece)]
    return [int(value) for batch in batches for value in batch.column("value").to_pylist()]


def test_aborted_records_are_seen_or_not(bootstrap: str, new_topic: Callable[[str], str]) -> None:
    topic = new_topic("spark-aborted")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "spark"})
    producer.init_transactions()
    for value, end in ((1, producer.abort_transaction), (2, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % value)
        assert producer.flush(60) == 0
        end()
    assert _read(bootstrap, topic) == [1, 2]
    assert _read(bootstrap, topic, **{"kafka.isolation.level": "read_committed"}) == [2]


def test_what_cannot_be_read_is_told(bootstrap: str, new_topic: Callable[[str], str]) -> None:
    from jepsen.spark.topics.source import Piece, TopicOptions, TopicSource, read_piece

    topic = new_topic("spark-lost")
    _send(bootstrap, topic, range(5))
    servers = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 3)]).values()
    deleted.result(60)
    assert _read(bootstrap, topic) == [3, 4]
    from_one = {"startingOffsets": json.dumps({topic: {"0": 1}})}
    with pytest.raises(InputError, match=f"{topic}/0 from 1 to 5: these records are gone"):
        _read(bootstrap, topic, **from_one)
    assert _read(bootstrap, topic, **from_one, failOnDataLoss="false") == [3, 4]
    with pytest.raises(InputError, match="is beyond the end of the log, 5"):
        _read(bootstrap, topic, endingOffsets=json.dumps({topic: {"0": 6}}))
    with pytest.raises(InputError, match=r'kafka\.\*: No such configuration property: "bogus"'):
        _read(bootstrap, topic, **{"kafka.bogus": "1"})
    hasty = TopicOptions.of({**servers, "kafkaConsumer.pollTimeoutMs": "1"})
    with pytest.raises(InputError, match="no record after"):
        list(read_piece(hasty, Piece(topic, 0, 3, 9)))
    stream = TopicSource(servers).streamReader(None)
    with pytest.raises(InputError, match=f"{topic}/0 ends at 5 but was read up to 7"):
        stream.latestOffset({topic: {"0": 7}}, stream.getDefaultReadLimit())
