"""All small edits."""

from __future__ import annotations

from tests.mutants import (
    administration_edits,
    authorization_edits,
    broker_edits,
    configuration_edits,
    controller_edits,
    controller_invariant_edits,
    coordinator_edits,
    core_swarm_edits,
    http_edits,
    invariant_edits,
    lease_edits,
    node_edits,
    quorum_edits,
    quota_edits,
    request_edits,
    sampled_edits,
    sasl_edits,
    security_edits,
    storage_edits,
    tls_edits,
)

EDITS = (
    *quorum_edits.EDITS,
    *core_swarm_edits.EDITS,
    *storage_edits.EDITS,
    *node_edits.EDITS,
    *controller_edits.EDITS,
    *invariant_edits.EDITS,
    *controller_invariant_edits.EDITS,
    *lease_edits.EDITS,
    *sampled_edits.EDITS,
    *broker_edits.EDITS,
    *configuration_edits.EDITS,
    *coordinator_edits.EDITS,
    *request_edits.EDITS,
    *administration_edits.EDITS,
    *authorization_edits.EDITS,
    *quota_edits.EDITS,
    *security_edits.EDITS,
    *sasl_edits.EDITS,
    *tls_edits.EDITS,
    *http_edits.EDITS,
)
