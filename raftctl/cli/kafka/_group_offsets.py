"""Offsets of consumer groups, asked and set over the Kafka protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.errors import ConfigError, ErrorCode, KafkaError, client_error
from raftctl.integers import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NO_OFFSET = -1
_ENDS = ("earliest", "latest")
_WITH_NUMBER = ("time", "offset", "shift")


class PartitionKey(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Ends(NamedTuple):
    """Where a partition begins and ends."""

    earliest: int
    latest: int


class Reset(NamedTuple):
    """Where offsets are to be set to; the number is milliseconds, an offset, or a distance."""

    kind: str
    number: int = 0


def parse_reset(text: str) -> Reset:
    """What `--to` says; ConfigError if it is nothing of what it may be."""
    kind, _, number = text.partition("=")
    if text in _ENDS:
        return Reset(text)
    digits = number.removeprefix("-") if kind == "shift" else number
    if kind in _WITH_NUMBER and digits.isascii() and digits.isdecimal():
        if int(digits) > LONG_MAX:
            raise ConfigError(f"--to {text}: the number is above {LONG_MAX}")
        return Reset(kind, int(number))
    raise ConfigError(
        f"--to {text}: write earliest, latest, time=MILLISECONDS, offset=N or shift=N"
    )


def waited(future: Any, timeout_s: float) -> Any:
    """The result of a request; what a client raises becomes a KafkaError."""
    from confluent_kafka import KafkaException

    try:
        return future.result(timeout_s + 1)
    except KafkaException as error:
        raise client_error(error.args[0].code(), error.args[0].str()) from None
    except TimeoutError:
        text = f"no answer within --timeout {timeout_s:g} s"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from None


def committed_offsets(client: Any, group: str, timeout_s: float) -> dict[PartitionKey, int]:
    """All that the group has committed."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(group)]
    futures = client.list_consumer_group_offsets(asked, request_timeout=timeout_s)
    found = waited(futures[group], timeout_s).topic_partitions
    return {
        PartitionKey(one.topic, one.partition): one.offset
        for one in found
        if one.error is None and one.offset >= 0
    }


def commit_offsets(
    client: Any, group: str, offsets: Mapping[PartitionKey, int], timeout_s: float
) -> None:
    """Commits in the place of the group, which must have no members."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    partitions = [TopicPartition(*key, offset) for key, offset in offsets.items()]
    asked = [ConsumerGroupTopicPartitions(group, partitions)]
    futures = client.alter_consumer_group_offsets(asked, request_timeout=timeout_s)
    for one in waited(futures[group], timeout_s).topic_partitions:
        if one.error is not None:
            raise client_error(one.error.code(), f"{one.topic}-{one.partition}: {one.error.str()}")


def ends_of(
    client: Any, keys: Sequence[PartitionKey], timeout_s: float
) -> dict[PartitionKey, Ends]:
    """Where partitions begin and end; those that cannot be asked, or are gone, are left out."""
    from confluent_kafka.admin._listoffsets import OffsetSpec

    kinds: Any = OffsetSpec
    starts = _asked(client, keys, kinds.earliest(), timeout_s)
    ends = _asked(client, keys, kinds.latest(), timeout_s)
    return {key: Ends(starts[key], ends[key]) for key in keys if key in starts and key in ends}


def _asked(
    client: Any, keys: Iterable[PartitionKey], spec: Any, timeout_s: float
) -> dict[PartitionKey, int]:
    from confluent_kafka import TopicPartition

    asked = {TopicPartition(*key): spec for key in keys}
    if not asked:
        return {}
    found: dict[PartitionKey, int] = {}
    for one, future in client.list_offsets(asked, request_timeout=timeout_s).items():
        try:
            result = waited(future, timeout_s)
        except KafkaError:
            # The topic is deleted, or has no leader now.
            continue
        found[PartitionKey(one.topic, one.partition)] = result.offset
    return found


def reset_to(
    client: Any,
    where: Reset,
    keys: Sequence[PartitionKey],
    committed: Mapping[PartitionKey, int],
    timeout_s: float,
) -> dict[PartitionKey, int]:
    """The new offset of each partition, inside of it. KafkaError if one cannot be found."""
    from confluent_kafka.admin._listoffsets import OffsetSpec

    ends = ends_of(client, keys, timeout_s)
    times: dict[PartitionKey, int] = {}
    if where.kind == "time":
        kinds: Any = OffsetSpec
        times = _asked(client, keys, kinds.for_timestamp(where.number), timeout_s)
    new = {}
    for key in keys:
        if key not in ends:
            text = f"{key.topic}-{key.partition} has no leader, or does not exist"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, text)
        new[key] = _clamped(_wanted(where, key, ends[key], committed, times), ends[key])
    return new


def _wanted(
    where: Reset,
    key: PartitionKey,
    ends: Ends,
    committed: Mapping[PartitionKey, int],
    times: Mapping[PartitionKey, int],
) -> int:
    match where.kind:
        case "earliest":
            return ends.earliest
        case "latest":
            return ends.latest
        case "time":
            found = times.get(key, NO_OFFSET)
            # No record is so new.
            return ends.latest if found == NO_OFFSET else found
        case "offset":
            return where.number
    if key not in committed:
        text = f"{key.topic}-{key.partition} has no offset to shift: choose another --to"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return committed[key] + where.number


def _clamped(offset: int, ends: Ends) -> int:
    return min(max(offset, ends.earliest), ends.latest)
