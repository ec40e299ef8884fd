"""`raftctl cluster-id`: over the Kafka protocol, as `kafka-cluster cluster-id`."""

from __future__ import annotations

from raftctl.cli.kafka.admin import Cluster


def cluster_id(
    cluster: Cluster,
) -> None:
    """Prints the id that all nodes of the cluster share."""
    with cluster.open() as client:
        found = client.describe_cluster()["cluster_id"]
    cluster.show({"cluster_id": found}, found)
