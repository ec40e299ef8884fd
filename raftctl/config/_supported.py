"""What of the keys of security is in force: what is not here, a node refuses to start with.

A part that makes a mechanism or a key effective adds it here, and nowhere else.
"""

from __future__ import annotations

MECHANISMS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"})
"""The mechanisms of SASL by which clients can log in."""

LOGIN_MECHANISMS = MECHANISMS
"""The mechanisms of SASL by which a node can log in to another."""
