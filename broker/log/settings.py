"""The broker's configuration for all of its logs together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raftctl.config import NodeConfig

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Intervals in milliseconds, sizes in bytes; the defaults are Apache Kafka's."""

    recovery_threads: int = 2
    """The number of logs of a directory that are opened at the same time."""
    checkpoint_interval_ms: int = 5_000
    """The interval at which checkpoints are written and complete segments flushed."""
    retention_check_interval_ms: int = 300_000
    """The interval at which logs are checked for segments that expired."""
    flush_scheduler_interval_ms: int = 1_000
    """The interval at which logs are checked against their `flush.ms`."""
    producer_id_expiration_ms: int = _DAY_MS
    """The time after which a silent producer's sequence numbers are forgotten."""
    cleaner_enable: bool = True
    """Whether topics that ask for it are compacted."""
    cleaner_backoff_ms: int = 15_000
    """The interval at which logs are checked for being dirty enough to be compacted."""
    cleaner_dedupe_buffer_bytes: int = 128 << 20
    """The bound on the keys of one compaction, at 24 bytes each: some five million."""


def log_settings(config: NodeConfig) -> LogSettings:
    """Return the settings in a node's configuration."""
    return LogSettings(
        recovery_threads=config.num_recovery_threads_per_data_dir,
        checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
        retention_check_interval_ms=config.log_retention_check_interval_ms,
        flush_scheduler_interval_ms=config.log_flush_scheduler_interval_ms or 1_000,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        cleaner_enable=config.log_cleaner_enable,
        cleaner_backoff_ms=config.log_cleaner_backoff_ms,
        cleaner_dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
    )
