"""Apache Kafka's spellings of commands that have another one here. Pure.

Its tools name by an option what is an argument here, and some tools have other names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

OPTIONS = {
    ("topics", "create"): "--topic",
    ("topics", "describe"): "--topic",
    ("topics", "alter"): "--topic",
    ("topics", "delete"): "--topic",
    ("partitions", "add"): "--topic",
    ("groups", "describe"): "--group",
    ("groups", "delete"): "--group",
    ("groups", "reset-offsets"): "--group",
    ("transactions", "describe"): "--transactional-id",
    ("brokers", "unregister"): "--id",
}
"""Command -> the option whose value is its argument."""
TOOLS = {
    "consumer-groups": ("groups",),
    "console-producer": ("console", "produce"),
    "console-consumer": ("console", "consume"),
    "get-offsets": ("offsets",),
    "leader-election": ("elect-leaders",),
    "log-dirs": ("brokers", "log-dirs"),
}
"""Name of a tool, without `kafka-` -> the command."""


def translate(arguments: Sequence[str]) -> list[str]:
    """The command line as it is written here; what is written so already stays as it is."""
    if not arguments:
        return []
    first = arguments[0].removeprefix("kafka-").removesuffix(".sh")
    written = [*TOOLS.get(first, (first,)), *arguments[1:]]
    option = next((o for command, o in OPTIONS.items() if list(command) == written[:2]), None)
    if option is None:
        return written
    end = written.index("--") if "--" in written else len(written)
    kept = [one.removeprefix(f"{option}=") for one in written[:end] if one != option]
    return [*kept, *written[end:]]
