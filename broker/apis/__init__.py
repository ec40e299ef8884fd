"""Requests of clients: from a frame to a handler, and from its answer to the bytes of a response.

`dispatch` decodes a frame, calls the handler of its api, and encodes the answer in the version
of the request. It is the one place where an exception becomes an error code.

Handlers are grouped by the client that sends the request:

    discovery       brokers, topics and coordinators: what every client asks first
    data            records: Produce, Fetch, offsets, log directories
    consumer        consumer groups and their offsets
    transactional   transactions, and their description for operators
    administration  changes that the active controller decides on, and configs
    handler         the context that all of them are given, and the forms of an answer

A handler must not know about connections, correlation ids or the order of responses. It takes
an `ApiContext` and a decoded request. It returns a message, a `Reply`, or a coroutine.

Invariants:

- The effect of a Produce on the log is complete when `dispatch` returns; only its answer may be
  later. The order of a client's requests is therefore the order of their appends.
- An api or version outside `broker.protocol.versions.SERVED` closes the connection, with the
  exception of ApiVersions (KIP-511).
- A request with very many elements is answered in slices, so that other clients have their
  turn.

Source: Apache Kafka's protocol guide, and the KIPs named in the modules.
"""

from broker.apis._dispatch import Response, Serve, dispatch

__all__ = [
    "Response",
    "Serve",
    "dispatch",
]
