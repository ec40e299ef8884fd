"""Actions on configs, brokers, and transactions that hang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raftctl.console.actions._plan import (
    BROKER_MAX,
    LIST_MAX,
    PARTITION_MAX,
    Plan,
    Results,
    check_config,
    counted,
)
from raftctl.console.actions._topics import no_leader
from raftctl.console.brokers import TRANSACTION_KEY, Partition, check
from raftctl.errors import ErrorCode, KafkaError
from raftctl.http_json import BadFieldError
from raftctl.integers import LONG_MAX
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.plugins import ANY_BROKER

if TYPE_CHECKING:
    from raftctl.console.actions._plan import Acting
    from raftctl.hanging_transactions import OpenTransaction
    from raftctl.http_json import Fields

_BROKER = "broker"
_RESOURCES = {"topic": 2, _BROKER: 4, "client-metrics": 16, "group": 32}
_SET, _DELETE = 0, 1


def alter_configs(acting: Acting, fields: Fields) -> Plan:
    """Set and remove configs of a topic, a broker, all brokers, a group or clients' metrics."""
    kind = fields.text("type")
    if kind not in _RESOURCES:
        raise BadFieldError("type", f"must be one of {', '.join(_RESOURCES)}")
    name = fields.text("name", "" if kind == _BROKER else None)
    asked = ANY_BROKER
    if kind == _BROKER and name:
        # A broker checks its own: only it knows its files.
        if not (name.isascii() and name.isdecimal() and int(name[:10]) <= BROKER_MAX):
            raise BadFieldError("name", "a broker is named by its id; without one, all are meant")
        asked = int(name[:10])
    to_set, to_remove = fields.pairs("set", LIST_MAX), fields.texts("remove", LIST_MAX)
    if not to_set and not to_remove:
        raise BadFieldError("set", "there is nothing to change: name configs in set or remove")
    if twice := sorted(to_set.keys() & set(to_remove)):
        raise BadFieldError(f"set.{twice[0]}", "is in remove as well: keep one of both")
    validate_only = fields.flag("validate_only")

    async def carry_out() -> str:
        configs: list[dict[str, Any]] = [
            *({"name": key, "config_operation": _SET, "value": to_set[key]} for key in to_set),
            *({"name": key, "config_operation": _DELETE, "value": None} for key in to_remove),
        ]
        resource = {"resource_type": _RESOURCES[kind], "resource_name": name, "configs": configs}
        body = {"resources": [resource], "validate_only": validate_only}
        answer = await acting.brokers.ask(
            acting.requester, "INCREMENTAL_ALTER_CONFIGS", body, asked
        )
        [found] = answer["responses"]
        code, message = found["error_code"], found["error_message"]
        check_config(code, message, [*to_set, *to_remove], "set")
        check(code, message)
        changed = ", ".join([*to_set, *to_remove])
        done = "could be" if validate_only else "are" if len(configs) > 1 else "is"
        return f"{changed} of {kind} {name or 'defaults'} {done} changed"

    return Plan(f"{kind} {name}: {', '.join([*to_set, *to_remove])}", carry_out)


def unregister_broker(acting: Acting, fields: Fields) -> Plan:
    """Forget a broker that is gone for good."""
    broker = fields.integer("broker", 0, BROKER_MAX)

    async def carry_out() -> str:
        answer = await acting.ask("UNREGISTER_BROKER", {"broker_id": broker})
        check(answer["error_code"], answer["error_message"])
        return f"broker {broker} is unregistered"

    return Plan(f"broker {broker}", carry_out)


def abort_transaction(acting: Acting, fields: Fields) -> Plan:
    """Abort a transaction that hangs, in one partition or all; others are left alone.

    A transaction that a coordinator knows would lose a part.
    """
    transactional_id = fields.text_or_none("transactional_id")
    producer_id = fields.integer_or_none("producer_id", 0, LONG_MAX)
    topic = fields.text_or_none("topic")
    partition = fields.integer_or_none("partition", 0, PARTITION_MAX)
    if transactional_id is None and producer_id is None and topic is None:
        raise BadFieldError("topic", "name a partition, a producer_id or a transactional_id")
    if (topic is None) != (partition is None):
        raise BadFieldError("partition", "a partition is a topic and a number: name both or none")

    async def carry_out() -> str:
        wanted = producer_id
        if transactional_id is not None:
            wanted = await _producer_of(acting, transactional_id)
        found = [
            one
            for one in await acting.views.hanging(acting.rights)
            if wanted in (None, one.producer_id)
            and topic in (None, one.topic)
            and partition in (None, one.partition)
        ]
        if not found:
            why = "no such transaction hangs: its coordinator ends it, or it has ended"
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, why)
        results = Results()
        for one in found:
            await _abort(acting, one, results)
        results.check()
        return f"{counted(results.done, 'transaction')} aborted in {_places(found)}"

    where = "" if topic is None else f" in {Partition(topic, partition or 0)}"
    who = transactional_id if producer_id is None else f"producer {producer_id}"
    return Plan(f"{who or 'any'}{where}", carry_out)


async def _producer_of(acting: Acting, transactional_id: str) -> int:
    brokers, requester = acting.brokers, acting.requester
    acting.rights.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    coordinator = await brokers.coordinator(requester, TRANSACTION_KEY, transactional_id)
    if coordinator is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    body = {"transactional_ids": [transactional_id]}
    answer = await brokers.ask(requester, "DESCRIBE_TRANSACTIONS", body, coordinator)
    [found] = answer["transaction_states"]
    check(found["error_code"])
    producer_id: int = found["producer_id"]
    return producer_id


async def _abort(acting: Acting, one: OpenTransaction, results: Results) -> None:
    where = Partition(one.topic, one.partition)
    leader = next(iter(acting.brokers.leaders([where])), None)
    if leader is None:
        raise no_leader(where)
    marker = {
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": one.topic, "partition_indexes": [one.partition]}],
        # A producer that has had no marker yet has no coordinator's epoch either.
        "coordinator_epoch": max(one.coordinator_epoch, 0),
        "transaction_version": 0,
    }
    body = {"markers": [marker]}
    answer = await acting.brokers.ask(acting.requester, "WRITE_TXN_MARKERS", body, leader)
    for written in answer["markers"]:
        for each in written["topics"]:
            for result in each["partitions"]:
                results.add(str(where), result["error_code"], None)


def _places(found: list[OpenTransaction]) -> str:
    names = [str(Partition(one.topic, one.partition)) for one in found[:10]]
    return ", ".join(names) + (", …" if len(found) > 10 else "")
