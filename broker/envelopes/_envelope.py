"""The contents of an envelope: a request, its principal, its host; and who may be named so."""

from __future__ import annotations

import ipaddress
import struct
from typing import TYPE_CHECKING, Any

from broker.protocol import REQUIRED, Field, Struct, joined, struct_decoder, struct_encoder
from broker.protocol.codec import MalformedError
from broker.protocol.versions import ApiKey
from broker.request_context import host_text
from raftctl.errors import ErrorCode, KafkaError
from raftctl.security import Principal, Requester

if TYPE_CHECKING:
    from raftctl.runtime.api import Buffer, Piece

VERSION = 0
"""The only one of ENVELOPE."""
REQUEST_BYTES_MAX = 1 << 20
"""Of the request in an envelope."""
RESPONSE_BYTES_MAX = 16 << 20
"""Of its response: 100,000 partitions of a broker's log directories are some 6 MB."""
CARRIED = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_DELETE,
        ApiKey.FIND_COORDINATOR,
        ApiKey.LEAVE_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.UNREGISTER_BROKER,
    }
)
"""The requests that may travel: those by which people look at a cluster and change it.

Logins, passwords and tokens stay with the connection of whom they are about. So does what makes a
client a member or a producer.
"""

_PRINCIPAL_VERSION = struct.Struct(">h")
_PRINCIPAL = Struct(
    "DefaultPrincipalData",
    flexible=True,
    flexible_header=True,
    fields=(
        Field("type", "string", False, False, -1, REQUIRED, None),
        Field("name", "string", False, False, -1, REQUIRED, None),
        Field("token_authenticated", "bool", False, False, -1, REQUIRED, None),
    ),
)
"""The only version of Apache Kafka's principal in an envelope."""
_encode_principal = struct_encoder(_PRINCIPAL)
_decode_principal = struct_decoder(_PRINCIPAL)


def envelope(request: bytes, requester: Requester) -> dict[str, Any]:
    """Return the body of the envelope around a request, its header included, without a length.

    KafkaError(INVALID_REQUEST) if the requester's host is no address, MESSAGE_TOO_LARGE.
    """
    if len(request) > REQUEST_BYTES_MAX:
        text = f"the request has {len(request)} bytes, at most {REQUEST_BYTES_MAX}: ask in parts"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
    kind, name = requester.principal
    message = {"type": kind, "name": name, "token_authenticated": False}

    def encode(pieces: list[Piece]) -> None:
        _encode_principal(message, pieces)

    return {
        "request_data": request,
        "request_principal": _PRINCIPAL_VERSION.pack(VERSION) + joined(encode),
        "client_host_address": host_address(requester.host),
    }


def requester_in(principal: Buffer | None, host: Buffer) -> Requester:
    """Return for whom an envelope is sent.

    Raises KafkaError: PRINCIPAL_DESERIALIZATION_FAILURE; INVALID_REQUEST for what is no address.
    """
    fields = _principal_fields(principal)
    try:
        address = ipaddress.ip_address(bytes(host))
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"bad host address: {error}") from error
    return Requester(Principal(fields["type"], fields["name"]), host_text(address))


def _principal_fields(data: Buffer | None) -> dict[str, str]:
    problem = "it is missing, empty or of another version"
    try:
        if data is not None and _PRINCIPAL_VERSION.unpack_from(data) == (VERSION,):
            fields: dict[str, str]
            fields, end = _decode_principal(bytes(data), _PRINCIPAL_VERSION.size)
            if end == len(data) and fields["type"] and fields["name"]:
                return fields
            problem = "it has no name, or something follows it"
    except (struct.error, IndexError, ValueError, MalformedError) as error:
        problem = str(error)
    code = ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    raise KafkaError(code, f"the principal cannot be read: {problem}")


def host_address(host: str) -> bytes:
    """Return the bytes of an address; KafkaError(INVALID_REQUEST) if it is none."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the host is no address: {error}") from error
