"""Principals, and what they may do.

A principal is who a connection acts for: a user that has logged in, the name of a certificate, or
`ANONYMOUS`. An authorizer decides whether a requester, a principal at a host, may do an action, an
operation on a resource. Brokers and controllers ask the same authorizer, each with its own newest
metadata image.

The package must not know requests or connections: what a request needs is for its handler to ask.

Invariants: nobody is allowed what a rule denies them; without a rule only super users are allowed,
unless `allow.everyone.if.no.acl.found` is set.

Sources: Apache Kafka's StandardAuthorizer; KIP-11 (rules), KIP-290 (prefixes), KIP-801.
"""

from raftctl.security._plugin import load_authorizer
from raftctl.security._principal import ANONYMOUS, Action, Authorizer, Principal, Requester

__all__ = ["ANONYMOUS", "Action", "Authorizer", "Principal", "Requester", "load_authorizer"]
