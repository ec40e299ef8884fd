"""Actions on topics and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raftctl.console.actions._plan import (
    BROKER_MAX,
    LIST_MAX,
    PARTITION_MAX,
    TIMEOUT_MS,
    Plan,
    Results,
    check_config,
    check_field,
    counted,
    partitions_of,
)
from raftctl.console.brokers import Partition, by_topic, check
from raftctl.errors import ErrorCode, KafkaError
from raftctl.http_json import BadFieldError
from raftctl.integers import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raftctl.console.actions._plan import Acting
    from raftctl.http_json import Fields

_DEFAULT = -1
_REPLICAS_MAX = 32_767
_OF_CREATION = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "name",
    ErrorCode.INVALID_PARTITIONS: "partitions",
    ErrorCode.INVALID_REPLICATION_FACTOR: "replication_factor",
}
_ELECTIONS = {"preferred": 0, "unclean": 1}


def create_topic(acting: Acting, fields: Fields) -> Plan:
    """Create a topic; partitions and replicas that are not given are the cluster's defaults."""
    name = fields.text("name")
    partitions = fields.integer_or_none("partitions", 1, PARTITION_MAX)
    replicas = fields.integer_or_none("replication_factor", 1, _REPLICAS_MAX)
    configs = fields.pairs("configs", LIST_MAX)
    validate_only = fields.flag("validate_only")
    topic = {
        "name": name,
        "num_partitions": _DEFAULT if partitions is None else partitions,
        "replication_factor": _DEFAULT if replicas is None else replicas,
        "assignments": (),
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }

    async def carry_out() -> str:
        body = {"topics": [topic], "timeout_ms": TIMEOUT_MS, "validate_only": validate_only}
        [found] = (await acting.ask("CREATE_TOPICS", body))["topics"]
        code, message = found["error_code"], found["error_message"]
        check_config(code, message, configs, "configs")
        check_field(code, message, _OF_CREATION)
        size = counted(found["num_partitions"], "partition") if found["num_partitions"] > 0 else ""
        could = "could be" if validate_only else "is"
        return f"topic {name} {could} created" + (f" with {size}" if size else "")

    return Plan(name, carry_out)


def delete_topic(acting: Acting, fields: Fields) -> Plan:
    """Delete a topic with its records."""
    name = fields.text("name")

    async def carry_out() -> str:
        body = {"topics": [{"name": name, "topic_id": None}], "timeout_ms": TIMEOUT_MS}
        [found] = (await acting.ask("DELETE_TOPICS", body))["responses"]
        check(found["error_code"], found["error_message"])
        return f"topic {name} is deleted"

    return Plan(name, carry_out)


def create_partitions(acting: Acting, fields: Fields) -> Plan:
    """Add partitions to a topic; `count` is the number of all."""
    name, count = fields.text("topic"), fields.integer("count", 1, PARTITION_MAX)
    validate_only = fields.flag("validate_only")

    async def carry_out() -> str:
        topic = {"name": name, "count": count, "assignments": None}
        body = {"topics": [topic], "timeout_ms": TIMEOUT_MS, "validate_only": validate_only}
        [found] = (await acting.ask("CREATE_PARTITIONS", body))["results"]
        of_count = {ErrorCode.INVALID_PARTITIONS: "count"}
        check_field(found["error_code"], found["error_message"], of_count)
        has = "could have" if validate_only else "has"
        return f"topic {name} {has} {counted(count, 'partition')}"

    return Plan(name, carry_out)


def delete_records(acting: Acting, fields: Fields) -> Plan:
    """Delete the records of a partition before an offset; -1: all that are committed."""
    one = Partition(fields.text("topic"), fields.integer("partition", 0, PARTITION_MAX))
    before = fields.integer("before", -1, LONG_MAX)

    async def carry_out() -> str:
        leader = next(iter(acting.brokers.leaders([one])), None)
        if leader is None:
            raise no_leader(one)
        offset = {"partition_index": one.partition, "offset": before}
        body = {"topics": by_topic([one], lambda _: offset), "timeout_ms": TIMEOUT_MS}
        answer = await acting.brokers.ask(acting.requester, "DELETE_RECORDS", body, leader)
        [found] = answer["topics"][0]["partitions"]
        of_offset = {ErrorCode.OFFSET_OUT_OF_RANGE: "before"}
        check_field(found["error_code"], None, of_offset)
        return f"{one} begins at offset {found['low_watermark']} now"

    return Plan(str(one), carry_out)


def no_leader(one: Partition) -> KafkaError:
    """Return the error for a partition that is not there, or that nobody leads."""
    why = f"{one} does not exist, or has no leader: see the view of its topic"
    return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, why)


def elect_leaders(acting: Acting, fields: Fields) -> Plan:
    """Have leaders elected: the preferred replicas, or any replica that is there."""
    kind = fields.text("election", "preferred")
    if kind not in _ELECTIONS:
        raise BadFieldError("election", f"must be {' or '.join(_ELECTIONS)}")
    named = fields.objects_or_none("partitions", LIST_MAX)
    asked = None
    if named is not None:
        asked = [
            Partition(one.text("topic"), one.integer("partition", 0, PARTITION_MAX))
            for one in named
        ]
        for one in named:
            one.end()

    async def carry_out() -> str:
        topics = None
        if asked is not None:
            topics = by_topic(asked, lambda one: one.partition, name="topic")
        body = {
            "election_type": _ELECTIONS[kind],
            "topic_partitions": topics,
            "timeout_ms": TIMEOUT_MS,
        }
        answer = await acting.ask("ELECT_LEADERS", body)
        check(answer["error_code"])
        results = Results([ErrorCode.ELECTION_NOT_NEEDED])
        for topic in answer["replica_election_results"]:
            for found in topic["partition_result"]:
                what = str(Partition(topic["topic"], found["partition_id"]))
                results.add(what, found["error_code"], found["error_message"])
        results.check()
        idle = f"; {results.idle} needed none" if results.idle else ""
        if not results.done:
            return f"no leader had to be elected ({kind})"
        return f"{counted(results.done, 'leader')} elected ({kind}){idle}"

    subject = "all partitions" if asked is None else ", ".join(map(str, asked[:10]))
    return Plan(subject, carry_out)


def reassign(acting: Acting, fields: Fields) -> Plan:
    """Move partitions to other replicas."""
    wanted: dict[Partition, list[int] | None] = {}
    for topic, number, one in partitions_of(fields):
        replicas = one.integers_or_none("replicas", BROKER_MAX, LIST_MAX)
        one.end()
        if replicas is None:
            raise BadFieldError("partitions", "has one without replicas: name the brokers")
        wanted[Partition(topic, number)] = replicas
    return _reassignment(acting, wanted, "moves to other replicas: see the reassignments")


def cancel_reassignment(acting: Acting, fields: Fields) -> Plan:
    """Have partitions keep the replicas that they had before they began to move."""
    wanted: dict[Partition, list[int] | None] = {}
    for topic, number, one in partitions_of(fields):
        one.end()
        wanted[Partition(topic, number)] = None
    return _reassignment(acting, wanted, "keeps its replicas")


def _reassignment(acting: Acting, wanted: Mapping[Partition, list[int] | None], done: str) -> Plan:
    async def carry_out() -> str:
        def form(one: Partition) -> dict[str, Any]:
            return {"partition_index": one.partition, "replicas": wanted[one]}

        body = {
            "timeout_ms": TIMEOUT_MS,
            "allow_replication_factor_change": True,
            "topics": by_topic(wanted, form),
        }
        answer = await acting.ask("ALTER_PARTITION_REASSIGNMENTS", body)
        check(answer["error_code"], answer["error_message"])
        results = Results()
        for topic in answer["responses"]:
            for found in topic["partitions"]:
                what = str(Partition(topic["name"], found["partition_index"]))
                results.add(what, found["error_code"], found["error_message"])
        results.check()
        first = next(iter(wanted))
        more = f", as {counted(len(wanted) - 1, 'other')}" if len(wanted) > 1 else ""
        return f"{first} {done}{more}"

    return Plan(", ".join(map(str, list(wanted)[:10])), carry_out)
