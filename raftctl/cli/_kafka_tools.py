"""Command lines written for Apache Kafka's tools, in raftctl's words. Pure.

`kafka-topics.sh --create --topic t --partitions 3` means `raftctl topics create t --partitions 3`.
Kafka's tools name the action and the subject by options, here they are a command and an argument.
An option without a counterpart is refused with the command that does the same, so that a script
fails with its remedy. Command lines written for raftctl pass unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")

TOOLS = {
    "console-consumer": ("console", "consume"),
    "console-producer": ("console", "produce"),
    "consumer-groups": ("groups",),
    "consumer-perf-test": ("bench", "consume"),
    "delegation-tokens": ("tokens",),
    "dump-log": ("log", "dump"),
    "get-offsets": ("offsets",),
    "leader-election": ("elect-leaders",),
    "log-dirs": ("brokers", "log-dirs"),
    "metadata-quorum": ("quorum",),
    "producer-perf-test": ("bench", "produce"),
    "server-start": ("start",),
}
"""Name of a tool, without `kafka-` -> the command; other tools have the name of their command."""
ACTIONS: Mapping[str, Mapping[str, str]] = {
    "acls": {"--add": "add", "--list": "list", "--remove": "remove"},
    "configs": {"--alter": "alter", "--describe": "describe"},
    "features": {"describe": "describe", "downgrade": "downgrade", "upgrade": "upgrade"},
    "groups": {
        "--delete": "delete",
        "--describe": "describe",
        "--list": "list",
        "--reset-offsets": "reset-offsets",
    },
    "quorum": {
        "add-controller": "add-voter",
        "describe": "describe",
        "remove-controller": "remove-voter",
    },
    "tokens": {
        "--create": "create",
        "--describe": "list",
        "--expire": "expire",
        "--renew": "renew",
    },
    "topics": {
        "--alter": "alter",
        "--create": "create",
        "--delete": "delete",
        "--describe": "describe",
        "--list": "list",
    },
    "transactions": {
        name: name for name in ("abort", "describe", "describe-producers", "find-hanging", "list")
    },
}
"""Group -> words of Kafka's tool and the commands they mean. They may follow other options."""
ARGUMENTS: Mapping[tuple[str, ...], str] = {
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
    ("log", "dump"): "--files",
}
"""Command -> the option whose value is its argument."""
FLAGS: Mapping[tuple[str, ...], Mapping[str, tuple[str, ...]]] = {
    ("groups", "reset-offsets"): {
        "--to-earliest": ("--to", "earliest"),
        "--to-latest": ("--to", "latest"),
        "--execute": (),
        "--all-topics": (),
    },
    ("brokers", "log-dirs"): {"--describe": ()},
    ("log", "dump"): {"--print-data-log": ("--records",)},
}
"""Command -> options without a value, and the words that stand for them."""
VALUES: Mapping[tuple[str, ...], Mapping[str, tuple[str, ...]]] = {
    ("configs",): {
        "--topic": ("--entity-type", "topic", "--entity-name"),
        "--broker": ("--entity-type", "broker", "--entity-name"),
        "--group": ("--entity-type", "group", "--entity-name"),
        "--broker-logger": ("--entity-type", "broker-logger", "--entity-name"),
        "--client-metrics": ("--entity-type", "client-metrics", "--entity-name"),
    },
    ("groups", "reset-offsets"): {
        "--to-offset": ("--to", "offset="),
        "--shift-by": ("--to", "shift="),
    },
    ("brokers", "log-dirs"): {"--broker-list": ("--broker",)},
    ("bench", "consume"): {
        "--messages": ("--num-records",),
        "--consumer.config": ("--command-config",),
    },
    ("bench", "produce"): {"--producer.config": ("--command-config",)},
    ("console", "consume"): {"--consumer.config": ("--command-config",)},
    ("console", "produce"): {
        "--broker-list": ("--bootstrap-server",),
        "--producer.config": ("--command-config",),
    },
    ("quorum",): {"--bootstrap-controller": ("--controllers",)},
    ("storage", "format"): {"-t": ("--cluster-id",), "-c": ("--config",)},
}
"""Command -> options with a value, and the words before it; after `=` it follows without a gap."""
_DATED = "write --to time=MILLISECONDS, counted from 1970"
_ONE_GROUP = "name one group; raftctl groups list shows all"
REFUSED: Mapping[tuple[str, ...], Mapping[str, str]] = {
    (): {
        "--zookeeper": "write --bootstrap-server HOST:PORT; there is no ZooKeeper",
    },
    ("tokens",): {
        "--hmac": "write --hmac-file FILE, or - for stdin: others see what a command line has",
    },
    ("topics", "describe"): {
        option: f"write raftctl partitions list {option}"
        for option in (
            "--at-min-isr-partitions",
            "--unavailable-partitions",
            "--under-min-isr-partitions",
            "--under-replicated-partitions",
        )
    },
    ("topics", "alter"): {
        "--config": "write raftctl configs alter --topic TOPIC --set KEY=VALUE",
        "--delete-config": "write raftctl configs alter --topic TOPIC --delete KEY",
    },
    ("groups", "describe"): {"--all-groups": _ONE_GROUP},
    ("groups", "reset-offsets"): {
        "--to-datetime": _DATED,
        "--by-duration": _DATED,
        "--all-groups": _ONE_GROUP,
    },
    ("elect-leaders",): {
        "--topic": "write --partition TOPIC:NUMBER",
        "--path-to-json-file": "write --partition TOPIC:NUMBER, once for each partition",
    },
    ("console", "produce"): {
        "--property": "write --key-separator TEXT for keys, --command-property for the client",
    },
    ("console", "consume"): {
        "--property": "write --print-key for keys, --command-property for the client",
    },
    ("quorum",): {
        "--bootstrap-server": "write --controllers HOST:PORT,...; brokers do not answer this",
    },
}
"""Command -> options without a counterpart, and what to write instead."""


def translate(arguments: Sequence[str]) -> list[str]:
    """Return the command line in raftctl's words.

    Words after `--` belong to another program and stay. Raises ConfigError for an option of
    Kafka's that has no counterpart, with the remedy.
    """
    if not arguments:
        return []
    tool = arguments[0].removeprefix("kafka-").removesuffix(".sh")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    words = _with_action([*TOOLS.get(tool, (tool,)), *arguments[1:end]])
    command = tuple(words[:2])
    words = [new for word in _pairs(words, command) for new in word]
    return [*words, *arguments[end:]]


def _with_action(words: list[str]) -> list[str]:
    """Put the command right behind its group, where Kafka's tools take options before it."""
    actions = ACTIONS.get(words[0], {}) if words else {}
    has_command = len(words) > 1 and not words[1].startswith("-")
    places = range(1, 2) if has_command else range(1, len(words))
    found = next((place for place in places if words[place] in actions), None)
    if found is None:
        return words
    rest = [*words[1:found], *words[found + 1 :]]
    return [words[0], actions[words[found]], *rest]


def _pairs(words: Sequence[str], command: tuple[str, ...]) -> list[list[str]]:
    """Each word in raftctl's spelling; an option glued to its value stays together."""
    argument = ARGUMENTS.get(command)
    flags, values = _of(FLAGS, command), _of(VALUES, command)
    refused = _of(REFUSED, command)
    found: list[list[str]] = []
    glue = ""
    for word in words:
        option, equals, value = word.partition("=")
        if option in refused:
            raise ConfigError(f"{option}: {refused[option]}")
        if glue:
            found.append([glue + word])
            glue = ""
        elif option == argument:
            found.append([value] if equals else [])
        elif word in flags:
            found.append(list(flags[word]))
        elif option in values:
            *before, last = values[option]
            glue = last if last.endswith("=") and not equals else ""
            joined = [last + value] if last.endswith("=") else [last, value]
            found.append([*before, *(joined if equals else [last] if not glue else [])])
        else:
            found.append([word])
    return found


def _of(table: Mapping[tuple[str, ...], Mapping[str, T]], command: tuple[str, ...]) -> dict[str, T]:
    """What holds for all commands, for the group and for the command."""
    found: dict[str, T] = {}
    for key in ((), command[:1], command):
        found.update(table.get(key, {}))
    return found
