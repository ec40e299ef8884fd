"""Bounds of the integer types of Kafka's protocol: INT32 and INT64, both signed."""

from __future__ import annotations

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
