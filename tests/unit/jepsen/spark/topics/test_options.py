"""What `format("raftctl-topic")` is asked, and which offsets follow, without Spark or a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from jepsen.errors import InputError

source = pytest.importorskip("jepsen.spark.topics.source", reason="needs raftctl[spark]")

pytestmark = pytest.mark.req("J7")

SERVERS = {"kafka.bootstrap.servers": "a:1,b:2"}
BOUNDS = {("x", 0): (2, 9), ("x", 1): (0, 0)}


def _options(**given: str) -> Any:
    return source.TopicOptions.of({**SERVERS, "subscribe": "x,y", **given})


def _of_stream(**given: str) -> Any:
    return source.TopicOptions.of({**SERVERS, "subscribe": "x,y", **given}, stream=True)


def test_options_are_understood_however_they_are_written() -> None:
    options = _options(
        subscribe="x, y,x", STARTINGOFFSETS='{"x": {"0": 5, "1": -1}}', failOnDataLoss="False"
    )
    assert options.topics == ("x", "y")
    assert options.starting == {("x", 0): 5, ("x", 1): -1}
    assert options.ending == "latest"
    assert options.servers == "a:1,b:2"
    assert options.offsets_max is None
    assert not options.fail_on_data_loss
    assert _of_stream(maxOffsetsPerTrigger="7").offsets_max == 7
    assert (_options().starting, _of_stream().starting) == ("earliest", "latest")
    assert dict(_options(**{"kafka.fetch.min.bytes": "1"}).client)["fetch.min.bytes"] == "1"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"subscribe": " ,"}, "subscribe names no topic"),
        ({"subcribe": "x"}, "subcribe is no option: use subscribe, startingOffsets"),
        ({"path": "x"}, "path is no option"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"kafka.group.id": "mine"}, "kafka.group.id is what the source decides"),
        ({"endingOffsets": "earliest"}, "endingOffsets would leave nothing"),
        ({"startingOffsets": "first"}, "startingOffsets is neither"),
        ({"startingOffsets": "[1]"}, "startingOffsets is neither"),
        ({"startingOffsets": '{"x": {"one": 1}}'}, "startingOffsets is neither"),
        ({"startingOffsets": '{"z": {"0": 1}}'}, "names the topic z"),
        ({"endingOffsets": '{"x": {"0": -3}}'}, "x/0: -3 is no offset"),
        ({"endingOffsets": '{"x": {"0": true}}'}, "x/0: True is no offset"),
        ({"maxOffsetsPerTrigger": "7"}, "maxOffsetsPerTrigger says nothing of a table"),
        ({"kafkaConsumer.pollTimeoutMs": "1.5"}, "'1.5' is no number above 0"),
        ({"failOnDataLoss": "no"}, "'no' is neither true nor false"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], why: str) -> None:
    with pytest.raises(InputError, match=f"raftctl-topic: .*{why}"):
        _options(**given)


def test_what_is_wrong_with_a_stream_is_named() -> None:
    with pytest.raises(InputError, match="maxOffsetsPerTrigger '0' is no number above 0"):
        _of_stream(maxOffsetsPerTrigger="0")
    with pytest.raises(InputError, match="endingOffsets says nothing of a stream"):
        _of_stream(endingOffsets="latest")


@pytest.mark.parametrize(
    ("wanted", "first", "end"),
    [
        ("earliest", (2, 0), (2, 0)),
        ("latest", (9, 0), (9, 0)),
        ({("x", 0): 4}, (4, 0), (4, 0)),
        ({("x", 0): -1}, (9, 0), (9, 0)),
        ({("x", 0): -2}, (2, 0), (2, 0)),
        ({("x", 1): 0}, (2, 0), (9, 0)),
    ],
)
def test_offsets_follow_from_what_is_there(
    wanted: Any, first: tuple[int, int], end: tuple[int, int]
) -> None:
    assert tuple(source.first_offsets(wanted, BOUNDS).values()) == first
    assert tuple(source.end_offsets(wanted, BOUNDS).values()) == end


def test_offsets_that_are_not_there_are_refused() -> None:
    with pytest.raises(InputError, match="endingOffsets names partition 2, which x does not have"):
        source.end_offsets({("x", 2): 1}, BOUNDS)
    with pytest.raises(InputError, match="startingOffsets 10 of x/0 is beyond the end of the log"):
        source.first_offsets({("x", 0): 10}, BOUNDS)


@pytest.mark.parametrize(
    ("most", "found"),
    [
        (None, (20, 3, 0, 7)),
        (100, (20, 3, 0, 7)),
        (9, (13, 3, 0, 3)),
        (1, (11, 0, 0, 0)),
        (16, (17, 3, 0, 6)),
    ],
)
def test_a_micro_batch_takes_of_all_logs(most: int | None, found: tuple[int, ...]) -> None:
    begin = {("x", 0): 10, ("x", 1): 0, ("y", 0): 0}
    end = {("x", 0): 20, ("x", 1): 3, ("y", 0): 0, ("y", 1): 7}
    assert source.limited(begin, end, most) == dict(zip(end, found, strict=True))
    assert source.of_document(source.as_document(end)) == end


def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = pytest.importorskip("jepsen.spark.topics.source", reason="needs raftctl[spark]")
    monkeypatch.setattr(reads, "ASKED_S", 0.1)
    nobody = _options(**{"kafka.bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(InputError, match=r"kafka.bootstrap.servers 127.0.0.1:1: .* reached"):
        reads.ends_of(nobody)
