"""Configs and feature levels on the active controller: settings that change while it runs.

AlterConfigs and IncrementalAlterConfigs change the configs of topics, brokers and groups.
UpdateFeatures raises or lowers the levels of features, such as `metadata.version` and
`eligible.leader.replicas.version`. Both check a request against the newest image and give the
records of the change.

Some settings decide which replica may lead: `min.insync.replicas`,
`unclean.leader.election.enable` and eligible leader replicas. The elections that follow from a
change of these go into the same batch. For a cluster-wide config they are the first slice of a
pass over all partitions.

Invariants: the configs of a resource change all or none, and so do the levels of a request; a
stored config has a value that its key allows; a level in force is supported by every registered
broker, every registered controller and every voter.

The package must not know how a partition elects its leader, nor how nodes apply a config.

Sources: KIP-226 and KIP-339 (configs), KIP-584 and KIP-778 (features), KIP-966 (eligible leaders).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from raftctl.controller.configs._config_control import alter_configs
from raftctl.controller.configs._feature_control import no_quorum, update_features
from raftctl.metadata.requests.admin import (
    AlterConfigsRequest,
    DescribeQuorumRequest,
    UpdateFeaturesRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raftctl.controller._cluster_control import ControllerRegistrations
    from raftctl.controller._config import ControllerConfig
    from raftctl.controller._result import Decision
    from raftctl.controller.partitions import PartitionReconciler

__all__ = ["config_decisions"]


def config_decisions(
    config: ControllerConfig, reconciler: PartitionReconciler, controllers: ControllerRegistrations
) -> Mapping[type, Decision]:
    """Return the decision for each type of request about configs and feature levels."""
    return {
        AlterConfigsRequest: partial(alter_configs, config=config, reconciler=reconciler),
        DescribeQuorumRequest: no_quorum,
        UpdateFeaturesRequest: partial(
            update_features,
            defaults=config.topic_defaults,
            controllers=controllers,
            reconciler=reconciler,
        ),
    }
