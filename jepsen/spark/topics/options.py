"""What is asked of `format("raftctl-topic")`, and the offsets that follow from it.

Names and values are those of Spark's own source for Kafka, as far as they go.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jepsen.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "raftctl-topic"
EARLIEST, LATEST = "earliest", "latest"
_RELATIVE = {EARLIEST: -2, LATEST: -1}
"""As numbers, which is how JSON says it of one partition."""
_CLIENT = "kafka."
_SERVERS = "kafka.bootstrap.servers"
_LIMIT = "maxOffsetsPerTrigger"
_OPTIONS = {
    one.lower(): one
    for one in (
        "subscribe",
        "startingOffsets",
        "endingOffsets",
        _LIMIT,
        "failOnDataLoss",
        "kafkaConsumer.pollTimeoutMs",
    )
}
_OURS = frozenset(
    {
        "auto.offset.reset",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "group.id",
    }
)
"""What the client is told by the source itself, which is in no group."""
_POLL_TIMEOUT_MS = 120_000

Place = tuple[str, int]
"""Topic and partition."""
Bounds = tuple[int, int]
"""The first offset of a log, and the one after its last."""
Wanted = str | dict[Place, int]
"""`earliest`, `latest`, or offsets of which -2 and -1 mean these."""


@dataclass(frozen=True)
class TopicOptions:
    """The options of a table or stream, all of them understood."""

    topics: tuple[str, ...]
    client: tuple[tuple[str, str], ...]
    """Settings of Kafka's client that were asked for, the servers among them."""
    starting: Wanted
    ending: Wanted
    offsets_max: int | None
    """Of one micro-batch."""
    fail_on_data_loss: bool
    poll_timeout_s: float
    """How long there may be no record before a task gives up."""

    @classmethod
    def of(cls, given: Mapping[str, str], *, stream: bool = False) -> TopicOptions:
        """Understands the options of a table or a stream. Raises InputError."""
        options = {key.lower(): value for key, value in given.items()}
        client = {key: options.pop(key) for key in list(options) if _is_clients(key)}
        _refuse_unknown(options, client)
        starting, elsewhere = (LATEST, "endingOffsets") if stream else (EARLIEST, _LIMIT)
        if elsewhere.lower() in options:
            raise _refused(elsewhere, f"says nothing of a {'stream' if stream else 'table'}")
        names = map(str.strip, options.get("subscribe", "").split(","))
        topics = tuple(dict.fromkeys(filter(None, names)))
        if not topics:
            raise _refused("subscribe", "names no topic: give one, or several with commas")
        ending = _wanted("endingOffsets", options.get("endingoffsets", LATEST), topics)
        if ending == EARLIEST:
            raise _refused("endingOffsets", "would leave nothing to read: use latest or offsets")
        most = options.get(_LIMIT.lower())
        wait = options.get("kafkaconsumer.polltimeoutms", str(_POLL_TIMEOUT_MS))
        return cls(
            topics,
            tuple((key.removeprefix(_CLIENT), value) for key, value in sorted(client.items())),
            _wanted("startingOffsets", options.get("startingoffsets", starting), topics),
            ending,
            None if most is None else _positive(_LIMIT, most),
            _flag("failOnDataLoss", options.get("failondataloss", "true")),
            _positive("kafkaConsumer.pollTimeoutMs", wait) / 1000,
        )

    @property
    def servers(self) -> str:
        """Where the cluster is."""
        return dict(self.client)["bootstrap.servers"]


def _is_clients(key: str) -> bool:
    return key.startswith(_CLIENT)


def _refused(option: str, why: str) -> InputError:
    return InputError(f"{NAME}: {option} {why}")


def _refuse_unknown(options: Mapping[str, str], client: Mapping[str, str]) -> None:
    for key in options.keys() - _OPTIONS.keys():
        known = ", ".join([*_OPTIONS.values(), _CLIENT + "*"])
        raise _refused(key, f"is no option: use {known}")
    for key in client:
        if key.removeprefix(_CLIENT) in _OURS:
            raise _refused(key, "is what the source decides: leave it out")
    if not client.get(_SERVERS, "").strip():
        raise _refused(_SERVERS, "is missing: give it as host:port,host:port")


def _positive(option: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise _refused(option, f"{text!r} is no number above 0")
    return int(text)


def _flag(option: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise _refused(option, f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _wanted(option: str, text: str, topics: tuple[str, ...]) -> Wanted:
    if text.lower() in _RELATIVE:
        return text.lower()
    shape = '{"TOPIC": {"PARTITION": OFFSET}}'
    try:
        by_topic = json.loads(text)
        wanted = {
            (str(topic), int(partition)): offset
            for topic, offsets in by_topic.items()
            for partition, offset in offsets.items()
        }
    except (ValueError, AttributeError):
        raise _refused(option, f"is neither earliest nor latest nor {shape}") from None
    for (topic, partition), offset in wanted.items():
        if topic not in topics:
            raise _refused(option, f"names the topic {topic}, which subscribe does not")
        if type(offset) is not int or offset < -2:
            raise _refused(option, f"{topic}/{partition}: {offset!r} is no offset, -1 or -2")
    return wanted


def first_offsets(wanted: Wanted, bounds: Mapping[Place, Bounds]) -> dict[Place, int]:
    """Where to begin in each log; those that nothing is said of from their first record."""
    return _absolute("startingOffsets", wanted, _RELATIVE[EARLIEST], bounds)


def end_offsets(wanted: Wanted, bounds: Mapping[Place, Bounds]) -> dict[Place, int]:
    """Where to end in each log; those that nothing is said of at their end."""
    return _absolute("endingOffsets", wanted, _RELATIVE[LATEST], bounds)


def _absolute(
    option: str, wanted: Wanted, otherwise: int, bounds: Mapping[Place, Bounds]
) -> dict[Place, int]:
    if isinstance(wanted, str):
        return _absolute(option, {}, _RELATIVE[wanted], bounds)
    for topic, partition in wanted.keys() - bounds.keys():
        raise _refused(option, f"names partition {partition}, which {topic} does not have")
    found = {}
    for place, (first, end) in bounds.items():
        asked = wanted.get(place, otherwise)
        found[place] = {_RELATIVE[EARLIEST]: first, _RELATIVE[LATEST]: end}.get(asked, asked)
        if found[place] > end:
            where = f"{place[0]}/{place[1]}"
            raise _refused(option, f"{asked} of {where} is beyond the end of the log, {end}")
    return found


def limited(
    begin: Mapping[Place, int], end: Mapping[Place, int], most: int | None
) -> dict[Place, int]:
    """As far as `most` offsets in all lead from `begin` towards `end`; all logs get their share,
    and what a short one leaves goes to longer ones.
    """
    lags = {place: max(0, to - begin.get(place, 0)) for place, to in end.items()}
    left = sum(lags.values()) if most is None else most
    found = {}
    for number, place in enumerate(sorted(lags, key=lambda one: (lags[one], one))):
        share = min(lags[place], left // (len(lags) - number))
        left -= share
        found[place] = begin.get(place, 0) + share
    return found


def as_document(offsets: Mapping[Place, int]) -> dict[str, Any]:
    """By topic and partition, as a checkpoint keeps it and `startingOffsets` takes it."""
    document: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def of_document(document: Mapping[str, Mapping[str, int]]) -> dict[Place, int]:
    """The offsets that `as_document` has written."""
    return {
        (topic, int(partition)): offset
        for topic, offsets in document.items()
        for partition, offset in offsets.items()
    }
