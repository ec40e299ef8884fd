"""kafka-python's administrator, for what librdkafka's cannot ask."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka.admin import KafkaAdminClient

_MESSAGE = re.compile(r"error_message=(['\"])(.+?)\1[,)]")
"""Where the broker's own words stand in the exception, between request and response."""


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
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"{bootstrap}: {error}") from None
    try:
        yield client
    except ClientError as error:
        known = getattr(error, "errno", None) in ErrorCode._value2member_map_
        code = ErrorCode(error.errno) if known else ErrorCode.BROKER_NOT_AVAILABLE
        told = _MESSAGE.search(str(error))
        raise KafkaError(code, told[2] if told else str(error)) from None
    finally:
        client.close()
