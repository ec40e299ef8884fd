"""`raftctl groups`: over the Kafka protocol, with the columns of `kafka-consumer-groups`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from raftctl.cli._arguments import check_known, none_empty, not_empty, spelt
from raftctl.cli._options import CommandGroup
from raftctl.cli._output import say_progress, table
from raftctl.cli.kafka.admin import Cluster, PartitionKey, no_topic
from raftctl.errors import ConfigError, ErrorCode, KafkaError, client_error
from raftctl.integers import LONG_MAX
from raftctl.offset_resets import Reset, reset_offset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from raftctl.offset_resets import Ends

app = CommandGroup("Shows consumer groups; resets offsets; deletes groups.")

GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="The group; also as Kafka's --group GROUP.",
        callback=not_empty("GROUP"),
    ),
]
GroupsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="GROUP...",
        help="The groups; each also as --group GROUP.",
        callback=none_empty("GROUP"),
    ),
]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="TOPIC[:N,...]", help="Topic, or partitions of it; may be repeated."
    ),
]
_COLUMNS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)


_ENDS = ("earliest", "latest")
_WITH_NUMBER = ("time", "offset", "shift")


class Owner(NamedTuple):
    """Who reads a partition."""

    consumer_id: str | None = None
    host: str | None = None
    client_id: str | None = None


@app.command(name="list")
def list_groups(
    cluster: Cluster,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only groups in this state; may be repeated."),
    ] = None,
) -> None:
    """Lists groups and their states."""
    wanted = parse_states(state or ())
    found = cluster.wait(cluster.client.list_consumer_groups(request_timeout=cluster.timeout))
    documents = [
        {"group": one.group_id, "state": _state(one.state), "simple": one.is_simple_consumer_group}
        for one in sorted(found.valid, key=lambda one: str(one.group_id))
        if not wanted or spelt(one.state.name) in wanted
    ]
    for error in found.errors:
        say_progress(f"a coordinator did not answer: {error}")
    rows = [(one["group"], one["state"]) for one in documents]
    empty = "no group is in these states" if wanted else "there are no groups"
    cluster.show(documents, table(("GROUP", "STATE"), rows, empty))


def parse_states(texts: Sequence[str]) -> frozenset[str]:
    """The states as `spelt` writes them; ConfigError for what no group can be."""
    from confluent_kafka import ConsumerGroupState

    known = [_state(one) for one in ConsumerGroupState]
    for text in texts:
        check_known("--state", text, known)
    return frozenset(map(spelt, texts))


@app.command()
def describe(
    cluster: Cluster,
    group: GroupArgument,
) -> None:
    """Shows a group's committed offsets, lag and members.

    Partitions without a reader are shown if the group has committed an offset there.
    """
    found = _described(cluster, group)
    owners = _owners(found)
    committed = committed_offsets(cluster, group)
    if not owners and not committed and _state(found.state) in ("Dead", "Unknown"):
        why = f"there is no group {group}; raftctl groups list shows all"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)
    keys = sorted({*owners, *committed})
    ends = cluster.ends(keys)
    documents = [_document(group, key, committed, ends, owners) for key in keys]
    idle = [member for member in found.members if not member.assignment.topic_partitions]
    documents += [_idle(group, member) for member in idle]
    rows = [list(one.values()) for one in documents]
    result = {"group": group, "state": _state(found.state), "partitions": documents}
    empty = "nothing is committed, and there are no members"
    cluster.show(result, f"{group}: {_state(found.state)}\n" + table(_COLUMNS, rows, empty))


@app.command()
def delete(
    cluster: Cluster,
    groups: GroupsArgument,
) -> None:
    """Deletes groups without members, and their offsets. Each succeeds or fails on its own."""
    futures = cluster.client.delete_consumer_groups(
        list(dict.fromkeys(groups)), request_timeout=cluster.timeout
    )
    results = [{"group": name, **_deletion(cluster, futures[name])} for name in sorted(futures)]
    failed = [one for one in results if one["error"] is not None]
    rows = [list(one.values()) for one in results]
    text = table(("GROUP", "ERROR", "MESSAGE"), rows)
    if not failed:
        text = f"deleted {', '.join(str(one['group']) for one in results)}"
    cluster.show(results, text)
    if failed:
        names = ", ".join(str(one["group"]) for one in failed)
        raise KafkaError(ErrorCode[str(failed[0]["error"])], f"not deleted: {names}")


def _deletion(cluster: Cluster, future: Any) -> dict[str, str | None]:
    try:
        cluster.wait(future)
    except KafkaError as error:
        return {"error": error.code.name, "message": error.message}
    return {"error": None, "message": None}


@app.command(name="reset-offsets")
def reset_offsets(
    cluster: Cluster,
    group: GroupArgument,
    to: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="earliest, latest, time=MILLISECONDS, offset=N, shift=N or shift=-N.",
        ),
    ],
    topic: TopicsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Shows the new offsets; changes nothing.")
    ] = False,
) -> None:
    """Sets the offsets of a group without members. Without --topic, all that it has committed.

    What lies outside a partition is set to its nearer end.
    """
    where = parse_reset(to)
    found = _described(cluster, group)
    if found.members:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP, f"group {group} has members: stop them, then reset"
        )
    committed = committed_offsets(cluster, group)
    keys = sorted(committed) if topic is None else _chosen(cluster, topic)
    if not keys:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"group {group} has no offsets: name topics with --topic"
        )
    new = reset_to(cluster, where, keys, committed)
    if not dry_run:
        commit_offsets(cluster, group, new)
    documents = [
        {
            "group": group,
            "topic": key.topic,
            "partition": key.partition,
            "old_offset": committed.get(key),
            "new_offset": new[key],
        }
        for key in keys
    ]
    empty = "no offset to change"
    columns = ("GROUP", "TOPIC", "PARTITION", "OLD-OFFSET", "NEW-OFFSET")
    cluster.show_rows(columns, documents, empty)


def _described(cluster: Cluster, group: str) -> Any:
    futures = cluster.client.describe_consumer_groups([group], request_timeout=cluster.timeout)
    return cluster.wait(futures[group])


def _state(state: Any) -> str:
    """As Apache Kafka writes it: PreparingRebalance."""
    return "".join(part.capitalize() for part in str(state.name).split("_"))


def _owners(found: Any) -> dict[PartitionKey, Owner]:
    return {
        PartitionKey(one.topic, one.partition): _owner(member)
        for member in found.members
        for one in member.assignment.topic_partitions
    }


def _owner(member: Any) -> Owner:
    return Owner(member.member_id, member.host or None, member.client_id)


def _document(
    group: str,
    key: PartitionKey,
    committed: Mapping[PartitionKey, int],
    ends: Mapping[PartitionKey, Ends],
    owners: Mapping[PartitionKey, Owner],
) -> dict[str, Any]:
    current, end = committed.get(key), ends.get(key)
    lag = None if current is None or end is None else max(end.latest - current, 0)
    return {
        "group": group,
        "topic": key.topic,
        "partition": key.partition,
        "current_offset": current,
        "log_end_offset": None if end is None else end.latest,
        "lag": lag,
        **owners.get(key, Owner())._asdict(),
    }


def _idle(group: str, member: Any) -> dict[str, Any]:
    """A member that has no partition."""
    nowhere = dict.fromkeys(("topic", "partition", "current_offset", "log_end_offset", "lag"))
    return {"group": group, **nowhere, **_owner(member)._asdict()}


def _chosen(cluster: Cluster, topics: list[str]) -> list[PartitionKey]:
    """The partitions that `--topic` names."""
    known = cluster.topics()
    keys: dict[PartitionKey, None] = {}
    for text in topics:
        name, _, numbers = text.partition(":")
        if name not in known:
            raise no_topic(name)
        there = sorted(known[name].partitions)
        try:
            wanted = [int(one) for one in numbers.split(",")] if numbers else there
        except ValueError:
            raise ConfigError(f"--topic {text}: write TOPIC or TOPIC:0,1,2") from None
        for number in wanted:
            if number not in there:
                text = f"{name} has no partition {number}"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            keys[PartitionKey(name, number)] = None
    return list(keys)


# --- offsets --------------------------------------------------------------------------------------


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


def committed_offsets(cluster: Cluster, group: str) -> dict[PartitionKey, int]:
    """All that the group has committed."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(group)]
    futures = cluster.client.list_consumer_group_offsets(asked, request_timeout=cluster.timeout)
    found = cluster.wait(futures[group]).topic_partitions
    return {
        PartitionKey(one.topic, one.partition): one.offset
        for one in found
        if one.error is None and one.offset >= 0
    }


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[PartitionKey, int]) -> None:
    """Commits in the place of the group, which must have no members."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    partitions = [TopicPartition(*key, offset) for key, offset in offsets.items()]
    asked = [ConsumerGroupTopicPartitions(group, partitions)]
    futures = cluster.client.alter_consumer_group_offsets(asked, request_timeout=cluster.timeout)
    for one in cluster.wait(futures[group]).topic_partitions:
        if one.error is not None:
            raise client_error(one.error.code(), f"{one.topic}-{one.partition}: {one.error.str()}")


def reset_to(
    cluster: Cluster,
    where: Reset,
    keys: Sequence[PartitionKey],
    committed: Mapping[PartitionKey, int],
) -> dict[PartitionKey, int]:
    """The new offset of each partition, inside of it. KafkaError if one cannot be found."""
    from confluent_kafka.admin._listoffsets import OffsetSpec

    ends = cluster.ends(keys)
    times: dict[PartitionKey, int] = {}
    if where.kind == "time":
        kinds: Any = OffsetSpec
        times = cluster.known_offsets(keys, kinds.for_timestamp(where.number))
    new = {}
    for key in keys:
        if key not in ends:
            text = f"{key.topic}-{key.partition} has no leader, or does not exist"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, text)
        try:
            new[key] = reset_offset(where, ends[key], committed.get(key), times.get(key))
        except KafkaError as error:
            text = f"{key.topic}-{key.partition} {error.message}: choose another --to"
            raise KafkaError(error.code, text) from None
    return new
