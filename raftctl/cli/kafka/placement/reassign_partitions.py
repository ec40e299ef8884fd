"""`raftctl reassign-partitions`: plans, starts and follows the moves of replicas (row C7).

Options and files are those of `kafka-reassign-partitions`:

    {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}
    {"version": 1, "topics": [{"topic": "t"}]}
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._options import Printer
from raftctl.cli._output import counted, table
from raftctl.cli.kafka.admin import Cluster, no_topic
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.metadata.placement import UsableBroker, place_replicas

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafka.admin import KafkaAdminClient


CURRENT, PROPOSED = "# current", "# proposed"
"""The lines above the two plans that `--generate` prints."""
Partition = tuple[str, int]
Plan = dict[Partition, tuple[int, ...]]
"""(topic, partition id) to replicas, the preferred leader first."""


def parse_plan(text: str, name: str) -> Plan:
    """The partitions of a reassignment file; ConfigError names the file and what is wrong.

    What `--generate` has printed, as text or JSON, counts as the plan that it proposes.
    """
    plan: Plan = {}
    for one in _items(_proposed(text), name, "partitions"):
        topic, number, replicas = one.get("topic"), one.get("partition"), one.get("replicas")
        if not isinstance(topic, str) or not isinstance(number, int) or not _is_id(number):
            raise ConfigError(f"{name}: each partition needs `topic` (text) and `partition`: {one}")
        if not isinstance(replicas, list) or not replicas or not all(map(_is_id, replicas)):
            raise ConfigError(
                f"{name}: `replicas` of {topic}-{number} must be a list of broker ids"
            )
        if (topic, number) in plan:
            raise ConfigError(f"{name}: {topic}-{number} stands there twice")
        plan[topic, number] = tuple(replicas)
    return plan


def _proposed(text: str) -> str:
    """The plan in the output of `--generate`; the text itself if it is no such output."""
    printed = text.partition(f"{PROPOSED}\n")[2]
    if printed:
        return printed
    try:
        document = json.loads(text)
    except ValueError:
        return text
    is_output = isinstance(document, dict) and "proposed" in document
    return json.dumps(document["proposed"]) if is_output else text


def parse_topics(text: str, name: str) -> list[str]:
    """The topics of a topics-to-move file; ConfigError names the file and what is wrong."""
    topics = [one.get("topic") for one in _items(text, name, "topics")]
    found = [topic for topic in topics if isinstance(topic, str)]
    if len(found) < len(topics):
        raise ConfigError(f"{name}: each of `topics` needs `topic` (text)")
    return found


def _items(text: str, name: str, key: str) -> list[dict[str, Any]]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name}: not valid JSON: {error}") from None
    if not isinstance(document, dict) or document.get("version", 1) != 1:
        raise ConfigError(f'{name}: must be an object with "version": 1')
    items = document.get(key)
    if not isinstance(items, list) or not items or not all(isinstance(i, dict) for i in items):
        raise ConfigError(f"{name}: `{key}` must be a list of objects, not empty")
    return items


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def plan_document(plan: Mapping[Partition, Sequence[int]]) -> dict[str, Any]:
    """The plan as a reassignment file has it."""
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for (topic, number), replicas in sorted(plan.items())
    ]
    return {"version": 1, "partitions": partitions}


def generate(
    current: Plan, racks: Mapping[int, str | None], broker_ids: Sequence[int], rng: random.Random
) -> Plan:
    """Spread the partitions again over these brokers and their racks, each topic on its own.

    Every partition keeps its number of replicas. KafkaError(INVALID_REPLICATION_FACTOR) if there
    are too few brokers.
    """
    brokers = [UsableBroker(one, racks.get(one), active=True) for one in sorted(set(broker_ids))]
    plan: Plan = {}
    for topic in sorted({topic for topic, _ in current}):
        numbers = sorted(number for name, number in current if name == topic)
        factor = len(current[topic, numbers[0]])
        placed = place_replicas(brokers, len(numbers), factor, rng)
        plan |= {(topic, number): one for number, one in zip(numbers, placed, strict=True)}
    return plan


def progress(
    plan: Plan, current: Mapping[Partition, Sequence[int]], moving: Sequence[Partition]
) -> dict[Partition, str]:
    """What has become of each partition: `done`, `in progress`, `differs` or `missing`."""
    found = {}
    for key, replicas in plan.items():
        if key in moving:
            found[key] = "in progress"
        elif key not in current:
            found[key] = "missing"
        else:
            found[key] = "done" if tuple(current[key]) == replicas else "differs"
    return found


def throttles(plan: Plan, current: Mapping[Partition, Sequence[int]]) -> dict[str, dict[str, str]]:
    """Topic to the configs that name the replicas to be throttled while the plan is carried out.

    Those that are there send, those that are new fetch.
    """
    found: dict[str, dict[str, str]] = {}
    for topic in sorted({topic for topic, _ in plan}):
        numbers = sorted(number for name, number in plan if name == topic)
        senders = [f"{n}:{one}" for n in numbers for one in current.get((topic, n), ())]
        fetchers = [
            f"{n}:{one}"
            for n in numbers
            for one in plan[topic, n]
            if one not in current.get((topic, n), ())
        ]
        found[topic] = {
            "leader.replication.throttled.replicas": ",".join(senders),
            "follower.replication.throttled.replicas": ",".join(fetchers),
        }
    return found


RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def reassign_partitions(
    cluster: Cluster,
    generate_plan: Annotated[
        bool, typer.Option("--generate", help="Prints a plan; needs topics and brokers.")
    ] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Starts the plan of a file.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Shows progress; ends the throttle when done.")
    ] = False,
    list_moving: Annotated[bool, typer.Option("--list", help="Lists the moves under way.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancels the plan of a file.")] = False,
    topics_to_move_json_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="The topics, for --generate.")
    ] = None,
    broker_list: Annotated[
        str | None, typer.Option(metavar="ID,...", help="The brokers, for --generate.")
    ] = None,
    reassignment_json_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Output of --generate, or a plan in that form."),
    ] = None,
    throttle: Annotated[
        int | None,
        typer.Option(metavar="N", help="Bytes a second for each broker, for --execute.", min=1),
    ] = None,
) -> None:
    """Moves partitions to other brokers. Give one of --generate, --execute, --verify, --cancel
    and --list."""
    if [generate_plan, execute, verify, list_moving, cancel].count(True) != 1:
        raise ConfigError("give one of --generate, --execute, --verify, --list, --cancel")
    with cluster.open() as client:
        if generate_plan:
            topics = parse_topics(*_read(topics_to_move_json_file, "--topics-to-move-json-file"))
            _generate(cluster, client, topics, _broker_ids(broker_list))
        elif list_moving:
            _list(cluster, client)
        else:
            plan = parse_plan(*_read(reassignment_json_file, "--reassignment-json-file"))
            if execute:
                current = _current(client, plan)
                _throttle(cluster, plan, current, throttle)
                before = {key: replicas for key, replicas in current.items() if key in plan}
                _alter(cluster, client, plan, "begun", {"rollback": plan_document(before)})
            elif cancel:
                _alter(cluster, client, dict.fromkeys(plan), "cancelled")
            else:
                _verify(cluster, client, plan)


# --- the modes ------------------------------------------------------------------------------------


def _generate(
    cluster: Cluster, client: KafkaAdminClient, topics: Sequence[str], broker_ids: Sequence[int]
) -> None:
    racks = _racks(client)
    unknown = [str(one) for one in broker_ids if one not in racks]
    if unknown:
        why = f"--broker-list: no broker {', '.join(unknown)} is running"
        raise ConfigError(f"{why}; raftctl brokers list shows those that are registered")
    current = _partitions(client, topics)
    plan = generate(current, racks, broker_ids, random.Random())
    show_plans(cluster, current, plan)


def show_plans(printer: Printer, current: Plan, proposed: Plan) -> None:
    """Prints both, so that `--execute` takes the output as the plan that is proposed."""
    documents = {"current": plan_document(current), "proposed": plan_document(proposed)}
    titles = {"current": CURRENT, "proposed": PROPOSED}
    text = "\n".join(f"{titles[name]}\n{json.dumps(one)}" for name, one in documents.items())
    printer.show(documents, text)


def _list(cluster: Cluster, client: KafkaAdminClient) -> None:
    moving = [
        {"topic": key.topic, "partition": key.partition, **one}
        for key, one in sorted(client.list_partition_reassignments().items())
    ]
    columns = ("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING")
    names = ("topic", "partition", "replicas", "adding_replicas", "removing_replicas")
    rows = [[one[name] for name in names] for one in moving]
    cluster.show(moving, table(columns, rows, "no partition is moving"))


def _alter(
    cluster: Cluster,
    client: KafkaAdminClient,
    wanted: Mapping[Partition, tuple[int, ...] | None],
    done: str,
    more: Mapping[str, Any] | None = None,
) -> None:
    from kafka import TopicPartition

    asked = {TopicPartition(*key): value and list(value) for key, value in wanted.items()}
    errors = client.alter_partition_reassignments(asked)
    results = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "result": done if error is None else ErrorCode(error.errno).name,
        }
        for key, error in sorted(errors.items())
    ]
    rows = [list(one.values()) for one in results]
    text = table(("TOPIC", "PARTITION", "RESULT"), rows)
    text += "".join(f"# {name}\n{json.dumps(one)}\n" for name, one in (more or {}).items())
    cluster.show({"partitions": results, **(more or {})}, text)
    failed = [one["result"] for one in results if one["result"] != done]
    if failed:
        message = f"refused: {len(failed)} of {counted(len(results), 'partition')}"
        raise KafkaError(ErrorCode[failed[0]], message)


def _verify(cluster: Cluster, client: KafkaAdminClient, plan: Plan) -> None:
    moving = [(key.topic, key.partition) for key in client.list_partition_reassignments()]
    found = progress(plan, _current(client, plan), moving)
    results = [
        {"topic": topic, "partition": number, "status": status}
        for (topic, number), status in sorted(found.items())
    ]
    cluster.show_rows(("TOPIC", "PARTITION", "STATUS"), results)
    if not moving:
        _unthrottle(cluster, plan)
    unfinished = [status for status in found.values() if status != "done"]
    if unfinished:
        message = f"not done: {len(unfinished)} of {counted(len(found), 'partition')}"
        raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, message)


# --- throttles ------------------------------------------------------------------------------------


def _throttle(cluster: Cluster, plan: Plan, current: Plan, rate: int | None) -> None:
    if rate is None:
        return
    brokers = sorted({one for replicas in (*plan.values(), *current.values()) for one in replicas})
    configs: dict[tuple[str, str], dict[str, str | None]] = {
        ("TOPIC", topic): dict(values) for topic, values in throttles(plan, current).items()
    }
    configs |= {("BROKER", str(one)): dict.fromkeys(RATES, str(rate)) for one in brokers}
    _configure(cluster, configs)


def _unthrottle(cluster: Cluster, plan: Plan) -> None:
    brokers = sorted({one for replicas in plan.values() for one in replicas})
    configs: dict[tuple[str, str], dict[str, str | None]] = {
        ("TOPIC", topic): dict.fromkeys(THROTTLED) for topic in sorted({one for one, _ in plan})
    }
    configs |= {("BROKER", str(one)): dict.fromkeys(RATES) for one in brokers}
    _configure(cluster, configs)


def _configure(
    cluster: Cluster, configs: Mapping[tuple[str, str], Mapping[str, str | None]]
) -> None:
    """Sets the configs of each resource; None resets one."""
    from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
    from confluent_kafka.admin._resource import ResourceType

    for (kind, name), values in configs.items():
        entries = [
            ConfigEntry(
                key,
                value,
                incremental_operation=AlterConfigOpType["DELETE" if value is None else "SET"],
            )
            for key, value in values.items()
            if value != ""
        ]
        resource = ConfigResource(ResourceType[kind], name, incremental_configs=entries)
        futures = cluster.client.incremental_alter_configs(
            [resource], request_timeout=cluster.timeout
        )
        cluster.wait(futures[resource])


# --- the cluster ----------------------------------------------------------------------------------


def _racks(client: KafkaAdminClient) -> dict[int, str | None]:
    """Of the brokers that run, by id."""
    brokers = client.describe_cluster()["brokers"]
    return {one["broker_id"]: one["rack"] for one in brokers if not one.get("is_fenced")}


def _current(client: KafkaAdminClient, plan: Plan) -> Plan:
    return _partitions(client, sorted({topic for topic, _ in plan}))


def _partitions(client: KafkaAdminClient, topics: Sequence[str]) -> Plan:
    found: Plan = {}
    for topic in client.describe_topics(list(topics)):
        for one in topic["partitions"]:
            found[topic["name"], one["partition_index"]] = tuple(one["replica_nodes"])
    missing = [one for one in topics if (one, 0) not in found]
    if missing:
        raise no_topic(*missing)
    return found


# --- arguments ------------------------------------------------------------------------------------


def _read(path: str | None, option: str) -> tuple[str, str]:
    """(text, name) of the file."""
    if path is None:
        raise ConfigError(f"{option} FILE is needed")
    try:
        return Path(path).read_text(encoding="utf-8"), path
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{option} {path}: cannot be read: {reason}") from None


def _broker_ids(text: str | None) -> list[int]:
    ids = [one.strip() for one in (text or "").split(",")]
    if not all(one.isdecimal() for one in ids):
        raise ConfigError("--broker-list: write broker ids separated by commas")
    return [int(one) for one in ids]
