"""The context of a handler, and the forms that its answer may take.

`ApiContext` is the broker as the handlers of one listener see it: replicas, the newest metadata
image, the controller, both coordinators, and the configuration. It is frozen; handlers keep no
state of their own.

An answer is a message, an `Encoded` body, or None when the client expects none. `Reply` is one
that a future must complete first. `HangUpError` closes the connection, because the protocol has no
other way to refuse the request. `Api` is a row of a family's table: the function that handles a
request, and the one that refuses it as a whole: `refuse_each` makes it from the field table of the
response, and without one the error is at the response's top.

State that outlives a request lives here:

- `MetadataCache`: the newest image, and encoded Metadata responses derived from it.
- `fetch_sessions`: the sessions of incremental fetches (KIP-227).
- `ProducerIds`: blocks of producer ids granted by the controller.
- `InternalTopics`: creation of the brokers' own topics on first use.

What the request's principal may do, a handler asks by `authorization`. What the request costs its
client is measured by `throttling`.

The package must not know any particular request: handlers import it, it imports no handler.
"""

from broker.apis.handler import authorization, throttling
from broker.apis.handler._context import Answer, Api, ApiContext, Encoded, HangUpError
from broker.apis.handler._internal_topics import InternalTopics
from broker.apis.handler._metadata_cache import MetadataCache
from broker.apis.handler._producer_ids import ProducerIds
from broker.apis.handler._refusal import refuse_each
from broker.apis.handler._reply import Reply

__all__ = [
    "Answer",
    "Api",
    "ApiContext",
    "Encoded",
    "HangUpError",
    "InternalTopics",
    "MetadataCache",
    "ProducerIds",
    "Reply",
    "authorization",
    "refuse_each",
    "throttling",
]
