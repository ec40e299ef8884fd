"""`raftctl delete-records`: over the Kafka protocol, with the file of `kafka-delete-records`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from raftctl.cli.kafka.admin import Cluster, PartitionKey
from raftctl.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from concurrent.futures import Future

HIGH_WATERMARK = -1
_EXAMPLE = '{"partitions": [{"topic": "t", "partition": 0, "offset": 5}], "version": 1}'


class Deletion(NamedTuple):
    """Below which offset the records of a partition go; -1: all that are committed."""

    topic: str
    partition: int
    offset: int


def delete_records(
    cluster: Cluster,
    offset_json_file: Annotated[
        str,
        typer.Option(metavar="FILE", help=f"What to delete: {_EXAMPLE}; offset -1 for all."),
    ],
) -> None:
    """Deletes the oldest records of partitions, for good. They are those below the offsets of the
    file; the answer is where each partition begins now."""
    wanted = parse_deletions(Path(offset_json_file))
    results = _ask(cluster, wanted)
    _add_ranges(cluster, wanted, results)
    cluster.show_rows(("TOPIC", "PARTITION", "LOW-WATERMARK", "ERROR", "MESSAGE"), results)
    failed = [one for one in results if one["error"] is not None]
    if failed:
        code = ErrorCode[str(failed[0]["error"])]
        where = f"{failed[0]['topic']}-{failed[0]['partition']}: {failed[0]['message']}"
        more = f"; {len(failed) - 1} more" if len(failed) > 1 else ""
        raise KafkaError(code, f"no records were deleted from {where}{more}")


def parse_deletions(path: Path) -> list[Deletion]:
    """What the file says; ConfigError names what is wrong with it."""
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"--offset-json-file {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"--offset-json-file {path}: not valid JSON: {error}") from None
    if not isinstance(document, dict) or document.get("version", 1) != 1:
        raise ConfigError(f"--offset-json-file {path}: version must be 1; write {_EXAMPLE}")
    partitions = document.get("partitions")
    if not isinstance(partitions, list) or not partitions:
        raise ConfigError(f"--offset-json-file {path}: names no partitions; write {_EXAMPLE}")
    found = [_parse_one(path, one) for one in partitions]
    if len({(one.topic, one.partition) for one in found}) < len(found):
        raise ConfigError(f"--offset-json-file {path}: names a partition twice")
    return found


def _parse_one(path: Path, one: Any) -> Deletion:
    topic: Any = None
    partition: Any = None
    offset: Any = None
    if isinstance(one, dict):
        topic, partition, offset = (one.get(name) for name in Deletion._fields)
    # A bool is an int to Python, not to JSON.
    numbers = type(partition) is int and type(offset) is int
    if not isinstance(topic, str) or not numbers or partition < 0 or offset < HIGH_WATERMARK:
        raise ConfigError(f"--offset-json-file {path}: {json.dumps(one)} is none of {_EXAMPLE}")
    return Deletion(topic, partition, offset)


def _ask(cluster: Cluster, wanted: list[Deletion]) -> list[dict[str, Any]]:
    from confluent_kafka import TopicPartition

    asked = [TopicPartition(*one) for one in wanted]
    futures: dict[Any, Future[Any]] = cluster.client.delete_records(asked, **cluster.timeouts)
    return [
        {"topic": one.topic, "partition": one.partition, **_outcome(cluster, future)}
        for one, future in sorted(
            futures.items(), key=lambda item: (item[0].topic, item[0].partition)
        )
    ]


def _add_ranges(cluster: Cluster, wanted: list[Deletion], results: list[dict[str, Any]]) -> None:
    """Says of each offset that is out of range what the range is."""
    asked = {PartitionKey(one.topic, one.partition): one.offset for one in wanted}
    refused = {
        PartitionKey(one["topic"], one["partition"]): one
        for one in results
        if one["error"] == ErrorCode.OFFSET_OUT_OF_RANGE.name
    }
    for key, (start, end) in cluster.ends(list(refused)).items():
        refused[key]["message"] = f"offset {asked[key]} is not among {start} to {end}"


def _outcome(cluster: Cluster, future: Future[Any]) -> dict[str, Any]:
    try:
        low_watermark = cluster.wait(future).low_watermark
    except KafkaError as error:
        return {"low_watermark": None, "error": error.code.name, "message": error.message}
    return {"low_watermark": low_watermark, "error": None, "message": None}
