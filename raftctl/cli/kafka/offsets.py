"""`raftctl offsets`: over the Kafka protocol, with the meaning of `kafka-get-offsets`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._output import say_progress
from raftctl.cli.kafka.admin import Cluster, PartitionKey
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.integers import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

UNKNOWN_OFFSET = -1
NAMED_TIMES = {
    **dict.fromkeys(("-1", "latest"), "latest"),
    **dict.fromkeys(("-2", "earliest"), "earliest"),
    **dict.fromkeys(("-3", "max-timestamp"), "max_timestamp"),
}
"""What `--time` may say instead of a number, and the kind of `OffsetSpec` that it means."""
TIME_HELP = (
    "-1 or latest, -2 or earliest, -3 or max-timestamp (of the newest record by time), or "
    "milliseconds since 1970: the first record of that time or later."
)


def offsets(
    cluster: Cluster,
    topic: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN", help="Regular expressions separated by commas; default: all."
        ),
    ] = None,
    partitions: Annotated[
        str | None,
        typer.Option(metavar="N,...", help="Partitions of each topic; default: all."),
    ] = None,
    time: Annotated[str, typer.Option(metavar="TIME", help=TIME_HELP)] = "-1",
) -> None:
    """Shows the first or last offsets of partitions. Also those of a time.

    A partition without such a record, or without a leader, is left out.
    """
    spec = offset_spec(time)
    wanted = parse_partitions(partitions)
    pattern = parse_topics(topic)
    matching = _choose(cluster.topics(), pattern, wanted)
    if not matching:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"no partition matches --topic {topic or '(all)'} --partitions {partitions or '(all)'}",
        )
    chosen = [one for one, leader in matching.items() if leader >= 0]
    for name, number in (one for one, leader in matching.items() if leader < 0):
        say_progress(f"{name}-{number} is left out: it has no leader now")
    asked = {key: cluster.wait(one).offset for key, one in cluster.offsets(chosen, spec).items()}
    found = [
        {**key._asdict(), "offset": asked[key]} for key in chosen if asked[key] != UNKNOWN_OFFSET
    ]
    cluster.show_rows(("TOPIC", "PARTITION", "OFFSET"), found, "no such offset")


def offset_spec(text: str) -> Any:
    """What to ask for. ConfigError if it is no time."""
    from confluent_kafka.admin._listoffsets import OffsetSpec

    kinds: Any = OffsetSpec
    if text in NAMED_TIMES:
        return getattr(kinds, NAMED_TIMES[text])()
    if text.isascii() and text.isdigit() and int(text) <= LONG_MAX:
        return kinds.for_timestamp(int(text))
    raise ConfigError(
        f"--time {text}: must be -1, -2, -3, latest, earliest, max-timestamp or milliseconds"
    )


def parse_topics(text: str | None) -> re.Pattern[str] | None:
    """Matches the names wanted, as a whole; None for all. ConfigError if it is no expression."""
    if text is None:
        return None
    try:
        return re.compile("|".join(f"(?:{part.strip()})" for part in text.split(",")))
    except re.error as error:
        raise ConfigError(f"--topic {text}: no regular expression: {error}") from None


def parse_partitions(text: str | None) -> frozenset[int] | None:
    """The partitions wanted, None for all. ConfigError if one is no number."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ConfigError(f"--partitions {text}: write numbers separated by commas, as 0,1,2")
    return frozenset(map(int, parts))


def _choose(
    topics: Mapping[str, Any], pattern: re.Pattern[str] | None, wanted: frozenset[int] | None
) -> dict[PartitionKey, int]:
    """The leader of each partition that is asked for, in order; -1 where there is none."""
    return {
        PartitionKey(name, number): partition.leader
        for name, metadata in sorted(topics.items())
        if pattern is None or pattern.fullmatch(name)
        for number, partition in sorted(metadata.partitions.items())
        if wanted is None or number in wanted
    }
