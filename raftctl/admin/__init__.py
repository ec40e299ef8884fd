"""What a node says of itself over HTTP: signs of life, metrics, and the cluster's status.

`HealthApi` is on the listener for HTTP of every node: `/livez`, `/readyz`, `/metrics`. `AdminApi`
is on the controllers' listener beside `/rpc`. `LoggersApi` shows and changes what a node logs.
All else is read-only. It answers from what its node knows
now: the core's status, the newest committed image, the state hashes. `ControllerMetrics` has what
an image says of the cluster.
`Readiness` says whether a node serves, and by which `Problem` it does not.
`PartitionCounts` keeps the counts of partitions up to date from deltas, so a request never
walks over all partitions.

The package decides paths and the form of the JSON. It must not change metadata, ask other nodes
or block the event loop: long answers are made in slices.

Invariants:

- A node that was ready does not go back and forth: see `Readiness`.
- Passwords never leave: SCRAM records are served without salt and keys.
- `PROVENANCE_HEADER` names offset, epoch and timestamp of the image that an answer shows.
"""

from raftctl.admin._admin_api import METADATA_PATH, PROVENANCE_HEADER, AdminApi
from raftctl.admin._controller_metrics import ControllerMetrics, EventTimes
from raftctl.admin._health_api import HealthApi
from raftctl.admin._loggers_api import LoggersApi
from raftctl.admin._partition_counts import PartitionCounts
from raftctl.admin._readiness import Problem, Readiness

__all__ = [
    "METADATA_PATH",
    "PROVENANCE_HEADER",
    "AdminApi",
    "ControllerMetrics",
    "EventTimes",
    "HealthApi",
    "LoggersApi",
    "PartitionCounts",
    "Problem",
    "Readiness",
]
