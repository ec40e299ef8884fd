"""The channel to the active controller: finds it, retries, and gives up at the deadline.

`QuorumControllerClient` serves the brokers and the controllers of a node. Their requests have the
same effect twice, so one of unknown outcome is sent again. Keys and values are for programs, whose
puts must not be repeated: they have `raftctl.client`.

The package decides which node to ask next and whether to ask again. It must not know what a
request does.

Invariants:

- A request is answered once: by a response, or by a KafkaError that says whether it may have
  been done.
- Certainly not done means: no connection could be opened, or the node refused because it is
  not the active controller. After any other failure the outcome is unknown.

Source: Kafka's `NodeToControllerChannelManager`; KIP-500, KIP-590.
"""

from raftctl.controller_channel._channel import CLIENT_ID, QuorumControllerClient

__all__ = ["CLIENT_ID", "QuorumControllerClient"]
