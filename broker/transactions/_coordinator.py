"""The transaction coordinator of one broker: shards of `__transaction_state`, and their markers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator import Coordinator
from broker.transactions._core import Settings, TransactionCore
from broker.transactions._marker_sender import MarkerSender
from broker.types import TRANSACTION_STATE
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.image import EMPTY_IMAGE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

    from structlog.typing import FilteringBoundLogger

    from broker.coordinator import Replicas
    from broker.transactions._core import Request
    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataImage


class TransactionCoordinator:
    """Images and requests, then `stop`."""

    def __init__(
        self,
        config: NodeConfig,
        replicas: Replicas,
        wall_ms: Callable[[], int],
        fail: Callable[[BaseException], None],
        log: FilteringBoundLogger,
    ) -> None:
        settings = _settings(config)
        self._image = EMPTY_IMAGE
        self._sender = MarkerSender(config, lambda: self._image, fail)
        self.shards = Coordinator(
            TRANSACTION_STATE,
            config.node_id,
            lambda journal, epoch: TransactionCore(journal, epoch, settings),
            replicas,
            config,
            wall_ms,
            fail,
            log.bind(part="transactions", node_id=config.node_id),
        )
        """Who holds which transactional id."""
        self.shards.on_command = self._sender.send

    def publish(self, image: MetadataImage) -> None:
        """Takes up what this broker leads now. After the ReplicaManager has."""
        self._image = image
        self.shards.publish(image)

    async def stop(self) -> None:
        """Lets go of every partition, and of markers that are on their way."""
        await self.shards.stop()
        await self._sender.stop()

    def ask(self, request: Request) -> asyncio.Future[Any]:
        """See `Shard.ask`; KafkaError(INVALID_REQUEST) if the transactional id is empty."""
        _check_name(request.transactional_id)
        return self.shards.ask(request.transactional_id, request)

    def core_of(self, transactional_id: str) -> TransactionCore:
        """For reading only; KafkaError as of `ask`, also if another broker holds the id."""
        _check_name(transactional_id)
        core = self.shards.shard_of(transactional_id).look()
        assert isinstance(core, TransactionCore)
        return core

    def cores(self) -> list[TransactionCore]:
        """All that are loaded here; KafkaError(COORDINATOR_LOAD_IN_PROGRESS) while one is not."""
        found = [shard.look() for shard in self.shards.shards()]
        return [core for core in found if isinstance(core, TransactionCore)]


def _check_name(transactional_id: str) -> None:
    """Every broker refuses an empty id alike, so no coordinator is looked for."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")


def _settings(config: NodeConfig) -> Settings:
    return Settings(
        timeout_max_ms=config.transaction_max_timeout_ms,
        expiration_ms=config.transactional_id_expiration_ms,
        abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expiration_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        patience_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
    )
