"""Names of topics: well formed, reserved, and too similar ones (row C3).

A partition's directory is named after its topic, so a topic's name must be a file name. The name of
the metadata log is reserved: a topic's directory would mix with the node's own.
"""

from __future__ import annotations

import re

METADATA_TOPIC = "__cluster_metadata"
"""The metadata log as tools name it; its directory lies beside those of topics' partitions."""
RESERVED = frozenset({METADATA_TOPIC})
"""Names that no topic may have: its partitions would take directories of the node's own."""
INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state"))
"""Those that brokers write themselves; Apache Kafka's tools take the same for internal."""
NAME_LENGTH_MAX = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> str | None:
    """Return why this is not a topic name; None if it is one. A reserved name is one, too."""
    if not name:
        return "The name is empty"
    if name in (".", ".."):
        return f"{name!r} is no name for a topic"
    if len(name) > NAME_LENGTH_MAX:
        return f"The name is longer than {NAME_LENGTH_MAX} characters"
    if not _NAME.fullmatch(name):
        return f"{name!r} has characters other than letters, digits, '.', '_' and '-'"
    return None


def close_form(name: str) -> str:
    """Return the name as metrics spell it; two topics must not share one."""
    return name.replace(".", "_")
