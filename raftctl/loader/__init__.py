"""The metadata loader: committed batches become images, and images become snapshots.

    MetadataLoader   replays committed batches and publishes (delta, image) to its publishers
    Snapshotter      takes snapshots by size, time or the leader's mark, and lets retention delete
    Snapshots        reads and writes the snapshot files on a worker of their own
    SlicedPublisher  follows images some steps in each turn of the event loop
    LoaderMetrics    how far the node has applied the metadata
    StateHashes      compares this replica's state with the active controller's

Every node has one loader. On the active controller the images come from the controller, which
has replayed its records when it appended them; everywhere else they are replayed here.

The package decides when an image is published and when a snapshot is due. It must not know
roles, votes or sockets, nor what a publisher does with an image.

Invariants:

- Images are published in offset order, each once, and only committed ones.
- A replica whose state differs from the hash in the log ends; what cannot be compared counts
  as unknown, never as equal (row Q13).
- A snapshot ends where a batch ends, so a replica that loads it can go on with the log.
- Neither the event loop nor the log's fsyncs wait for a large snapshot (row Q6).

Sources: Kafka's `MetadataLoader`, `MetadataPublisher` and `SnapshotGenerator`; KIP-630;
`docs/decisions/0003-persistent-images.md`, `docs/decisions/0006-state-hash.md`.
"""

from raftctl.loader._loader import MetadataLoader
from raftctl.loader._metrics import LoaderMetrics
from raftctl.loader._sliced_publisher import SlicedPublisher
from raftctl.loader._snapshots import Snapshots, Snapshotter, image_of
from raftctl.loader._state_hashes import StateDivergedError, StateHashes

__all__ = [
    "LoaderMetrics",
    "MetadataLoader",
    "SlicedPublisher",
    "Snapshots",
    "Snapshotter",
    "StateDivergedError",
    "StateHashes",
    "image_of",
]
