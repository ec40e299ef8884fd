"""The metadata of a cluster as a tree of names, like files in directories. Pure.

A directory lists its names without making what is below them, so that a look at a large cluster is
cheap. A name with a slash in it shows it as %2F.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from raftctl.cli.offline._record_json import plain
from raftctl.errors import ErrorCode, KafkaError
from raftctl.ids import uuid_text
from raftctl.metadata.records import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.metadata.image import MetadataImage, TopicImage
    from raftctl.metadata.image.coordination import KvSession, KvWaiter

_RESOURCES: Mapping[int, str] = {
    TOPIC_RESOURCE: "topics",
    BROKER_RESOURCE: "brokers",
    GROUP_RESOURCE: "groups",
}


@dataclass(frozen=True, slots=True)
class Directory:
    """Names, and how to make what each stands for."""

    names: Callable[[], Iterable[str]]
    """In the order in which they are shown."""
    child: Callable[[str], Node | None]


@dataclass(frozen=True, slots=True)
class File:
    """A value."""

    value: Any

    def text(self) -> str:
        """The value as JSON, or plainly if it is text or a number."""
        value = plain(self.value)
        return value if isinstance(value, str) else json.dumps(value)


Node = Directory | File


def image_tree(image: MetadataImage) -> Directory:
    """The tree of an image."""
    provenance = {
        "offset": image.offset,
        "epoch": image.epoch,
        "timestamp_ms": image.timestamp_ms,
    }
    return _fixed(
        {
            "brokers": _mapping(image.brokers, int, lambda broker: File(broker)),
            "configs": _configs(image),
            "controllers": _mapping(image.controllers, int, File),
            "features": _mapping(image.features, str, File),
            "kv": _mapping(image.kv, str, lambda entry: _files(entry._asdict())),
            "locks": _mapping(image.coordination.queues, str, _queue),
            "producer_ids": _files({"next": image.next_producer_id}),
            "provenance": _files(provenance),
            "sessions": _mapping(_sessions(image), str, File),
            "topics": Directory(
                lambda: sorted(map(_escaped, image.topics.ids)),
                lambda name: _topic(image.topics.by_name(_unescaped(name))),
            ),
        }
    )


def _queue(queue: tuple[KvWaiter, ...]) -> Directory:
    """Who holds the lock and who waits, by token."""
    places = {waiter.token: waiter for waiter in queue}
    return _mapping(places, int, lambda waiter: _files(waiter._asdict()))


def _sessions(image: MetadataImage) -> dict[str, KvSession]:
    return {uuid_text(one): session for one, session in image.coordination.sessions.items()}


def _topic(topic: TopicImage | None) -> Directory | None:
    if topic is None:
        return None
    partitions = topic.partitions

    def child(name: str) -> Node | None:
        if name == "id":
            return File(topic.topic_id)
        partition = partitions.get(int(name)) if name.isdecimal() else None
        return None if partition is None else File(partition)

    return Directory(lambda: ["id", *map(str, sorted(partitions))], child)


def _configs(image: MetadataImage) -> Directory:
    kinds: dict[str, Node] = {}
    for number, kind in _RESOURCES.items():
        owners = {name or "default": number for owner, name in image.configs if owner == number}
        kinds[kind] = _mapping(
            {owner: image.config(number, "" if owner == "default" else owner) for owner in owners},
            str,
            lambda values: _files(dict(values.items())),
        )
    return _fixed(kinds)


def _fixed(children: dict[str, Node]) -> Directory:
    return Directory(lambda: sorted(children), children.get)


def _files(values: Mapping[str, Any]) -> Directory:
    return _fixed({_escaped(name): File(value) for name, value in values.items()})


def _mapping(values: Mapping[Any, Any], key: type, node: Callable[[Any], Node]) -> Directory:
    """A directory of a mapping's values by key, in the order of the keys."""

    def child(name: str) -> Node | None:
        try:
            value = values.get(key(_unescaped(name)))
        except ValueError:
            return None
        return None if value is None else node(value)

    return Directory(lambda: [_escaped(str(one)) for one in sorted(values)], child)


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


def _unescaped(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")


# --- commands -------------------------------------------------------------------------------------


def absolute(directory: str, path: str) -> str:
    """The path seen from a directory; both of the form /a/b."""
    parts = [] if path.startswith("/") else [part for part in directory.split("/") if part]
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def find_node(root: Directory, path: str) -> Node:
    """What stands at the path. KafkaError(RESOURCE_NOT_FOUND) if nothing does."""
    node: Node = root
    for part in filter(None, path.split("/")):
        below = node.child(part) if isinstance(node, Directory) else None
        if below is None:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"{path}: there is no {part}")
        node = below
    return node


def list_names(root: Directory, path: str) -> list[str]:
    """The names in a directory, those of directories with a slash; a file's own name."""
    node = find_node(root, path)
    if isinstance(node, File):
        return [path.rpartition("/")[2]]
    return [_shown(name, node.child(name)) for name in node.names()]


def _shown(name: str, node: Node | None) -> str:
    return f"{name}/" if isinstance(node, Directory) else name


def read_value(root: Directory, path: str) -> str:
    """A file's value. KafkaError if there is none, or a directory."""
    node = find_node(root, path)
    if isinstance(node, Directory):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{path} is a directory; ls shows it")
    return node.text()


def walk(root: Directory, path: str) -> Iterator[tuple[str, int, Node]]:
    """(path, depth below the first, node) of everything at and below the path, in order."""
    stack = [("/" + path.strip("/"), 0, find_node(root, path))]
    while stack:
        where, depth, node = stack.pop()
        yield where, depth, node
        if isinstance(node, Directory):
            prefix = where.rstrip("/")
            below = [(f"{prefix}/{name}", depth + 1, node.child(name)) for name in node.names()]
            stack += [(p, d, child) for p, d, child in reversed(below) if child is not None]


def find_paths(root: Directory, path: str, pattern: str) -> Iterator[str]:
    """The paths below whose last name matches the pattern (with * and ?)."""
    for where, _, _ in walk(root, path):
        if fnmatchcase(where.rpartition("/")[2], pattern):
            yield where


def tree_lines(root: Directory, path: str) -> Iterator[str]:
    """The tree, two blanks a level, with the values."""
    for where, depth, node in walk(root, path):
        name = where.rpartition("/")[2]
        text = f"{name}/" if isinstance(node, Directory) else f"{name}: {node.text()}"
        yield "  " * depth + text
