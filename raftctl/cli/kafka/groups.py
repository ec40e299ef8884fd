"""`raftctl groups`: over the Kafka protocol, with the columns of `kafka-consumer-groups`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from raftctl.cli._arguments import check_known, none_empty, not_empty, spelt
from raftctl.cli._output import BootstrapOption, Output, OutputOption, say_progress, show, table
from raftctl.cli.kafka._group_offsets import (
    Ends,
    PartitionKey,
    commit_offsets,
    committed_offsets,
    ends_of,
    parse_reset,
    reset_to,
    waited,
)
from raftctl.cli.kafka.admin import TIMEOUT_S, TimeoutOption, admin_client, topics_metadata
from raftctl.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

app = typer.Typer(
    help="Shows consumer groups; resets offsets; deletes groups.", no_args_is_help=True
)

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


class Owner(NamedTuple):
    """Who reads a partition."""

    consumer_id: str | None = None
    host: str | None = None
    client_id: str | None = None


@app.command(name="list")
def list_groups(
    bootstrap_server: BootstrapOption,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only groups in this state; may be repeated."),
    ] = None,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Lists groups and their states."""
    wanted = parse_states(state or ())
    client = admin_client(bootstrap_server)
    found = waited(client.list_consumer_groups(request_timeout=timeout), timeout)
    documents = [
        {"group": one.group_id, "state": _state(one.state), "simple": one.is_simple_consumer_group}
        for one in sorted(found.valid, key=lambda one: str(one.group_id))
        if not wanted or spelt(one.state.name) in wanted
    ]
    for error in found.errors:
        say_progress(f"a coordinator did not answer: {error}")
    rows = [(one["group"], one["state"]) for one in documents]
    empty = "no group is in these states" if wanted else "there are no groups"
    show(output, documents, table(("GROUP", "STATE"), rows, empty))


def parse_states(texts: Sequence[str]) -> frozenset[str]:
    """The states as `spelt` writes them; ConfigError for what no group can be."""
    from confluent_kafka import ConsumerGroupState

    known = [_state(one) for one in ConsumerGroupState]
    for text in texts:
        check_known("--state", text, known)
    return frozenset(map(spelt, texts))


@app.command()
def describe(
    bootstrap_server: BootstrapOption,
    group: GroupArgument,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Shows a group's committed offsets, lag and members.

    Partitions that nobody reads now are shown if the group has committed an offset there.
    """
    client = admin_client(bootstrap_server)
    found = _described(client, group, timeout)
    owners = _owners(found)
    committed = committed_offsets(client, group, timeout)
    if not owners and not committed and _state(found.state) in ("Dead", "Unknown"):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}")
    keys = sorted({*owners, *committed})
    ends = ends_of(client, keys, timeout)
    documents = [_document(group, key, committed, ends, owners) for key in keys]
    idle = [member for member in found.members if not member.assignment.topic_partitions]
    documents += [_idle(group, member) for member in idle]
    rows = [list(one.values()) for one in documents]
    result = {"group": group, "state": _state(found.state), "partitions": documents}
    empty = "nothing is committed, and there are no members"
    show(output, result, f"{group}: {_state(found.state)}\n" + table(_COLUMNS, rows, empty))


@app.command()
def delete(
    bootstrap_server: BootstrapOption,
    groups: GroupsArgument,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Deletes groups without members, and their offsets. Each succeeds or fails on its own."""
    client = admin_client(bootstrap_server)
    futures = client.delete_consumer_groups(list(dict.fromkeys(groups)), request_timeout=timeout)
    results = [{"group": name, **_deletion(futures[name], timeout)} for name in sorted(futures)]
    failed = [one for one in results if one["error"] is not None]
    rows = [list(one.values()) for one in results]
    text = table(("GROUP", "ERROR", "MESSAGE"), rows)
    if not failed:
        text = f"deleted {', '.join(str(one['group']) for one in results)}"
    show(output, results, text)
    if failed:
        names = ", ".join(str(one["group"]) for one in failed)
        raise KafkaError(ErrorCode[str(failed[0]["error"])], f"not deleted: {names}")


def _deletion(future: Any, timeout_s: float) -> dict[str, str | None]:
    try:
        waited(future, timeout_s)
    except KafkaError as error:
        return {"error": error.code.name, "message": error.message}
    return {"error": None, "message": None}


@app.command(name="reset-offsets")
def reset_offsets(
    bootstrap_server: BootstrapOption,
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
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Sets the offsets of a group without members. Without --topic, all that it has committed.

    What lies outside a partition is set to its nearer end.
    """
    where = parse_reset(to)
    client = admin_client(bootstrap_server)
    found = _described(client, group, timeout)
    if found.members:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP, f"group {group} has members: stop them, then reset"
        )
    committed = committed_offsets(client, group, timeout)
    keys = sorted(committed) if topic is None else _chosen(client, topic, timeout)
    if not keys:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"group {group} has no offsets: name topics with --topic"
        )
    new = reset_to(client, where, keys, committed, timeout)
    if not dry_run:
        commit_offsets(client, group, new, timeout)
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
    show(output, documents, table(columns, [list(one.values()) for one in documents], empty))


def _described(client: Any, group: str, timeout_s: float) -> Any:
    futures = client.describe_consumer_groups([group], request_timeout=timeout_s)
    return waited(futures[group], timeout_s)


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


def _chosen(client: Any, topics: list[str], timeout_s: float) -> list[PartitionKey]:
    """The partitions that `--topic` names."""
    known = topics_metadata(client, timeout_s)
    keys: dict[PartitionKey, None] = {}
    for text in topics:
        name, _, numbers = text.partition(":")
        if name not in known:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
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
