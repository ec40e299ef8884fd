"""The HTTP status of a controller: health, readiness, quorum, replicas and partitions as JSON.

`AdminApi` is mounted on the controller listener beside `/rpc`. It is read-only and answers from
what its node knows now: the core's status, the newest committed image, the state hashes.
`PartitionCounts` keeps the counts of partitions up to date from deltas, so a request never
walks over all partitions.

The package decides paths and the form of the JSON. It must not change anything, ask other nodes
or block the event loop: long answers are made in slices.

Invariants:

- Ready means: a leader is known and the loader has caught up.
- Passwords never leave: SCRAM records are served without salt and keys.
- `PROVENANCE_HEADER` names offset, epoch and timestamp of the image that an answer shows.
"""

from raftctl.admin._admin_api import METADATA_PATH, PROVENANCE_HEADER, AdminApi
from raftctl.admin._controller_metrics import ControllerMetrics
from raftctl.admin._partition_counts import PartitionCounts

__all__ = [
    "METADATA_PATH",
    "PROVENANCE_HEADER",
    "AdminApi",
    "ControllerMetrics",
    "PartitionCounts",
]
