"""Records of one partition, some at a time, as far as people look at them.

A page of records costs the same whatever is in the topic: so many fetches, each cut within a batch,
so many bytes of each payload and of all together. What does not fit is said, with its size.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.console.brokers._brokers import (
    EARLIEST,
    LATEST,
    Partition,
    check,
    error_code,
)
from raftctl.errors import ErrorCode, KafkaError
from raftctl.http_json import BadFieldError
from raftctl.integers import INT_MAX, LONG_MAX
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.metadata.records import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from raftctl.console.brokers._brokers import Brokers
    from raftctl.console.http import Asked
    from raftctl.plugins import BrokerClient, Payload, ReadBatch, ReadRecord
    from raftctl.security import Requester

    Document = Mapping[str, Any]

LIMIT, LIMIT_MAX = 50, 500
SHOWN_BYTES_MAX = 1 << 20
"""Of all keys, values and headers of an answer."""
PAYLOAD_BYTES_MAX = 64 << 10
"""Of one of them."""
FETCHES_MAX = 8
"""In one answer: compacted logs and aborted transactions may have much that is not shown."""
_FETCH_BYTES = 1 << 20
_ISOLATION = {"read_uncommitted": 0, "read_committed": 1}
_SHOWN_CONTROLS = "\t\n\r"


class _Place(NamedTuple):
    """A partition and the broker that leads it."""

    partition: Partition
    topic_id: UUID
    leader: int


class _Wanted(NamedTuple):
    """What is asked for."""

    start: str
    """`earliest`, `latest`, an offset, or `@` and a time in ms."""
    limit: int
    isolation: int
    with_control: bool


class MessageViews:
    """Answers with records."""

    def __init__(self, client: BrokerClient, brokers: Brokers) -> None:
        self._client = client
        self._brokers = brokers

    async def messages(self, asked: Asked) -> dict[str, Any]:
        """Return records of a partition, in order."""
        fields = asked.fields
        name = fields.text("topic")
        number = fields.number("partition", 0, 0, INT_MAX)
        wanted = _Wanted(
            _start(fields.text("from", "latest")),
            fields.number("limit", LIMIT, 1, LIMIT_MAX),
            _isolation(fields.text("isolation", "read_uncommitted")),
            fields.text("control", "hidden") == "shown",
        )
        fields.end()
        # Before it is looked for: who may not read it learns not whether it exists.
        asked.rights.require(Operation.READ, ResourceType.TOPIC, name)
        place = self._place(name, number)
        offset = await self._offset(asked.requester, place, wanted)
        return await self._read(asked.requester, place, offset, wanted)

    def _place(self, name: str, number: int) -> _Place:
        topic = self._brokers.image.topics.by_name(name)
        partition = None if topic is None else topic.partitions.get(number)
        if topic is None or partition is None:
            why = f"there is no partition {name:.249}-{number}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
        if partition.leader == NO_LEADER:
            why = f"{name:.249}-{number} has no leader: start a broker of its replicas"
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, why)
        return _Place(Partition(name, number), topic.topic_id, partition.leader)

    async def _offset(self, requester: Requester, place: _Place, wanted: _Wanted) -> int:
        """Return the offset of the first record to show."""
        if wanted.start.isdecimal():
            return int(wanted.start)
        if wanted.start == "earliest":
            return await self._end(requester, place, EARLIEST)
        end = await self._end(requester, place, LATEST)
        if wanted.start == "latest":
            first = await self._end(requester, place, EARLIEST)
            return max(first, end - wanted.limit)
        found = await self._end(requester, place, int(wanted.start[1:]))
        return end if found < 0 else found

    async def _end(self, requester: Requester, place: _Place, timestamp: int) -> int:
        asked = {place.leader: [place.partition]}
        found = await self._brokers.offsets(requester, asked, timestamp)
        offset = found.get(place.leader, {}).get(place.partition)
        if offset is None:
            why = f"broker {place.leader} does not answer for {place.partition.topic:.249}"
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"{why}: try again")
        return offset

    async def _read(
        self, requester: Requester, place: _Place, offset: int, wanted: _Wanted
    ) -> dict[str, Any]:
        rows: list[Document] = []
        room = SHOWN_BYTES_MAX
        for _ in range(FETCHES_MAX):
            found = await self._fetch(requester, place, offset, wanted)
            records = bytes(found["records"] or b"")
            left = wanted.limit - len(rows)
            batches = await self._client.read(records, offset, left, PAYLOAD_BYTES_MAX)
            aborted = _Aborted(found["aborted_transactions"] or ())
            before = offset
            for batch in batches:
                hidden = aborted.hides(batch)
                for row, size, following in _rows(batch, offset, wanted, hidden=hidden):
                    if len(rows) == wanted.limit or (rows and size > room):
                        return _document(rows, offset, found)
                    if row is not None:
                        rows.append(row)
                        room -= size
                    offset = following
            if offset == before or len(rows) == wanted.limit:
                break
        return _document(rows, offset, found)

    async def _fetch(
        self, requester: Requester, place: _Place, offset: int, wanted: _Wanted
    ) -> Document:
        partition = {
            "partition": place.partition.partition,
            "fetch_offset": offset,
            "partition_max_bytes": _FETCH_BYTES,
        }
        body = {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": _FETCH_BYTES,
            "isolation_level": wanted.isolation,
            "topics": [{"topic_id": place.topic_id, "partitions": [partition]}],
            "forgotten_topics_data": (),
            "rack_id": "",
        }
        answer = await self._brokers.ask(requester, "FETCH", body, place.leader)
        check(answer["error_code"])
        for topic in answer["responses"]:
            for one in topic["partitions"]:
                _check_offset(one, place, offset)
                found: Document = one
                return found
        throttled = KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "a quota is used up: wait")
        raise throttled


class _Aborted:
    """The transactions that are to be left out, in the order of the records."""

    def __init__(self, aborted: Iterable[Document]) -> None:
        self._waiting = sorted(
            ((one["first_offset"], one["producer_id"]) for one in aborted), reverse=True
        )
        self._open: set[int] = set()

    def hides(self, batch: ReadBatch) -> bool:
        """Return whether a batch belongs to an aborted transaction; to be asked of each in turn."""
        while self._waiting and self._waiting[-1][0] <= batch.last_offset:
            self._open.add(self._waiting.pop()[1])
        if batch.marker is not None:
            if batch.marker == "abort":
                self._open.discard(batch.producer_id)
            return False
        return batch.is_transactional and batch.producer_id in self._open


def _check_offset(found: Document, place: _Place, offset: int) -> None:
    code = found["error_code"]
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        why = (
            f"{place.partition.topic:.249}-{place.partition.partition} has no offset {offset}: "
            "choose earliest or latest"
        )
        raise BadFieldError("from", why)
    if code:
        raise KafkaError(error_code(code))


def _start(text: str) -> str:
    number = text.removeprefix("@")
    is_number = number.isascii() and number.isdecimal() and int(number[:20]) <= LONG_MAX
    if text in ("earliest", "latest") or (is_number and len(number) < 20):
        return text
    raise BadFieldError("from", "write earliest, latest, an offset, or @ and milliseconds of time")


def _isolation(text: str) -> int:
    level = _ISOLATION.get(text)
    if level is None:
        raise BadFieldError("isolation", f"must be {' or '.join(_ISOLATION)}")
    return level


def _rows(
    batch: ReadBatch, from_offset: int, wanted: _Wanted, *, hidden: bool
) -> list[tuple[Document | None, int, int]]:
    """Return (row, bytes shown, offset after it) for what is shown of a batch, in order.

    The last one has no row: it leads past the batch, unless records of it are still to come.
    """
    of_batch = _batch(batch)
    past: tuple[None, int, int] = (None, 0, batch.last_offset + 1)
    found: list[tuple[Document | None, int, int]] = []
    if hidden:
        return [past]
    if batch.marker is not None:
        if wanted.with_control:
            row = {**_empty(batch), "control": batch.marker, "batch": of_batch}
            found.append((row, 0, batch.last_offset + 1))
        return [*found, past]
    for one in batch.records:
        row, size = _record(one)
        found.append(({**row, "batch": of_batch}, size, one.offset + 1))
    if batch.problem is not None:
        shown = max(from_offset, batch.base_offset)
        last = batch.records[-1].offset + 1 if batch.records else shown
        problem = {**_empty(batch), "offset": last, "problem": batch.problem, "batch": of_batch}
        return [*found, (problem, 0, batch.last_offset + 1)]
    return found if batch.has_more else [*found, past]


def _batch(batch: ReadBatch) -> dict[str, Any]:
    return {
        "producer_id": None if batch.producer_id < 0 else batch.producer_id,
        "epoch": None if batch.producer_id < 0 else batch.producer_epoch,
        "sequence": None if batch.base_sequence < 0 else batch.base_sequence,
        "codec": batch.codec,
        "transactional": batch.is_transactional,
        "size": batch.size,
    }


def _empty(batch: ReadBatch) -> dict[str, Any]:
    return {
        "offset": batch.base_offset,
        "timestamp_ms": None,
        "key": None,
        "value": None,
        "headers": [],
    }


def _record(one: ReadRecord) -> tuple[dict[str, Any], int]:
    payloads = [one.key, one.value, *(part for pair in one.headers for part in pair)]
    size = sum(len(part.data) for part in payloads if part is not None)
    row = {
        "offset": one.offset,
        "timestamp_ms": None if one.timestamp_ms < 0 else one.timestamp_ms,
        "key": payload(one.key),
        "value": payload(one.value),
        "headers": [
            [(payload(key) or {}).get("text") or "", payload(value)] for key, value in one.headers
        ],
    }
    return row, size


def payload(part: Payload | None) -> dict[str, Any] | None:
    """Return a payload as JSON has it: as text if all of it is text, else in base64."""
    if part is None:
        return None
    cut = len(part.data) < part.size
    text = _text(part.data, cut=cut)
    if text is None:
        return {"base64": base64.b64encode(part.data).decode(), "size": part.size, "cut": cut}
    return {"text": text, "size": part.size, "cut": cut}


def _text(data: bytes, *, cut: bool) -> str | None:
    """Return bytes as text, or None if they are none; a cut may have split a character."""
    for missing in range(4 if cut else 1):
        try:
            text = data[: len(data) - missing].decode()
        except UnicodeDecodeError:
            continue
        controls = any(one < " " and one not in _SHOWN_CONTROLS for one in text)
        return None if controls else text
    return None


def _document(rows: list[Document], offset: int, found: Document) -> dict[str, Any]:
    return {
        "rows": rows,
        "next_offset": offset,
        "log_start": found["log_start_offset"],
        "high_watermark": found["high_watermark"],
        "last_stable_offset": found["last_stable_offset"],
    }
