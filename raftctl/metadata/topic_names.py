"""Names of topics: which are well formed, which are reserved, which are too much alike (row C3).

A partition's directory is named after its topic, so a name must be a file name, and the name of the
metadata log belongs to the nodes themselves.
"""

from __future__ import annotations

import re

METADATA_TOPIC = "__cluster_metadata"
"""The metadata log as tools name it; its directory lies beside those of topics' partitions."""
RESERVED = frozenset({METADATA_TOPIC})
"""Names that no topic may have: its partitions would take directories of the node's own."""
NAME_LENGTH_MAX = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> str | None:
    """Why this is no name for a topic; None if it is one. It may be reserved."""
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
    """What names of metrics make of it: two topics must not have the same."""
    return name.replace(".", "_")
