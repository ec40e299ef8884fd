"""From a frame to the bytes of its answer: which handler, which errors, which version.

The one place where exceptions become error codes. An api or version that is not served closes the
connection, as Apache Kafka does: the client cannot know how to read an answer. ApiVersions is the
exception (KIP-511).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from broker.apis._slices import SLICE_ITEMS, WHOLE_ITEMS_MAX, joined, may_be_handled, slices
from broker.apis.administration import (
    acls,
    alter_configs,
    config_resources,
    configs,
    elections,
    forwarding,
    quorum,
    quotas,
    reassignments,
    scram,
    topics,
)
from broker.apis.consumer import consumer_groups, group_admin, group_offsets, groups
from broker.apis.data import fetch, log_admin, offsets, produce
from broker.apis.discovery import cluster, coordinators, metadata, sasl
from broker.apis.handler import Answer, ApiContext, Encoded, HangUpError, Reply
from broker.apis.transactional import transaction_admin, transactions
from broker.protocol.codec import (
    Request,
    RequestHeader,
    decode_body,
    decode_header,
    encode_response,
    frame_response,
)
from broker.protocol.versions import SERVED, ApiKey
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from broker.protocol.codec import Frame, Message
    from raftctl.runtime.api import Piece


Handler = Callable[[ApiContext, Request[Any]], Answer | Reply[Answer] | Coroutine[Any, Any, Answer]]


class Api(NamedTuple):
    """Who answers a kind of request, and how it is refused as a whole."""

    handle: Handler
    refuse: Callable[[ApiContext, Request[Any], KafkaError], Answer]


Response = list["Piece"] | None
"""A whole frame, in pieces; None if the client expects none."""

APIS: dict[int, Api] = {
    ApiKey.PRODUCE: Api(produce.handle, produce.refuse),
    ApiKey.FETCH: Api(fetch.handle, fetch.refuse),
    ApiKey.LIST_OFFSETS: Api(offsets.handle_list_offsets, offsets.refuse_list_offsets),
    ApiKey.METADATA: Api(metadata.handle, metadata.refuse),
    ApiKey.OFFSET_COMMIT: Api(group_offsets.handle_commit, group_offsets.refuse_commit),
    ApiKey.OFFSET_FETCH: Api(group_offsets.handle_fetch, group_offsets.refuse_fetch),
    ApiKey.FIND_COORDINATOR: Api(coordinators.handle, coordinators.refuse),
    ApiKey.JOIN_GROUP: Api(groups.handle_join, groups.refuse_join),
    ApiKey.HEARTBEAT: Api(groups.handle_heartbeat, groups.refuse_heartbeat),
    ApiKey.LEAVE_GROUP: Api(groups.handle_leave, groups.refuse_leave),
    ApiKey.SYNC_GROUP: Api(groups.handle_sync, groups.refuse_sync),
    ApiKey.DESCRIBE_GROUPS: Api(group_admin.handle_describe, group_admin.refuse_describe),
    ApiKey.LIST_GROUPS: Api(group_admin.handle_list, group_admin.refuse_list),
    ApiKey.API_VERSIONS: Api(cluster.handle_api_versions, cluster.refuse_api_versions),
    ApiKey.CREATE_TOPICS: Api(topics.handle_create, topics.refuse_create),
    ApiKey.DELETE_TOPICS: Api(topics.handle_delete, topics.refuse_delete),
    ApiKey.DELETE_RECORDS: Api(log_admin.handle_delete_records, log_admin.refuse_delete_records),
    ApiKey.INIT_PRODUCER_ID: Api(transactions.handle_init, transactions.refuse_init),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Api(offsets.handle_leader_epochs, offsets.refuse_leader_epochs),
    ApiKey.ADD_PARTITIONS_TO_TXN: Api(
        transactions.handle_add_partitions, transactions.refuse_add_partitions
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Api(
        transactions.handle_add_offsets, transactions.refuse_add_offsets
    ),
    ApiKey.END_TXN: Api(transactions.handle_end, transactions.refuse_end),
    ApiKey.TXN_OFFSET_COMMIT: Api(
        group_offsets.handle_commit_in_transaction, group_offsets.refuse_commit_in_transaction
    ),
    ApiKey.WRITE_TXN_MARKERS: Api(
        transaction_admin.handle_markers, transaction_admin.refuse_markers
    ),
    ApiKey.DESCRIBE_PRODUCERS: Api(
        transaction_admin.handle_producers, transaction_admin.refuse_producers
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Api(
        transaction_admin.handle_describe, transaction_admin.refuse_describe
    ),
    ApiKey.LIST_TRANSACTIONS: Api(transaction_admin.handle_list, transaction_admin.refuse_list),
    ApiKey.DESCRIBE_CONFIGS: Api(configs.handle, configs.refuse),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Api(
        log_admin.handle_alter_replica_log_dirs, log_admin.refuse_alter_replica_log_dirs
    ),
    ApiKey.DESCRIBE_LOG_DIRS: Api(
        log_admin.handle_describe_log_dirs, log_admin.refuse_describe_log_dirs
    ),
    ApiKey.SASL_HANDSHAKE: Api(sasl.handle, sasl.refuse_handshake),
    ApiKey.SASL_AUTHENTICATE: Api(sasl.handle, sasl.refuse_authenticate),
    ApiKey.CREATE_PARTITIONS: Api(
        forwarding.handle_create_partitions, forwarding.refuse_create_partitions
    ),
    ApiKey.ALTER_CONFIGS: Api(alter_configs.handle, alter_configs.refuse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Api(alter_configs.handle_incremental, alter_configs.refuse),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Api(reassignments.handle, reassignments.refuse),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Api(reassignments.handle_list, reassignments.refuse_list),
    ApiKey.DESCRIBE_ACLS: Api(acls.handle_describe, acls.refuse_describe),
    ApiKey.CREATE_ACLS: Api(acls.handle_create, acls.refuse_create),
    ApiKey.DELETE_ACLS: Api(acls.handle_delete, acls.refuse_delete),
    ApiKey.OFFSET_DELETE: Api(group_offsets.handle_delete, group_offsets.refuse_delete),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Api(quotas.handle_describe, quotas.refuse_describe),
    ApiKey.ALTER_CLIENT_QUOTAS: Api(quotas.handle_alter, quotas.refuse_alter),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Api(scram.handle_describe, scram.refuse_describe),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Api(scram.handle_alter, scram.refuse_alter),
    ApiKey.DESCRIBE_QUORUM: Api(quorum.handle_describe, quorum.refuse_describe),
    ApiKey.UPDATE_FEATURES: Api(quorum.handle_features, quorum.refuse_features),
    ApiKey.UNREGISTER_BROKER: Api(quorum.handle_unregister, quorum.refuse_unregister),
    ApiKey.DELETE_GROUPS: Api(group_admin.handle_delete, group_admin.refuse_delete),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Api(
        consumer_groups.handle_heartbeat, consumer_groups.refuse_heartbeat
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Api(
        consumer_groups.handle_describe, consumer_groups.refuse_describe
    ),
    ApiKey.ELECT_LEADERS: Api(elections.handle, elections.refuse),
    ApiKey.DESCRIBE_CLUSTER: Api(cluster.handle_describe_cluster, cluster.refuse_describe_cluster),
    ApiKey.LIST_CONFIG_RESOURCES: Api(config_resources.handle, config_resources.refuse),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Api(
        topics.handle_describe_partitions, topics.refuse_describe_partitions
    ),
}


_LARGE_BYTES = 64 * 1024
"""Of a request: to decode more may take the event loop some ten milliseconds."""
_TOO_MANY = f"the arrays of this request may have {WHOLE_ITEMS_MAX} elements together: ask in parts"


def dispatch(
    context: ApiContext, frame: Frame, client_host: str = ""
) -> Response | Reply[Response]:
    """Starts the request in this frame; what it does to a log is done on return.

    MalformedError and HangUpError mean that the connection must be closed. A request that takes
    long to decode is decoded by a worker, unless it is a Produce: there the records are long.
    """
    header, position = decode_header(frame)
    if header.version not in SERVED.get(header.api_key, ()):
        return _refuse_version(header)
    decode = partial(decode_body, frame, header, position, client_host)
    if len(frame) > _LARGE_BYTES and header.api_key != ApiKey.PRODUCE:
        return Reply.run(_answer_large(context, decode))
    request = decode()
    # An element takes a byte at least.
    if len(frame) > SLICE_ITEMS and (parts := slices(request)) is not None:
        return Reply.run(_answer_slices(context, request, parts))
    api = APIS[request.api_key]
    answer = _guard(context, request, lambda: api.handle(context, request))
    if isinstance(answer, Coroutine):
        answer = Reply.run(answer)
    if isinstance(answer, Reply):
        return answer.then(lambda result: _encode(request, _guard(context, request, result)))
    return _encode(request, answer)


async def _answer_large(context: ApiContext, decode: Callable[[], Request[Any]]) -> Response:
    """Decodes, takes apart and encodes on the worker; only what is between is done here.

    INVALID_REQUEST of what has too many elements to be handled in one turn, and cannot be taken
    apart.
    """
    request = await context.aside(decode)
    parts = await context.aside(partial(slices, request))
    if parts is not None:
        return await _answer_slices(context, request, parts)
    if not await context.aside(partial(may_be_handled, request)):
        refusal = KafkaError(ErrorCode.INVALID_REQUEST, _TOO_MANY)
        refuse = partial(APIS[request.api_key].refuse, context, request, refusal)
        return await _encode_aside(context, request, await context.aside(refuse))
    return _encode(request, await _handled(context, request))


async def _answer_slices(
    context: ApiContext, request: Request[Any], parts: list[Request[Any]]
) -> Response:
    answers: list[Message] = []
    for part in parts:
        answer = await _handled(context, part)
        invariant(isinstance(answer, Mapping), "the answer to a slice can be joined with others")
        answers.append(cast("Message", answer))
        await asyncio.sleep(0)
    whole = await context.aside(partial(joined, request, answers))
    return await _encode_aside(context, request, whole)


async def _handled(context: ApiContext, request: Request[Any]) -> Answer:
    """The answer of the handler, however long it takes, or the refusal."""
    answer = _guard(context, request, lambda: APIS[request.api_key].handle(context, request))
    if isinstance(answer, Coroutine):
        answer = Reply.run(answer)
    if isinstance(answer, Reply):
        await answer.wait_until_done()
        answer = _guard(context, request, answer.result)
    return cast("Answer", answer)


async def _encode_aside(context: ApiContext, request: Request[Any], answer: Answer) -> Response:
    pieces: list[Piece] | None = await context.aside(partial(_encode, request, answer))
    return pieces


def _refuse_version(header: RequestHeader) -> list[Piece]:
    if header.api_key != ApiKey.API_VERSIONS:
        raise HangUpError(f"api {header.api_key} version {header.version} is not supported")
    body = cluster.api_versions_body(0, ErrorCode.UNSUPPORTED_VERSION)
    return frame_response(ApiKey.API_VERSIONS, 0, header.correlation_id, [body])


def _guard(context: ApiContext, request: Request[Any], call: Callable[[], Any]) -> Any:
    """Turns what the call raises into the refusal of the request."""
    try:
        return call()
    except HangUpError:
        raise
    except KafkaError as error:
        return APIS[request.api_key].refuse(context, request, error)
    except Exception as error:
        context.log.exception("request_failed", api=ApiKey(request.api_key).name)
        failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")
        return APIS[request.api_key].refuse(context, request, failure)


def _encode(request: Request[Any], answer: Answer) -> Response:
    key, version, correlation_id = request.api_key, request.version, request.correlation_id
    if answer is None:
        return None
    if isinstance(answer, Encoded):
        return frame_response(key, version, correlation_id, [answer.body])
    return encode_response(key, version, correlation_id, answer)
