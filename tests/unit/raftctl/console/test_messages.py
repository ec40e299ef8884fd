"""Records by page: where a page begins, what is left out, and how large it may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from raftctl.console.brokers._messages import (
    FETCHES_MAX,
    PAYLOAD_BYTES_MAX,
    SHOWN_BYTES_MAX,
    payload,
)
from raftctl.errors import ErrorCode
from raftctl.plugins import Payload, ReadBatch, ReadRecord
from tests.kit.authorizing import RuledAuthorizer
from tests.unit.raftctl.console.fake_brokers import FakeBrokers, Question
from tests.unit.raftctl.console.served import broker, partition, serving, topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.unit.raftctl.console.served import Served

pytestmark = [pytest.mark.req("W1"), pytest.mark.req("W3")]
END = 100
OFFSETS = {-1: END, -2: 10}


def some_topics(served: Served) -> None:
    served.commit(
        *broker(1), *topic("t", partition(1, replicas=(1,)), partition(1, 1, (1,), isr=()))
    )


def offsets(asked: Question) -> Mapping[str, Any]:
    [named] = asked.body["topics"][0]["partitions"]
    one = {"partition_index": 0, "offset": OFFSETS.get(named["timestamp"], 42), "error_code": 0}
    return {"topics": [{"name": "t", "partitions": [one]}]}


def fetched(error: int = 0, aborted: Any = None) -> Mapping[str, Any]:
    one = {
        "error_code": error,
        "high_watermark": END,
        "last_stable_offset": END,
        "log_start_offset": 10,
        "records": b"records",
        "aborted_transactions": aborted,
    }
    return {"error_code": 0, "responses": [{"partitions": [one]}]}


def batch(first: int, *values: bytes, **fields: Any) -> ReadBatch:
    records = tuple(
        ReadRecord(first + n, 1_000, None, Payload(value, len(value)), ())
        for n, value in enumerate(values)
    )
    found = ReadBatch(
        first,
        first + max(len(values), 1) - 1,
        100,
        -1,
        -1,
        -1,
        "zstd",
        False,
        None,
        records,
        False,
        None,
    )
    return found._replace(**fields)


def some_records(*batches: ReadBatch, aborted: Any = None) -> FakeBrokers:
    fake = FakeBrokers({"LIST_OFFSETS": offsets, "FETCH": fetched(aborted=aborted)})
    fake.batches = list(batches)
    return fake


@pytest.mark.parametrize(
    ("start", "offset"),
    [("earliest", 10), ("latest", 98), ("17", 17), ("@123", 42), (str(2**63 - 1), 2**63 - 1)],
)
async def test_a_page_begins_where_it_is_asked_to(start: str, offset: int) -> None:
    fake = some_records()
    async with serving(client=fake) as served:
        some_topics(served)
        answer = await served.get("messages", topic="t", partition=0, limit=2, **{"from": start})
        [asked] = fake.questions("FETCH")
        assert asked.broker_id == 1
        assert asked.body["topics"][0]["partitions"][0]["fetch_offset"] == offset
        assert answer["next_offset"] == offset
        assert answer["high_watermark"] == END


async def test_records_with_their_batch() -> None:
    fake = some_records(
        batch(10, b"text", b"\xff"), batch(20, b"c", producer_id=7, producer_epoch=1)
    )
    async with serving(client=fake) as served:
        some_topics(served)
        answer = await served.get("messages", topic="t", partition=0, **{"from": "earliest"})
        first, second, third = answer["rows"]
        assert first["value"] == {"text": "text", "size": 4, "cut": False}
        assert second["value"] == {"base64": "/w==", "size": 1, "cut": False}
        assert third["batch"]["producer_id"] == 7
        assert (first["batch"]["codec"], first["batch"]["producer_id"]) == ("zstd", None)
        assert answer["next_offset"] == 21


async def test_a_page_ends_with_its_limit_and_the_next_begins_there() -> None:
    fake = some_records(batch(10, b"a", b"b", b"c"), batch(13, b"d"))
    async with serving(client=fake) as served:
        some_topics(served)
        answer = await served.get("messages", topic="t", partition=0, limit=3, **{"from": "10"})
        assert [row["offset"] for row in answer["rows"]] == [10, 11, 12]
        assert answer["next_offset"] == 13


async def test_no_page_is_larger_than_it_may_be() -> None:
    large = [batch(n, b"x" * PAYLOAD_BYTES_MAX) for n in range(10, 90)]
    fake = some_records(*large)
    async with serving(client=fake) as served:
        some_topics(served)
        answer = await served.get("messages", topic="t", partition=0, limit=500, **{"from": "10"})
        assert len(answer["rows"]) == SHOWN_BYTES_MAX // PAYLOAD_BYTES_MAX
        assert answer["next_offset"] == 10 + len(answer["rows"])
        assert fake.reads[0][2:] == (500, PAYLOAD_BYTES_MAX)


async def test_a_batch_that_cannot_be_shown_is_a_row_and_the_page_goes_on() -> None:
    bomb = batch(10, problem="more than 8 bytes")._replace(records=(), last_offset=14)
    fake = some_records(bomb, batch(15, b"after"))
    async with serving(client=fake) as served:
        some_topics(served)
        answer = await served.get("messages", topic="t", partition=0, **{"from": "12"})
        first, second = answer["rows"]
        assert (first["offset"], first["value"]) == (12, None)
        assert first["problem"] == "more than 8 bytes"
        assert second["offset"] == 15


class OneAtATime(FakeBrokers):
    """Each fetch brings one batch."""

    async def read(self, *asked: Any) -> list[ReadBatch]:
        return [*await super().read(*asked)][:1]


async def test_a_log_with_nothing_to_show_does_not_keep_a_request_for_ever() -> None:
    batches = [batch(n)._replace(records=()) for n in range(10, 90)]
    fake = OneAtATime({"LIST_OFFSETS": offsets, "FETCH": fetched()})
    fake.batches = batches
    async with serving(client=fake) as served:
        some_topics(served)
        answer = await served.get("messages", topic="t", partition=0, **{"from": "10"})
        assert (answer["rows"], answer["next_offset"]) == ([], 10 + FETCHES_MAX)
        assert len(fake.questions("FETCH")) == FETCHES_MAX


async def test_what_was_aborted_is_left_out_for_readers_of_committed_records() -> None:
    of = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    batches = [
        batch(10, b"aborted", **of),
        batch(11, b"of another", producer_id=8, is_transactional=True),
        batch(12, marker="abort", **of)._replace(records=()),
        batch(13, b"committed", **of),
        batch(14, marker="commit", **of)._replace(records=()),
    ]
    fake = some_records(*batches, aborted=[{"producer_id": 7, "first_offset": 10}])
    async with serving(client=fake) as served:
        some_topics(served)
        query: dict[str, Any] = {"topic": "t", "partition": 0, "from": "10"}
        answer = await served.get("messages", **query, isolation="read_committed")
        texts = [row["value"]["text"] for row in answer["rows"]]
        assert texts == ["of another", "committed"]
        assert fake.questions("FETCH")[0].body["isolation_level"] == 1
        fake.answers["FETCH"] = fetched()
        answer = await served.get("messages", **query, control="shown")
        assert [row.get("control") for row in answer["rows"]] == [
            None,
            None,
            "abort",
            None,
            "commit",
        ]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"from": "soon"}, "from"),
        ({"from": "-1"}, "from"),
        ({"from": "@"}, "from"),
        ({"from": "9" * 30}, "from"),
        ({"from": "\u0661"}, "from"),
        ({"limit": 0}, "limit"),
        ({"limit": 501}, "limit"),
        ({"isolation": "none"}, "isolation"),
        ({"partition": -1}, "partition"),
        ({"surprise": 1}, "surprise"),
    ],
)
async def test_a_bad_question_names_its_field(query: dict[str, Any], field: str) -> None:
    async with serving(client=some_records()) as served:
        some_topics(served)
        asked = {"topic": "t", "partition": 0, **query}
        answer = await served.ask("/console/api/messages", params=asked)
        assert (answer.status, answer.document["field"]) == (400, field)


async def test_who_may_not_read_learns_nothing() -> None:
    rules = RuledAuthorizer("ALLOW User:alice DESCRIBE TOPIC t")
    async with serving(rules.authorizer, client=some_records()) as served:
        some_topics(served)
        for name in ("t", "no-such-topic"):
            refused = await served.refused("messages", who="User:alice", topic=name, partition=0)
            assert refused == (403, "TOPIC_AUTHORIZATION_FAILED")


async def test_partitions_that_cannot_be_read() -> None:
    fake = some_records()
    async with serving(client=fake) as served:
        some_topics(served)
        for number, refusal in [
            (7, (404, "UNKNOWN_TOPIC_OR_PARTITION")),
            (1, (503, "BROKER_NOT_AVAILABLE")),
        ]:
            assert await served.refused("messages", topic="t", partition=number) == refusal
        fake.answers["FETCH"] = fetched(ErrorCode.OFFSET_OUT_OF_RANGE)
        answer = await served.ask("/console/api/messages", params={"topic": "t", "partition": 0})
        assert answer.document["field"] == "from"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", {"text": ""}),
        ("\u202e<b>\U0001f600".encode(), {"text": "\u202e<b>\U0001f600"}),
        ("ab\U0001f600".encode()[:-1], {"base64": "YWLwn5g="}),
        (b"a\tb\n", {"text": "a\tb\n"}),
        (b"a\x00b", {"base64": "YQBi"}),
        (b"a\x1b[31m", {"base64": "YRtbMzFt"}),
    ],
)
def test_text_is_shown_as_text(data: bytes, shown: dict[str, str]) -> None:
    found = payload(Payload(data, len(data)))
    assert found == {**shown, "size": len(data), "cut": False}


def test_a_character_that_a_cut_has_split_is_left_out() -> None:
    data = "ab\U0001f600".encode()
    for kept in (3, 4, 5):
        assert payload(Payload(data[:kept], 6)) == {"text": "ab", "size": 6, "cut": True}
    assert payload(None) is None
