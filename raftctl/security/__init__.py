"""Principals, and what they may do.

A principal is who a connection acts for: a user that has logged in, the name of a certificate, or
`ANONYMOUS`. An authorizer decides whether a requester, a principal at a host, may do an action, an
operation on a resource. Brokers and controllers ask the same authorizer, each with its own newest
metadata image.

    Principal, Requester, Action   what an authorizer is asked with
    Authorizer                     the plug-in: publish, authorize, and by prefix and by type
    StandardAuthorizer             decides by the rules of the image; writes the audit log
    load_authorizer                finds one by `authorizer.class.name`

`clients` has the settings of a client's login for each library of Kafka clients that is in use.

The package must not know requests or connections: what a request needs is for its handler to ask.

Invariants:

- Nobody is allowed what a rule denies them; super users are not asked for rules.
- Without a rule only super users are allowed, unless `allow.everyone.if.no.acl.found` is set.
- An answer is that of one image: never of half a change, never of an older one.

Sources: Apache Kafka's StandardAuthorizer; KIP-11 (rules), KIP-290 (prefixes), KIP-679 (questions
by type), KIP-801.
"""

from raftctl.security._plugin import load_authorizer
from raftctl.security._principal import ANONYMOUS, Action, Authorizer, Principal, Requester
from raftctl.security._standard import StandardAuthorizer

__all__ = [
    "ANONYMOUS",
    "Action",
    "Authorizer",
    "Principal",
    "Requester",
    "StandardAuthorizer",
    "load_authorizer",
]
