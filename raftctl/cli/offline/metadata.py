"""`raftctl metadata shell`: looks around in a cluster's metadata.

It comes from a live controller, as of now, from a snapshot, or from a metadata log on disk with the
snapshot that it goes on from, where the newest records may not be committed. With a command (`ls`,
`cat`, `find`, `tree`) that is done; without one, lines are read from standard input until it ends
or says `exit`.

The tree of names is like files in directories. A directory lists its names without making what is
below them, so that a look at a large cluster is cheap. A name with a slash in it shows it as %2F.
"""

from __future__ import annotations

import http.client
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.admin import METADATA_PATH, PROVENANCE_HEADER
from raftctl.cli._controllers import TIMEOUT_S, Controllers, TimeoutOption
from raftctl.cli._options import CommandConfigOption, CommandGroup, Printer
from raftctl.cli._output import Output, say, say_progress
from raftctl.cli.offline._record_json import HIDDEN, plain
from raftctl.cli.offline.log_files import (
    DamagedLogError,
    log_files,
    metadata_directory,
    read_batches,
    read_snapshot,
    segments,
)
from raftctl.cli.offline.verify import replayed
from raftctl.codec import CodecError
from raftctl.errors import ConfigError, DiskError, ErrorCode, KafkaError
from raftctl.http_security import NO_SECURITY, HttpSecurity
from raftctl.ids import uuid_text
from raftctl.loader import image_of
from raftctl.metadata.codec import RECORD_CODEC
from raftctl.metadata.configs.listeners import is_secret
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from raftctl.runtime.real import RealFileSystem
from raftctl.storage.snapshots import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.metadata.image import MetadataImage, TopicImage
    from raftctl.metadata.image.coordination import KvSession, KvWaiter


app = CommandGroup("Opens a shell on a cluster's metadata.")

HELP = "ls [PATH] | cat PATH | find [PATH] [PATTERN] | tree [PATH] | cd PATH | pwd | exit"


@app.callback()
def metadata() -> None:
    """Keeps the group a group while it has one command."""


@app.command()
def shell(
    printer: Printer,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND...]", help=f"One of: {HELP}")
    ] = None,
    controllers: Annotated[
        str | None, typer.Option(metavar="HOST:PORT,...", help="A live cluster's controllers.")
    ] = None,
    directory: Annotated[
        str | None, typer.Option(metavar="DIR", help="A directory with a metadata log.")
    ] = None,
    snapshot: Annotated[
        str | None, typer.Option(metavar="FILE", help="A snapshot of the metadata (.checkpoint).")
    ] = None,
    timeout: TimeoutOption = TIMEOUT_S,
    command_config: CommandConfigOption = None,
) -> None:
    """Shows the metadata as files in directories: ls, cat, find, tree."""
    session = Shell(_load(controllers, directory, snapshot, timeout, command_config))
    if command:
        _print(printer, session.run(command))
        return
    for line in sys.stdin:
        try:
            words = shlex.split(line)
            if words == ["exit"]:
                return
            _print(printer, session.run(words) if words else ())
        except (KafkaError, ValueError) as error:
            say_progress(str(error))


def _load(
    controllers: str | None,
    directory: str | None,
    snapshot: str | None,
    timeout_s: float,
    command_config: str | None,
) -> MetadataImage:
    if command_config is not None and controllers is None:
        raise ConfigError("--command-config is for --controllers: give both")
    match controllers, directory, snapshot:
        case (str(), None, None):
            return load_live(controllers, timeout_s, command_config)
        case (None, str(), None):
            return load_log(directory)
        case (None, None, str()):
            return load_snapshot(snapshot)
    raise ConfigError("give one of --controllers, --directory and --snapshot")


def _print(printer: Printer, lines: Iterable[str]) -> None:
    if printer.output is Output.JSON:
        say(json.dumps(list(lines)))
        return
    for line in lines:
        say(line)


class Shell:
    """A place in the tree, and the commands."""

    def __init__(self, image: MetadataImage) -> None:
        self._root = image_tree(image)
        self._here = "/"

    def run(self, words: list[str]) -> Iterable[str]:
        """The lines of a command. KafkaError says what is wrong with it."""
        name, *arguments = words
        paths = [absolute(self._here, argument) for argument in arguments]
        match name, paths:
            case ("ls", [] | [_]):
                return list_names(self._root, paths[0] if paths else self._here)
            case ("cat", [path]):
                return [read_value(self._root, path)]
            case ("tree", [] | [_]):
                return tree_lines(self._root, paths[0] if paths else self._here)
            case ("find", [] | [_] | [_, _]):
                return self._find(arguments)
            case ("cd", [path]):
                find_node(self._root, path)
                self._here = path
                return ()
            case ("pwd", []):
                return [self._here]
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{' '.join(words)}: write {HELP}")

    def _find(self, arguments: list[str]) -> Iterator[str]:
        path = absolute(self._here, arguments[0] if arguments else ".")
        return find_paths(self._root, path, arguments[1] if len(arguments) > 1 else "*")


def load_live(
    controllers: str, timeout_s: float, command_config: str | None = None
) -> MetadataImage:
    """The newest committed image of the controller to believe most."""
    quorum = Controllers(controllers=controllers, timeout=timeout_s, command_config=command_config)
    status = quorum.ask()
    for address in quorum.addresses:
        if status.answers[address] is status.best:
            image = fetch_image(address, timeout_s, quorum.security)
            if image is not None:
                return image
    raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the controller gave no metadata; ask again")


def load_snapshot(path: str) -> MetadataImage:
    """The image of a snapshot."""
    try:
        return image_of(read_snapshot(path))
    except CodecError as error:
        raise DiskError(f"--snapshot {path}: of a newer release: {error}") from None


def load_log(directory: str) -> MetadataImage:
    """The image of the newest snapshot and everything in the log after it, committed or not.

    Of transactions only those that have ended. A torn tail is left out, with a line on stderr:
    it was never acknowledged. Other damage is a DiskError.
    """
    store = SnapshotStore(RealFileSystem(), metadata_directory(directory))
    taken = store.ids()
    image = load_snapshot(store.path(taken[-1])) if taken else EMPTY_IMAGE
    paths = segments(metadata_directory(directory)) if taken else log_files(directory)
    delta, end_offset = MetadataDelta(image), image.offset + 1
    try:
        for place, batch in read_batches(paths) if paths else ():
            if batch.end_offset <= end_offset:
                continue
            if batch.base_offset != end_offset:
                why = f"begins with offset {batch.base_offset}, not with {end_offset}"
                raise ConfigError(f"{place.path}: {why}")
            delta, end_offset = replayed(delta, batch), batch.end_offset
    except DamagedLogError as error:
        if not error.torn:
            raise DiskError(f"{error}; raftctl storage verify checks the whole node") from None
        say_progress(f"{error} (a torn tail, which is left out)")
    except CodecError as error:
        text = f"--directory {directory}: no metadata log, or one of a newer release: {error}"
        raise DiskError(text) from None
    return delta.image


def fetch_image(
    address: str, timeout_s: float, security: HttpSecurity = NO_SECURITY
) -> MetadataImage | None:
    """One controller's newest committed image; None if it does not answer with one in time."""
    connection = security.connection(address, timeout_s)
    try:
        connection.request("GET", METADATA_PATH, headers=security.headers)
        response = connection.getresponse()
        if response.status != 200:
            return None
        offset, epoch, timestamp_ms = map(int, response.headers[PROVENANCE_HEADER].split())
        delta = MetadataDelta(EMPTY_IMAGE)
        for record in RECORD_CODEC.unpack_all(response.read()):
            delta.replay(record, offset)
        return delta.apply(offset, epoch, timestamp_ms)
    except (OSError, ValueError, CodecError, http.client.HTTPException):
        return None
    finally:
        connection.close()


# --- the tree -------------------------------------------------------------------------------------

_RESOURCES: Mapping[int, str] = {
    TOPIC_RESOURCE: "topics",
    BROKER_RESOURCE: "brokers",
    GROUP_RESOURCE: "groups",
    CLIENT_METRICS_RESOURCE: "client-metrics",
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
            lambda values: _files(
                {key: HIDDEN if is_secret(key) else value for key, value in values.items()}
            ),
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
