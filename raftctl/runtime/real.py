"""The world as it is: the operating system's files, clock, randomness, threads and a log stream.

The only module of a node that touches `os`, `socket`, `time` and `threading`. A `RealRuntime`
belongs to one node; nothing here is shared between two in one process. Sources: open(2),
pwritev(2), fdatasync(2), syncfs(2) and flock(2); that a new or renamed file is durable only after
an fsync of its directory: fsync(2); sendfile(2), and MSG_MORE, which keeps a header from leaving in
a packet of its own: send(2).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import logging
import os
import random
import shutil
import socket
import stat
import sys
import threading
import time
import uuid
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar, cast

from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.failures import outcome_of
from raftctl.loggers import Level, LogLevels
from raftctl.optional_imports import without
from raftctl.runtime._collector import Collector
from raftctl.runtime._usage import TimedSelector, usage_of_process
from raftctl.runtime.api import DirectoryLock, File, FileSystem, Sender, Worker
from raftctl.tracing import add_request_id

with without("rich"):
    import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TextIO

    from structlog.typing import FilteringBoundLogger, Processor

    from raftctl.runtime.api import Buffer, Piece, ProcessUsage

T = TypeVar("T")

SENT_FROM_FILE_BYTES = 16 * 1024
"""Less than that is read: to send it from the file would save less than it costs."""
BUFFERS_MAX = 1024
"""IOV_MAX on Linux: more buffers than this need another system call."""
WORKER_CALLS_MAX = 10_000
"""Calls queued on one worker; a disk that falls further behind refuses more work."""
SHORT_CALL_S = 0.005
"""A worker for short calls leaves them to its thread while they take longer on average."""
PAUSE_S = 0.0005
"""Of a long call on a worker, after each millisecond or so."""
AVERAGED_CALLS = 16
"""After a call that took a second about a hundred short ones are needed to forget it."""
_SYNCFS: Callable[[int], int] | None = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
_PROBE_BYTES = 64 * 1024
_WARM_BYTES = 128 * 1024
_PID_BYTES_MAX = 32
_READ_AHEAD_BYTES = 4 << 20
"""A reader of what is not in memory mostly reads on: not each piece should wait for a worker."""


class Descriptor:
    """An open file, closed when nobody holds it any more."""

    __slots__ = ("cuts", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.cuts = 0
        """How often the file was made shorter."""

    def __del__(self) -> None:
        """Close the file."""
        os.close(self.number)


class RealRegion:
    """A `FileRegion` of a file on disk."""

    __slots__ = ("_cuts", "_held", "_path", "_position", "_size")

    def __init__(self, held: Descriptor, path: str, position: int, size: int) -> None:
        self._held = held
        self._cuts = held.cuts
        self._path = path
        self._position = position
        self._size = size

    def __len__(self) -> int:
        """How many bytes these are."""
        return self._size

    def read(self, start: int, size: int) -> bytes:
        """See `FileRegion.read`."""
        self._check()
        data = os.pread(self._held.number, min(size, self._size - start), self._position + start)
        return data or self._gone()

    def send_to(self, descriptor: int, start: int) -> int:
        """Send bytes from the one numbered `start`; return how many were taken."""
        self._check()
        size = self._size - start
        sent = os.sendfile(descriptor, self._held.number, self._position + start, size)
        return sent or self._gone()

    def _check(self) -> None:
        if self._held.cuts != self._cuts:
            # Whatever stands there now, it is not what was found.
            self._gone()

    def _gone(self) -> NoReturn:
        raise OSError(errno.ESTALE, "cut off before it was sent", self._path)


class RealFile(File):
    """A `File` on a descriptor; reads may come from another thread than writes.

    Nobody else writes to a node's files, so the size is asked for once and then kept here.
    """

    def __init__(self, path: str, *, create: bool) -> None:
        self._path = path
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        # For the node's own user: logs hold records, and the metadata's keys that verify passwords.
        self._descriptor = os.open(path, flags, 0o600)
        self._held: Descriptor | None = Descriptor(self._descriptor)
        self._size = os.fstat(self._descriptor).st_size
        self._knows_memory = True
        """Whether the file system can say what is in memory."""

    def append(self, buffers: Sequence[Buffer]) -> None:
        """See `File.append`. What a failed write left behind is cut off again if possible."""
        end = self._size
        try:
            self._write(end, [memoryview(buffer) for buffer in buffers if len(buffer)])
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, end)
            raise self._named(error) from None

    def _named(self, error: OSError) -> OSError:
        """Say which file the error is about, as those of a descriptor do not."""
        error.filename = self._path
        return error

    def _write(self, position: int, buffers: list[memoryview]) -> None:
        first = 0
        while first < len(buffers):
            some = buffers[first : first + BUFFERS_MAX]
            written = os.pwritev(self._descriptor, some, position)
            position += written
            while first < len(buffers) and written >= buffers[first].nbytes:
                written -= buffers[first].nbytes
                first += 1
            if written:
                buffers[first] = buffers[first].cast("B")[written:]
        self._size = max(self._size, position)

    def read_at(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, position)
            while data and len(data) < size:
                more = os.pread(self._descriptor, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise self._named(error) from None
        return data

    def warm(self, position: int, size: int) -> Callable[[], None] | None:
        """See `File.warm`. Looks at one byte of every few pages, without waiting for any."""
        end = min(position + size, self._size)
        if (
            self._held is None
            or position >= end
            or all(self._in_memory(at) for at in (*range(position, end, _PROBE_BYTES), end - 1))
        ):
            return None
        return _Warming(self._held, position, end, min(end + _READ_AHEAD_BYTES, self._size))

    def _in_memory(self, position: int) -> bool:
        try:
            os.preadv(self._descriptor, [bytearray(1)], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            self._knows_memory = False
            return True
        return True

    def region(self, position: int, size: int) -> Piece:
        """See `File.region`. What may have to wait for the disk is read, as is what is small."""
        if size < SENT_FROM_FILE_BYTES or self._held is None or not self._knows_memory:
            return self.read_at(position, size)
        return RealRegion(self._held, self._path, position, min(size, self._size - position))

    def write_at(self, position: int, data: Buffer) -> None:
        try:
            self._write(position, [memoryview(data)] if len(data) else [])
        except OSError as error:
            raise self._named(error) from None

    def size(self) -> int:
        return self._size

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise self._named(error) from None
        if size < self._size and self._held is not None:
            self._held.cuts += 1
        self._size = size

    def sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise self._named(error) from None

    def close(self) -> None:
        self._held = None


class _Warming:
    """Has a part of a file read into the page cache and waits for it, without a copy of it.

    What follows is read as well, but not waited for.
    """

    def __init__(self, held: Descriptor, position: int, end: int, read_to: int) -> None:
        # The file stays open for it: by then the number may be another file's.
        self._held = held
        self._position = position
        self._end = end
        self._read_to = read_to

    def __call__(self) -> None:
        number = self._held.number
        # The kernel limits what one call asks for.
        for position in range(self._position, self._read_to, _WARM_BYTES):
            os.posix_fadvise(number, position, _WARM_BYTES, os.POSIX_FADV_WILLNEED)
        for position in (*range(self._position, self._end, _PROBE_BYTES), self._end - 1):
            os.pread(number, 1, position)


class RealDirectoryLock(DirectoryLock):
    """A `DirectoryLock` by flock: the kernel gives it up when the process ends, however it ends.

    The file holds the process id of the last holder, for those who look for it.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(f"{path}/.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, _PID_BYTES_MAX, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            who = f"process {holder}" if holder.isdecimal() else "another process"
            raise ConfigError(
                f"log.dirs: {path} is in use by another node ({who}): this node runs already, or "
                "that one has its directory; stop that one or name another directory"
            ) from None
        self._held = True
        # A full or failing disk says so when something counts; a stale id is found out by its
        # reader, who must look whether that process has this file open.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        if self._held:
            self._held = False
            os.close(self._descriptor)


class RealFileSystem(FileSystem):
    """`FileSystem` on the operating system's files."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        return RealFile(path, create=create)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def is_readable_by_all(self, path: str) -> bool:
        return bool(os.stat(path).st_mode & stat.S_IROTH)

    def names(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def make_directories(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_volume(self, directory: str) -> bool:
        """See `FileSystem.sync_volume`: Linux's syncfs."""
        if _SYNCFS is None:
            return False
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _SYNCFS(descriptor) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), directory)
        finally:
            os.close(descriptor)
        return True

    def space(self, directory: str) -> tuple[int, int]:
        found = os.statvfs(directory)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def lock_directory(self, path: str) -> RealDirectoryLock:
        return RealDirectoryLock(path)


class RealSender(Sender):
    """A `Sender` on a TCP socket: the kernel hands over pages of files without a copy (row L9).

    It writes to the socket past the asyncio transport, while that has nothing to send itself. It
    has a descriptor of its own: the transport closes its socket without notice, and the number may
    be another connection's the next moment.
    """

    def __init__(self, descriptor: int) -> None:
        """`descriptor` of the connection's socket, of which the sender makes its own."""
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)

    def send(self, pieces: Iterable[Piece], start: int) -> int:
        sent = 0
        for part in _parts(pieces, start):
            try:
                taken = part.send(self._socket)
            except (BlockingIOError, InterruptedError):
                break
            sent += taken
            if taken < part.size:
                break
        return sent

    def close(self) -> None:
        self._socket.close()


def make_sender(transport: asyncio.BaseTransport) -> RealSender | None:
    """Return a sender for the connection if it is plain TCP: what TLS sends must be read."""
    connection = transport.get_extra_info("socket")
    if connection is None or transport.get_extra_info("sslcontext") is not None:
        return None
    return RealSender(connection.fileno())


class _Buffers:
    """What can be sent with one call, as it is in memory."""

    def __init__(self, buffers: list[Buffer], flags: int) -> None:
        self._buffers = buffers
        self._flags = flags
        self.size = sum(map(len, buffers))

    def send(self, connection: socket.socket) -> int:
        """Return how many bytes were taken."""
        return connection.sendmsg(self._buffers[:BUFFERS_MAX], (), self._flags)


class _Rest:
    """A part of a file from a byte of it on."""

    def __init__(self, region: RealRegion, start: int) -> None:
        self._region = region
        self._start = start
        self.size = len(region) - start

    def send(self, connection: socket.socket) -> int:
        """Return how many bytes were taken."""
        return self._region.send_to(connection.fileno(), self._start)


def _parts(pieces: Iterable[Piece], start: int) -> Iterator[_Buffers | _Rest]:
    buffers: list[Buffer] = []
    for piece in pieces:
        if isinstance(piece, bytes | bytearray | memoryview):
            buffers.append(memoryview(piece)[start:] if start else piece)
        else:
            if buffers:
                yield _Buffers(buffers, socket.MSG_MORE)
                buffers = []
            yield _Rest(cast("RealRegion", piece), start)
        start = 0
    if buffers:
        yield _Buffers(buffers, 0)


class _Outcome(NamedTuple):
    """What came of a call, on its way from the worker's thread to the event loop's."""

    future: asyncio.Future[Any]
    result: Any
    error: BaseException | None
    took_s: float


class RealWorker(Worker):
    """A `Worker` on a thread of its own, which starts with the first call.

    A call that is queued always runs, even if its future is cancelled: it may be the write that a
    later one builds on. With `short_calls` the thread has only what may take long: to hand a sync
    of a quick disk to a thread, which needs the interpreter's lock twice, and to hear back costs
    more than the sync itself. A disk that stalls so holds up the event loop once.
    """

    def __init__(self, name: str, *, short_calls: bool = False) -> None:
        self._name = name
        self._short_calls = short_calls
        self._average_s = SHORT_CALL_S * 2
        """Moving, of what calls take; at first as if they were long."""
        self._calls: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None]
        self._calls = SimpleQueue()
        self._outcomes: deque[_Outcome] = deque()
        self._waking = False
        self._outstanding = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """See `Worker.submit`. KafkaError(KAFKA_STORAGE_ERROR) when too much is queued."""
        if self._closed or self._outstanding >= WORKER_CALLS_MAX:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"worker {self._name} takes no calls")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            # Not a daemon: the interpreter must not end in the middle of a write.
            threading.Thread(target=self._run, name=self._name, daemon=False).start()
        future: asyncio.Future[T] = self._loop.create_future()
        if self._short_calls and not self._outstanding and self._average_s < SHORT_CALL_S:
            self._resolve(_run(call, future))
            return future
        self._outstanding += 1
        self._calls.put((call, future))
        return future

    def pause(self) -> None:
        """See `Worker.pause`. A thread that sleeps hands the interpreter over at once."""
        time.sleep(PAUSE_S)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            self._outcomes.append(_run(*item))
            # Else what the call holds would live until the next one comes.
            del item
            self._wake()

    def _wake(self) -> None:
        """Ask the loop to deliver; outcomes that come before it does so share the one wake-up."""
        if self._waking or self._loop is None:
            return
        self._waking = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # The flag falls before the queue is emptied: an outcome that comes in between wakes the
        # loop once too often instead of never.
        self._waking = False
        while self._outcomes:
            self._outstanding -= 1
            self._resolve(self._outcomes.popleft())

    def _resolve(self, outcome: _Outcome) -> None:
        future, result, error, took_s = outcome
        self._average_s += (took_s - self._average_s) / AVERAGED_CALLS
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


def _run(call: Callable[[], Any], future: asyncio.Future[Any]) -> _Outcome:
    began = time.perf_counter()
    result, error = outcome_of(call)
    return _Outcome(future, result, error, time.perf_counter() - began)


class RealRuntime:
    """`Runtime` of a node in a process of its own; `close` it, or the interpreter will not end."""

    def __init__(
        self, log_stream: TextIO | None = None, log_level: str = "info", **context: Any
    ) -> None:
        """Log at `log_level` and above to the stream (standard error), always with `context`."""
        self.files: FileSystem = RealFileSystem()
        self.random = random.Random(random.SystemRandom().getrandbits(256))
        self.log = make_log(log_stream or sys.stderr, log_level, **context)
        self._workers: list[RealWorker] = []
        self._selector: TimedSelector | None = None

    def wall_ms(self) -> int:
        """See `Runtime.wall_ms`."""
        return time.time_ns() // 1_000_000

    def uuid(self) -> uuid.UUID:
        """See `Runtime.uuid`."""
        return uuid.uuid4()

    def usage(self) -> ProcessUsage:
        """See `Runtime.usage`."""
        return usage_of_process()

    def idle_s(self) -> float | None:
        """See `Runtime.idle_s`."""
        return None if self._selector is None else self._selector.idle_s

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return an event loop whose waiting is measured."""
        self._selector = TimedSelector(time.perf_counter)
        return asyncio.SelectorEventLoop(self._selector)

    def sender(self, transport: asyncio.BaseTransport) -> RealSender | None:
        """See `Runtime.sender`."""
        return make_sender(transport)

    def worker(self, name: str, *, short_calls: bool = False) -> RealWorker:
        """See `Runtime.worker`."""
        worker = RealWorker(name, short_calls=short_calls)
        self._workers.append(worker)
        return worker

    def close(self) -> None:
        """End all workers after what is queued; do not wait."""
        for worker in self._workers:
            worker.close()


def make_log(stream: TextIO, level: str, **context: Any) -> FilteringBoundLogger:
    """Return a logger that shares no configuration: JSON lines, or key=value for people at a
    terminal.
    """
    processors: list[Processor] = [
        add_request_id,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if stream.isatty():
        plain = structlog.dev.plain_traceback
        colors = not os.environ.get("NO_COLOR")  # https://no-color.org
        processors.append(structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain))
    else:
        processors.append(structlog.processors.format_exc_info)
        processors.append(structlog.processors.JSONRenderer(default=str))
    levels = LogLevels(Level(logging.getLevelNamesMapping()[level.upper()]))
    return levels.logger(structlog.WriteLogger(stream), processors, **context)


def make_collector() -> Collector:
    """Return the collector for a process that is one node."""
    return Collector(time.perf_counter)
