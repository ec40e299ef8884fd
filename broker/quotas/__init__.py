"""Quotas of clients: how much a client may use, and for how long it waits when it uses more.

A quota bounds a rate: bytes of Produce and of Fetch, the share of the event loop's time, changes
of topics (KIP-599), and new connections (KIP-612). It belongs to a user, a client id, both, or an
address, or to all that have none of their own (KIP-546). `ClientQuotas` finds the quota that holds
for a client, measures, and returns a throttle time. `ConnectionRates` does so for new connections.

Rates are Apache Kafka's. Samples of a second are kept, eleven by default, and the rate is their
sum over the time since the oldest began. The throttle time is how long the client must be quiet
until the rate is the bound again. Changes of topics take tokens from a bucket instead, since one
large request would keep a rate above its bound until its sample expires.

`ClientQuotaCallback` is a plug point (KIP-257): it says with whom a client shares a quota, and the
bound. `StoredQuotas`, the default, has them from the metadata image.

The package must not know requests, connections or the event loop. Times are any clock's
milliseconds and are arguments. Who calls it answers first and mutes the connection then (KIP-219).

Invariants: a client without a bound has no state. State that is unused for an hour is dropped, and
the clients that are measured at once are bounded. A more specific quota goes before a default.

Sources: Apache Kafka's ClientQuotaManager, Rate and SampledStat, TokenBucket, ConnectionQuotas;
KIP-13, KIP-55, KIP-124, KIP-219, KIP-257, KIP-546, KIP-599, KIP-612.
"""

from broker.quotas._client_quotas import ClientQuotas
from broker.quotas._connection_rates import ConnectionRates, canonical_address
from broker.quotas._rates import Windows
from broker.quotas._scopes import ClientQuotaCallback, QuotaType, StoredQuotas, load_callback

__all__ = [
    "ClientQuotaCallback",
    "ClientQuotas",
    "ConnectionRates",
    "QuotaType",
    "StoredQuotas",
    "Windows",
    "canonical_address",
    "load_callback",
]
