"""Administration of a cluster over Kafka's protocol, in every environment.

`Roles` finds partition leaders and coordinators and moves replicas. `Membership` removes
brokers and adds them again, one at a time. `Features` lowers and raises the levels of finalized
features. `open_admin` opens the client that all of them use.

The package reaches a cluster by its bootstrap servers and by `Environment` only, so a broker of
any origin can be tested. It imports aiokafka and is loaded only by tests that need it.

Invariants: each call is bounded in time and raises one of ERRORS. A removed broker hosts no
replica before it stops, and returns under its id with an empty disk.

Sources: KIP-455 (reassignment), KIP-584 (features), KIP-631 (unregistration of brokers).
"""

from jepsen.environments.admin._features import Features
from jepsen.environments.admin._membership import Membership
from jepsen.environments.admin._requests import ASK_S, ERRORS, open_admin
from jepsen.environments.admin._roles import Roles, all_in_sync

__all__ = [
    "ASK_S",
    "ERRORS",
    "Features",
    "Membership",
    "Roles",
    "all_in_sync",
    "open_admin",
]
