"""`raftctl metadata shell`: looks around in a cluster's metadata.

It comes from a live controller, as of now, from a snapshot, or from a metadata log on disk with the
snapshot that it goes on from, where the newest records may not be committed. With a command (`ls`,
`cat`, `find`, `tree`) that is done; without one, lines are read from standard input until it ends
or says `exit`.
"""

from __future__ import annotations

import http.client
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from raftctl.admin import METADATA_PATH, PROVENANCE_HEADER
from raftctl.cli._controllers import TIMEOUT_S, TimeoutOption, ask, parse_controllers
from raftctl.cli._options import OutputOption
from raftctl.cli._output import Output, say, say_progress
from raftctl.cli.offline import _metadata_tree as tree
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
from raftctl.loader import image_of
from raftctl.metadata.codec import RECORD_CODEC
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.runtime.real import RealFileSystem
from raftctl.storage.snapshots import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from raftctl.metadata.image import MetadataImage


app = typer.Typer(help="Opens a shell on a cluster's metadata.", no_args_is_help=True)

HELP = "ls [PATH] | cat PATH | find [PATH] [PATTERN] | tree [PATH] | cd PATH | pwd | exit"


@app.callback()
def metadata() -> None:
    """Keeps the group a group while it has one command."""


@app.command()
def shell(
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
    output: OutputOption = Output.TABLE,
) -> None:
    """Shows the metadata as files in directories: ls, cat, find, tree."""
    session = Shell(_load(controllers, directory, snapshot, timeout))
    if command:
        _print(output, session.run(command))
        return
    for line in sys.stdin:
        try:
            words = shlex.split(line)
            if words == ["exit"]:
                return
            _print(output, session.run(words) if words else ())
        except (KafkaError, ValueError) as error:
            say_progress(str(error))


def _load(
    controllers: str | None, directory: str | None, snapshot: str | None, timeout_s: float
) -> MetadataImage:
    match controllers, directory, snapshot:
        case (str(), None, None):
            return load_live(controllers, timeout_s)
        case (None, str(), None):
            return load_log(directory)
        case (None, None, str()):
            return load_snapshot(snapshot)
    raise ConfigError("give one of --controllers, --directory and --snapshot")


def _print(output: Output, lines: Iterable[str]) -> None:
    if output is Output.JSON:
        import json

        say(json.dumps(list(lines)))
        return
    for line in lines:
        say(line)


class Shell:
    """A place in the tree, and the commands."""

    def __init__(self, image: MetadataImage) -> None:
        self._root = tree.image_tree(image)
        self._here = "/"

    def run(self, words: list[str]) -> Iterable[str]:
        """The lines of a command. KafkaError says what is wrong with it."""
        name, *arguments = words
        paths = [tree.absolute(self._here, argument) for argument in arguments]
        match name, paths:
            case ("ls", [] | [_]):
                return tree.list_names(self._root, paths[0] if paths else self._here)
            case ("cat", [path]):
                return [tree.read_value(self._root, path)]
            case ("tree", [] | [_]):
                return tree.tree_lines(self._root, paths[0] if paths else self._here)
            case ("find", [] | [_] | [_, _]):
                return self._find(arguments)
            case ("cd", [path]):
                tree.find_node(self._root, path)
                self._here = path
                return ()
            case ("pwd", []):
                return [self._here]
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{' '.join(words)}: write {HELP}")

    def _find(self, arguments: list[str]) -> Iterator[str]:
        path = tree.absolute(self._here, arguments[0] if arguments else ".")
        return tree.find_paths(self._root, path, arguments[1] if len(arguments) > 1 else "*")


def load_live(controllers: str, timeout_s: float) -> MetadataImage:
    """The newest committed image of the controller to believe most."""

    status = ask(controllers, timeout_s)
    for address in parse_controllers(controllers):
        if status.answers[address] is status.best:
            image = fetch_image(address, timeout_s)
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


def fetch_image(address: str, timeout_s: float) -> MetadataImage | None:
    """One controller's newest committed image; None if it does not answer with one in time."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout_s)
    try:
        connection.request("GET", METADATA_PATH)
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
