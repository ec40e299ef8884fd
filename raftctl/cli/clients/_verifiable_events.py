"""What the verifiable clients share. Their events have the fields of Apache Kafka's tools."""

from __future__ import annotations

from typing import Annotated, Any

import typer

POLL_S = 0.2
"""The client is waited for so long at a time, and then what ends the command is looked at."""
FOREVER = -1
_INT_MAX = 2**31 - 1

MaxMessagesOption = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=FOREVER,
        max=_INT_MAX,
        help="Number of records after which it ends; -1: no end.",
    ),
]


def text_of(data: Any) -> str | None:
    """A key or value as Java's StringDeserializer reads it; None for null."""
    return None if data is None else bytes(data).decode(errors="replace")
