"""The side that asks brokers as somebody else; see `raftctl.plugins.BrokerClient`."""

from __future__ import annotations

import asyncio
import ipaddress
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.envelopes._connections import BrokerConnections
from broker.envelopes._envelope import VERSION, envelope, host_address
from broker.envelopes._records import read_batches
from broker.protocol.codec import MalformedError, decode_response, encode_request
from broker.protocol.versions import SERVED, ApiKey
from broker.request_context import host_text
from raftctl.errors import ErrorCode, KafkaError
from raftctl.plugins import ANY_BROKER
from raftctl.security import Requester
from raftctl.tracing import followed_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.envelopes._server import LocalBroker
    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataImage
    from raftctl.plugins import ReadBatch
    from raftctl.runtime.api import Runtime
    from raftctl.security import Principal

CLIENT_ID = "raftctl-console"
"""By which quotas know the requests."""
_LENGTH_BYTES = 4
_ASIDE_BYTES = 64 << 10
"""Of a response: to decode more keeps the event loop some milliseconds."""
_MUTED_MAX = 1_000


class EnvelopeClient:
    """Asks brokers; `close` it. See `raftctl.plugins.BrokerClient`."""

    def __init__(
        self,
        config: NodeConfig,
        runtime: Runtime,
        image: Callable[[], MetadataImage],
        local: LocalBroker | None = None,
    ) -> None:
        """`local` is the broker of this node, which is asked in process."""
        self._node_id = config.node_id
        self._image = image
        self._local = local
        self._connections = BrokerConnections(config, runtime, image)
        self._worker = runtime.worker("broker-client")
        self._muted: dict[Principal, float] = {}
        """Until when a quota has a principal wait, by the event loop's time."""
        self._turn = 0
        self._loop = asyncio.get_running_loop()

    async def ask(
        self,
        broker_id: int,
        api: str,
        body: Mapping[str, Any],
        requester: Requester,
        timeout_ms: int,
    ) -> Mapping[str, Any]:
        """See `raftctl.plugins.BrokerClient.ask`."""
        self._check_quota(requester.principal)
        requester = Requester(requester.principal, _host(requester.host))
        key = ApiKey[api]
        version = SERVED[key].stop - 1
        request = encode_request(key, version, 0, CLIENT_ID, body)[_LENGTH_BYTES:]
        deadline = self._loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                data = await self._answer(broker_id, request, requester, timeout_ms)
        except TimeoutError:
            text = f"broker {broker_id} has not answered {api} in {timeout_ms} ms"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from None
        decode = partial(_decoded, key, version, data)
        message = await self._worker.submit(decode) if len(data) > _ASIDE_BYTES else decode()
        self._note_throttling(requester.principal, message)
        return message

    async def read(
        self, records: bytes, from_offset: int, records_max: int, payload_bytes_max: int
    ) -> Sequence[ReadBatch]:
        """See `raftctl.plugins.BrokerClient.read`."""
        pause = self._worker.pause
        call = partial(read_batches, records, from_offset, records_max, payload_bytes_max, pause)
        return await self._worker.submit(call)

    async def close(self) -> None:
        """Close the connections."""
        self._connections.close()
        self._worker.close()

    async def _answer(
        self, broker_id: int, request: bytes, requester: Requester, timeout_ms: int
    ) -> bytes:
        if broker_id == ANY_BROKER:
            return await self._answer_of_any(request, requester, timeout_ms)
        if self._local is not None and broker_id == self._node_id:
            return await self._local.answer(request, requester, followed_id())
        message = envelope(request, requester)
        answer = await self._connections.call(
            broker_id, ApiKey.ENVELOPE, VERSION, message, timeout_ms, followed_id()
        )
        error = ErrorCode(answer["error_code"])
        if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            text = (
                f"broker {broker_id} takes no requests for others from this node: allow the "
                "principal of its login CLUSTER_ACTION on the cluster, or name it in super.users"
            )
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text)
        if error:
            raise KafkaError(error, f"broker {broker_id}: {error.text}")
        return bytes(answer["response_data"] or b"")

    async def _answer_of_any(self, request: bytes, requester: Requester, timeout_ms: int) -> bytes:
        """Ask this node's broker if it serves, else the first that can be reached of the others."""
        live = sorted(one for one, broker in self._image().brokers.items() if not broker.fenced)
        refusal = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker is there: start one")
        if self._local is not None and self._node_id in live:
            live = [self._node_id]
        self._turn += 1
        for step in range(len(live)):
            broker_id = live[(self._turn + step) % len(live)]
            try:
                return await self._answer(broker_id, request, requester, timeout_ms)
            except KafkaError as error:
                if error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
                    raise
                refusal = error
        raise refusal

    def _check_quota(self, principal: Principal) -> None:
        left_s = self._muted.get(principal, 0.0) - self._loop.time()
        if left_s > 0:
            text = f"a quota of {principal} is used up: try again in {left_s:.1f} s"
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)
        self._muted.pop(principal, None)

    def _note_throttling(self, principal: Principal, message: Mapping[str, Any]) -> None:
        """Keep the principal waiting as its own connection would (KIP-219)."""
        throttle_ms = message.get("throttle_time_ms", 0)
        if throttle_ms > 0:
            if len(self._muted) >= _MUTED_MAX:
                now = self._loop.time()
                self._muted = {one: end for one, end in self._muted.items() if end > now}
            self._muted[principal] = self._loop.time() + throttle_ms / 1000


def _host(host: str) -> str:
    return host_text(ipaddress.ip_address(host_address(host)))


def _decoded(key: ApiKey, version: int, data: bytes) -> Mapping[str, Any]:
    try:
        return decode_response(key, version, data)[1]
    except MalformedError as error:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
