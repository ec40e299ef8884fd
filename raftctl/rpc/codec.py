"""Frames between nodes: the quorum's messages, the controller's requests, and three of our own.

A frame is the MessagePack array `[correlation id, type id, field, ...]`; a WebSocket message is one
frame or several, one after the other, so that what is sent in one turn of the event loop costs one
message. The first frame each way is a `Hello`, with correlation id 0. Where peers log in by SASL,
messages of that come before it, each a `LoginToken`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, get_args

import msgpack

from raftctl.codec import Codec, CodecError, by_type_id, pack_rows, types_of
from raftctl.errors import ErrorCode
from raftctl.metadata.requests import ControllerRequest, ControllerResponse
from raftctl.raft import messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PATH = "/rpc"
PROTOCOL_VERSION = 1
MESSAGE_BYTES_MAX = 32 * 1024 * 1024
"""The bound of one WebSocket message: above the largest batch (16 MiB) and its envelope."""
UNPACK_BUFFER_BYTES = 64 * 1024
SCRATCH_BYTES_MAX = 1024 * 1024
HELLO_ID = 0


@dataclass(frozen=True, slots=True)
class Hello:
    """The sender, and the peer that it believes to reach."""

    TYPE_ID: ClassVar[int] = 90
    version: int
    cluster_id: str
    node_id: int
    peer_id: int = -1
    """The node expected at the other end; -1: any."""
    client: int = 0
    """A random number of the client that connects; 0: it does not tell."""
    connection: int = 0
    """The number of connections that the client opened to this peer before: the newest one
    counts."""


@dataclass(frozen=True, slots=True)
class LoginToken:
    """A message of a mechanism of SASL; of either side, before the hello."""

    TYPE_ID: ClassVar[int] = 92
    mechanism: str
    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Failure:
    """The answer to a request that was refused or failed."""

    TYPE_ID: ClassVar[int] = 91
    error: ErrorCode
    message: str


TAGGED = (
    Hello,
    Failure,
    LoginToken,
    *get_args(ControllerRequest),
    *get_args(ControllerResponse),
)
QUORUM: dict[int, type[Any]] = {
    1: messages.VoteRequest,
    2: messages.VoteResponse,
    3: messages.BeginQuorumEpochRequest,
    4: messages.BeginQuorumEpochResponse,
    5: messages.EndQuorumEpochRequest,
    6: messages.EndQuorumEpochResponse,
    7: messages.FetchRequest,
    8: messages.FetchResponse,
    9: messages.FetchSnapshotRequest,
    10: messages.FetchSnapshotResponse,
    11: messages.TransferLeadershipRequest,
    12: messages.TransferLeadershipResponse,
    13: messages.AddVoterRequest,
    14: messages.RemoveVoterRequest,
    15: messages.UpdateVoterRequest,
    16: messages.ChangeVotersResponse,
}
RPC_CODEC: Codec[Any] = Codec(QUORUM | by_type_id(TAGGED))


class FrameError(Exception):
    """The peer sent what it must not; its connection is closed, and only that."""


class FramePacker:
    """Makes frames; one for each connection, since it keeps a buffer."""

    def __init__(self) -> None:
        self._packer = msgpack.Packer()

    def pack(self, correlation_id: int, message: object) -> bytes:
        """Return the bytes of one frame."""
        frame: bytes = self._packer.pack((correlation_id, *RPC_CODEC.to_row(message)))
        self._bound_scratch(frame)
        return frame

    def pack_all(self, correlation_ids: Sequence[int], messages: Sequence[object]) -> bytes:
        """Return the bytes of several frames, one after the other."""
        rows = RPC_CODEC.headed_rows(correlation_ids, messages)
        frames = pack_rows(self._packer, rows)
        self._bound_scratch(frames)
        return frames

    def _bound_scratch(self, packed: bytes) -> None:
        if len(packed) > SCRATCH_BYTES_MAX:
            self._packer = msgpack.Packer()  # the old one would keep a buffer of this size


class FrameUnpacker:
    """Reads the frames of one WebSocket message after the other."""

    def __init__(self) -> None:
        self._unpacker = msgpack.Unpacker(
            read_size=UNPACK_BUFFER_BYTES,
            max_buffer_size=MESSAGE_BYTES_MAX,
            use_list=False,
            max_map_len=0,
            max_ext_len=0,
        )
        self._fed_bytes = 0

    def unpack(self, data: bytes | memoryview) -> list[tuple[int, Any]]:
        """(correlation id, object) of each frame. Raises FrameError, after which it is useless."""
        return [pair for run in self.unpack_runs(data) for pair in run.frames()]

    def unpack_runs(self, data: bytes | memoryview) -> list[Run]:
        """Return the frames, those of one class in a run; see `unpack`."""
        self._fed_bytes += len(data)
        rows: list[tuple[Any, ...]] = []
        unpacker = self._unpacker
        end = 0
        try:
            unpacker.feed(data)
            for row in unpacker:
                rows.append(row)
                # Once it has met an unfinished frame, it reports that one's end.
                end = unpacker.tell()
            if not {tuple}.issuperset(map(type, rows)) or not all(rows):
                raise FrameError("a frame is an array")
            if min(map(len, rows), default=2) < 2:
                raise FrameError("a frame has a type id")
            runs = [_run([*group]) for _, group in groupby(rows, _type_id)]
        except (CodecError, ValueError, TypeError, msgpack.BufferFull) as error:
            raise FrameError(str(error)) from error
        if not rows or end != self._fed_bytes:
            raise FrameError("a message holds one whole frame or several")
        return runs


class Run(NamedTuple):
    """Frames of one class of messages that stand next to each other."""

    correlation_ids: Sequence[int]
    messages: Sequence[Any]
    """As many; many of them are `raftctl.codec.Columns`."""

    @property
    def message_class(self) -> type:
        """The class of the messages."""
        (found,) = types_of(self.messages)
        return found

    def frames(self) -> Iterator[tuple[int, Any]]:
        """Return (correlation id, message) of each frame."""
        return zip(self.correlation_ids, self.messages, strict=True)

    def part(self, begin: int, end: int | None = None) -> Run:
        """Return some of the frames."""
        return Run(self.correlation_ids[begin:end], self.messages[begin:end])


_type_id = itemgetter(1)


def _run(rows: Sequence[tuple[Any, ...]]) -> Run:
    """Raises FrameError or CodecError."""
    correlation_ids = [row[0] for row in rows]
    if not {int}.issuperset(map(type, correlation_ids)):
        raise FrameError("a frame begins with a correlation id")
    return Run(correlation_ids, RPC_CODEC.from_run(rows, 1))
