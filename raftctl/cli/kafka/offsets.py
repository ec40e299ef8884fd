"""`raftctl offsets`: over the Kafka protocol, with the meaning of `kafka-get-offsets`."""

from __future__ import annotations

import re
from concurrent.futures import wait
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._output import BootstrapOption, Output, OutputOption, say_progress, show, table
from raftctl.cli.kafka.admin import TIMEOUT_S, TimeoutOption, admin_client, topics_metadata
from raftctl.errors import ConfigError, ErrorCode, KafkaError, client_error
from raftctl.integers import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

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
    bootstrap_server: BootstrapOption,
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
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Shows where partitions begin or end, or a time begins.

    A partition without such a record, or without a leader, is left out.
    """
    spec = offset_spec(time)
    wanted = parse_partitions(partitions)
    pattern = parse_topics(topic)
    client = admin_client(bootstrap_server)
    matching = _choose(topics_metadata(client, timeout), pattern, wanted)
    if not matching:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"no partition matches --topic {topic or '(all)'} --partitions {partitions or '(all)'}",
        )
    chosen = [one for one, leader in matching.items() if leader >= 0]
    for name, number in (one for one, leader in matching.items() if leader < 0):
        say_progress(f"{name}-{number} is left out: it has no leader now")
    rows = _ask(client, chosen, spec, timeout) if chosen else []
    documents = [dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in rows]
    show(output, documents, table(("TOPIC", "PARTITION", "OFFSET"), rows, "no such offset"))


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
) -> dict[tuple[str, int], int]:
    """The leader of each partition that is asked for, in order; -1 where there is none."""
    return {
        (name, number): partition.leader
        for name, metadata in sorted(topics.items())
        if pattern is None or pattern.fullmatch(name)
        for number, partition in sorted(metadata.partitions.items())
        if wanted is None or number in wanted
    }


def _ask(
    client: Any, chosen: list[tuple[str, int]], spec: Any, timeout_s: float
) -> list[tuple[str, int, int]]:
    from confluent_kafka import KafkaException, TopicPartition

    asked = {TopicPartition(name, number): spec for name, number in chosen}
    try:
        futures: dict[Any, Future[Any]] = client.list_offsets(asked, request_timeout=timeout_s)
        wait(futures.values(), timeout_s + 1)
        found = {
            (one.topic, one.partition): future.result(0).offset for one, future in futures.items()
        }
    except KafkaException as error:
        raise client_error(error.args[0].code(), error.args[0].str()) from None
    except TimeoutError:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"no answer within --timeout {timeout_s:g} s"
        ) from None
    return [(*one, found[one]) for one in chosen if found[one] != UNKNOWN_OFFSET]
