"""A broker to ask without sockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.apis import Response, dispatch
from broker.apis.handler import Reply
from broker.protocol import codec
from broker.request_context import ClientConnection, RequestContext
from raftctl.security import ANONYMOUS
from tests.kit.pieces import as_bytes
from tests.unit.broker.server.fakes import FakeBroker, broker_record, publish, topic_records

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from raftctl.security import Principal

TOPIC_ID = UUID(int=5)


def new_broker(**keys: str) -> FakeBroker:
    """Brokers 1 (this one) and 2, fenced broker 3, and a topic `t` of two partitions."""
    fake = FakeBroker(num_partitions="3", **keys)
    records = [broker_record(1, 9092), broker_record(2, 9093), broker_record(3, 9094, fenced=True)]
    publish(fake.metadata, [*records, *topic_records("t", TOPIC_ID, 2)])
    return fake


async def ask(
    broker: FakeBroker,
    key: int,
    version: int,
    message: dict[str, Any],
    principal: Principal = ANONYMOUS,
    **connection: Any,
) -> Any:
    """The answer as a client decodes it; None if there is none."""
    return await asked(broker, key, version, message, principal, **connection)


def asked(
    broker: FakeBroker,
    key: int,
    version: int,
    message: dict[str, Any],
    principal: Principal = ANONYMOUS,
    **connection: Any,
) -> Coroutine[Any, Any, Any]:
    """The same, when the request has been taken up already; on a connection of these fields."""
    frame = codec.encode_request(key, version, 77, "test", message)
    client = ClientConnection(host="10.0.0.7", principal=principal, **connection)
    request_context = RequestContext(client)
    return _answer(dispatch(broker.context, frame[4:], request_context), key, version)


async def _answer(reply: Response | Reply[Response], key: int, version: int) -> Any:
    if isinstance(reply, Reply):
        await asyncio.wait_for(reply.wait_until_done(), timeout=5)
        reply = reply.result()
    if reply is None:
        return None
    correlation_id, answer = codec.decode_response(key, version, as_bytes(reply)[4:])
    assert correlation_id == 77
    return answer
