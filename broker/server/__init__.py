"""Network server of a broker: listeners, connections, limits.

`Listeners` binds the sockets of a broker and serves each connection with one function from a
frame to a reply. `ConnectionLimits` holds what connections share: their number, the bytes of
requests that wait, and whether requests are served yet. `ListenerConfigs` checks and takes up the
configs of listeners that change while the broker runs.

A connection cuts its bytes into frames, starts requests and sends responses. It must not know
any request: a frame is bytes, a reply is pieces of bytes or of files.

Invariants:

- Responses leave in the order of their requests.
- A request starts only when no earlier one of its connection can still change the order of
  effects.
- A change of configs is in force for the connections that are made after it. It closes none.
- A connection that does not read its responses is not read from; memory is bounded for each
  connection and for all together.

Source: Apache Kafka's SocketServer; rows R9 and N3 of the requirements.
"""

from broker.server._connection import Listeners
from broker.server._connection_limits import ConnectionLimits
from broker.server._listener_configs import ListenerConfigs

__all__ = [
    "ConnectionLimits",
    "ListenerConfigs",
    "Listeners",
]
