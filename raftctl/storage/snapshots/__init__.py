"""Snapshots on disk: checkpoints of the metadata, written, fetched, checked and deleted.

A snapshot is named by the offset and the epoch of its end and holds a header, the packed
records of the state and a footer with a hash of them. The hash covers the records alone, in the
order of the image, so equal states have equal hashes on all replicas.

The package decides the file format, how a fetched file grows piece by piece, and which files
retention no longer keeps. It must not know what the records mean or who asked for them.

Invariants:

- A file bears its final name only when it is whole, checked and durable.
- Snapshots of one name have the same content, so a fetch may go on from another replica.
- Retention keeps the newest snapshot, whatever its age and size.

Sources: KIP-630 (snapshots, `.checkpoint` files); `docs/decisions/0006-state-hash.md` (the
hash).
"""

from raftctl.storage.snapshots._store import (
    STATE_HASH_VERSION,
    CorruptSnapshotError,
    RetentionPolicy,
    Snapshot,
    SnapshotFile,
    SnapshotStore,
    WrittenSnapshot,
    grouped,
    state_hash_of,
)

__all__ = [
    "STATE_HASH_VERSION",
    "CorruptSnapshotError",
    "RetentionPolicy",
    "Snapshot",
    "SnapshotFile",
    "SnapshotStore",
    "WrittenSnapshot",
    "grouped",
    "state_hash_of",
]
