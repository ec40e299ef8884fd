"""The console: a page on every node that shows the cluster live, and acts on it.

    Console   what one node serves below /console: the page, and the API that the page asks

The node mounts it on its listener for HTTP. Views of the image and of the quorum are answered here,
from what this node knows; what only brokers know is asked of them. `http` has what all answers have
in common: rights, tables by window, headers.

The package decides what is shown, in which form, and what counts as a problem with which remedy. It
must not decide what a requester may do: the authorizer does, by the rules of the protocol, and the
console has no rights of its own. It keeps no copy of the cluster: views read the newest image.

Invariants:

- Nobody learns by the console what the same principal is denied by Kafka's protocol.
- Names and payloads reach a browser as JSON, never as HTML.
- Whatever a viewer can make grow is bounded: rows by window, streams by number, bodies by size.
- A node whose console nobody opens spends nothing on it.

Sources: `docs/decisions/0026-console-on-every-node.md`; KIP-430 (what a requester may do), KIP-590
(acting for a requester).
"""

from raftctl.console._console import Console
from raftctl.console.http import API, PATH

__all__ = ["API", "PATH", "Console"]
