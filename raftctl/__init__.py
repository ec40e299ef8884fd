"""The quorum: a Raft-replicated metadata log, the controller that writes it, and its tools."""

__version__ = "0.1.0"
