"""Changes that the console's page asks for, each by a request of Kafka's protocol.

    Actions   takes the body of an action, has it done as its requester, and says what was done

The brokers and the controller decide, by the rules for the requester and with its quotas. The body
is checked before: an error names the field and the remedy. Each action that was tried has a line in
the log, with principal, host, action, subject and result.

The package decides which requests an action is, and how its result reads. It must not decide who
may do it.

Invariants:

- An action is done by the requests that a client of the requester's own would send.
- A body with a field that is not known does nothing.
- No value of a config is in a line of the log, nor in an answer.
- What may have been done although no answer came is never called undone.

Sources: KIP-4, KIP-195, KIP-339, KIP-455, KIP-460, KIP-546, KIP-664, KIP-107, KIP-229, KIP-345.
"""

from raftctl.console.actions._actions import Actions

__all__ = ["Actions"]
