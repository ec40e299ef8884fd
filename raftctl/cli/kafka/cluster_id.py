"""`raftctl cluster-id`: over the Kafka protocol, as `kafka-cluster cluster-id`."""

from __future__ import annotations

from raftctl.cli._output import BootstrapOption, Output, OutputOption, show
from raftctl.cli.kafka.admin import TIMEOUT_S, TimeoutOption, open_admin


def cluster_id(
    bootstrap_server: BootstrapOption,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Prints the id that all nodes of the cluster share."""
    with open_admin(bootstrap_server, timeout) as client:
        found = client.describe_cluster()["cluster_id"]
    show(output, {"cluster_id": found}, found)
