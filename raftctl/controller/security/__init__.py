"""Security entries of the active controller: rules, quotas, credentials and delegation tokens.

Each request is decided on the image and gives the records that add or remove entries. Decisions
about delegation tokens depend on the wall clock too; `TokenControl` removes those that are over.
The items of a request succeed or fail on their own, with Kafka's error for each.

Invariants: an entry is stored once, whatever the number of requests that create it; a quota
or a credential that is removed exists; nothing is written below the level of
`metadata.version` that knows these records.

The package stores entries. It must not decide whether a principal may do something: brokers
authorize, throttle and authenticate.

Sources: KIP-11 and KIP-290 (access control lists), KIP-546 (client quotas), KIP-554 (SCRAM),
KIP-48 (delegation tokens).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.controller.security._acl_control import create_acls, delete_acls
from raftctl.controller.security._quota_control import alter_client_quotas
from raftctl.controller.security._scram_control import alter_scram
from raftctl.controller.security._token_control import TokenControl
from raftctl.metadata.requests.security import (
    AlterClientQuotasRequest,
    AlterScramRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raftctl.controller._result import Decision

__all__ = ["SECURITY_DECISIONS", "TokenControl"]

SECURITY_DECISIONS: Mapping[type, Decision] = {
    AlterClientQuotasRequest: alter_client_quotas,
    AlterScramRequest: alter_scram,
    CreateAclsRequest: create_acls,
    DeleteAclsRequest: delete_acls,
}
"""Decision for each type of request about quotas, access control lists and credentials."""
