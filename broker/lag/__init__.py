"""Offsets of partitions and lag of groups, under the names of kafka_exporter.

    GroupLag          how far each group is behind, computed in the background
    PartitionOffsets  ends, replicas and leaders of the partitions that this broker leads
    EndOffsets        the ends of any partitions: asked of their leaders

A group is shown by its coordinator alone, and a partition by its leader alone. So a sum over all
brokers counts nothing twice.

Decides: which groups and partitions have series of their own, and when lag is computed. Must not
know: protocols of groups, connections of clients, HTTP.

Invariants: nothing is computed or asked in a scrape. Series fit into the room that others leave of
`metrics.series.max`: groups with the greatest lag come first, and the rest is in one series whose
group is `(other)`. A round looks at `OFFSETS_MAX` committed offsets at most. A group that has moved
to another coordinator is shown no more, whatever was computed before.

Source: kafka_exporter's list of metrics; KIP-848 for what a group is.
"""

from broker.lag._end_offsets import EndOffsets
from broker.lag._group_lag import OFFSETS_MAX, GroupLag
from broker.lag._partition_offsets import PartitionOffsets

__all__ = ["OFFSETS_MAX", "EndOffsets", "GroupLag", "PartitionOffsets"]
