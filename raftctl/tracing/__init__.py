"""Following one request over the nodes that work at it: its id, and what the log has of it.

A request of a client gets an id on the node that it is sent to. The id is in every line of the log
that is about the request, goes with what the node asks the active controller for it, and is in that
node's lines too.

The package decides what an id looks like and how a line of the log gets it. It must not know any
request: the part of a node that takes one in says so by `follow`.

Invariants:

- An id belongs to one request of the cluster, unless a client of the HTTP API has chosen it.
- Nothing that a client chooses is in an id, but what `is_request_id` has let through.
- While nothing is logged a request costs no more than a number and one `follow`.

Sources: Apache Kafka's RequestContext; the header X-Request-Id as proxies use it.
"""

from raftctl.tracing._request_ids import (
    Named,
    RequestIds,
    add_request_id,
    follow,
    followed_id,
    is_request_id,
)

__all__ = [
    "Named",
    "RequestIds",
    "add_request_id",
    "follow",
    "followed_id",
    "is_request_id",
]
