"""`raftctl delete-records`: over the Kafka protocol, with the file of `kafka-delete-records`."""

from __future__ import annotations

import json
from concurrent.futures import wait
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from raftctl.cli._output import BootstrapOption, Output, OutputOption, show, table
from raftctl.cli.kafka._group_offsets import PartitionKey, ends_of
from raftctl.cli.kafka.admin import TIMEOUT_S, TimeoutOption, admin_client
from raftctl.errors import ConfigError, ErrorCode, KafkaError, client_error

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
    bootstrap_server: BootstrapOption,
    offset_json_file: Annotated[
        str,
        typer.Option(metavar="FILE", help=f"What to delete: {_EXAMPLE}; offset -1 for all."),
    ],
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Deletes the oldest records of partitions, for good. They are those below the offsets of the
    file; the answer is where each partition begins now."""
    wanted = parse_deletions(Path(offset_json_file))
    client = admin_client(bootstrap_server)
    results = _ask(client, wanted, timeout)
    _tell_ranges(client, wanted, results, timeout)
    rows = [list(one.values()) for one in results]
    show(output, results, table(("TOPIC", "PARTITION", "LOW-WATERMARK", "ERROR", "MESSAGE"), rows))
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


def _ask(client: Any, wanted: list[Deletion], timeout_s: float) -> list[dict[str, Any]]:
    from confluent_kafka import TopicPartition

    asked = [TopicPartition(*one) for one in wanted]
    futures: dict[Any, Future[Any]] = client.delete_records(
        asked, request_timeout=timeout_s, operation_timeout=timeout_s
    )
    wait(futures.values(), timeout_s + 1)
    return [
        {"topic": one.topic, "partition": one.partition, **_outcome(future)}
        for one, future in sorted(
            futures.items(), key=lambda item: (item[0].topic, item[0].partition)
        )
    ]


def _tell_ranges(
    client: Any, wanted: list[Deletion], results: list[dict[str, Any]], timeout_s: float
) -> None:
    """Says of each offset that is out of range what the range is."""
    asked = {PartitionKey(one.topic, one.partition): one.offset for one in wanted}
    refused = {
        PartitionKey(one["topic"], one["partition"]): one
        for one in results
        if one["error"] == ErrorCode.OFFSET_OUT_OF_RANGE.name
    }
    for key, (start, end) in ends_of(client, list(refused), timeout_s).items():
        refused[key]["message"] = f"offset {asked[key]} is not among {start} to {end}"


def _outcome(future: Future[Any]) -> dict[str, Any]:
    from confluent_kafka import KafkaException

    try:
        low_watermark = future.result(0).low_watermark
    except KafkaException as error:
        refused = client_error(error.args[0].code(), error.args[0].str())
        return {"low_watermark": None, "error": refused.code.name, "message": refused.message}
    except TimeoutError:
        name = ErrorCode.REQUEST_TIMED_OUT.name
        return {"low_watermark": None, "error": name, "message": "no answer in time"}
    return {"low_watermark": low_watermark, "error": None, "message": None}
