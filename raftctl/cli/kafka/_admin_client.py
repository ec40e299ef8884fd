"""kafka-python's administrator, for what librdkafka's cannot ask."""

from __future__ import annotations

import contextlib
import re
import types
from typing import TYPE_CHECKING, Any

from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError as ClientError

_MESSAGE = re.compile(r"error_message=(['\"])(.+?)\1[,)]")
"""Where the broker's own words stand in the exception, between request and response."""
_RESPONSE = "failed with response"
_NUMBER_AND_NAME = re.compile(r"^(\[Error [0-9]+\] )?\w+: ")


@contextlib.contextmanager
def open_admin(bootstrap: str, timeout_s: float) -> Iterator[KafkaAdminClient]:
    """A client for the time of the block. Whatever it raises becomes a KafkaError."""
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError as ClientError

    try:
        client = KafkaAdminClient(
            bootstrap_servers=bootstrap.split(","),
            request_timeout_ms=int(timeout_s * 1000),
            bootstrap_timeout_ms=int(timeout_s * 1000),
        )
    except (ClientError, ValueError) as error:
        message = f"--bootstrap-server {bootstrap}: no broker answers there: {error}"
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, message) from None
    try:
        yield client
    except ClientError as error:
        known = getattr(error, "errno", None) in ErrorCode._value2member_map_
        code = ErrorCode(error.errno) if known else ErrorCode.BROKER_NOT_AVAILABLE
        raise KafkaError(code, _words(error, code)) from None
    finally:
        client.close()


def _words(error: ClientError, code: ErrorCode) -> str:
    """What there is to read in an exception, which may hold a whole request and its answer."""
    told = _MESSAGE.search(str(error))
    if told:
        return told[2]
    if _RESPONSE in str(error):
        return code.text
    return _NUMBER_AND_NAME.sub("", str(error))


def send(client: KafkaAdminClient, request: Any, broker_id: int | None = None) -> dict[str, Any]:
    """Sends what the client has a message for but no method, to this broker or else to any.

    KafkaError(BROKER_NOT_AVAILABLE) if the cluster has no such broker now.
    """
    if broker_id is not None:
        check_broker(client, broker_id)
    manager = client._manager
    answer: dict[str, Any] = manager.run(manager.send, request, broker_id).to_dict()
    return answer


def check_broker(client: KafkaAdminClient, broker_id: int) -> None:
    """KafkaError(BROKER_NOT_AVAILABLE) if the cluster has no such broker now."""
    cluster = client._manager.cluster
    if cluster.broker_metadata(broker_id) is None:
        known = ", ".join(map(str, sorted(one.node_id for one in cluster.brokers())))
        message = f"there is no broker {broker_id} now; there are {known}"
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, message)


def check(answer: dict[str, Any]) -> None:
    """KafkaError if the answer, or the part of one, tells of an error."""
    if answer["error_code"] != ErrorCode.NONE:
        code = ErrorCode(answer["error_code"])
        raise KafkaError(code, answer["error_message"] or code.text)


def message_class(name: str) -> Any:
    """The class of a request or response that `raftctl.cli.messages` describes."""
    from kafka.protocol.api_message import ApiMessage

    return types.new_class(name, (ApiMessage,), {"load_json": "raftctl.cli.messages"})
