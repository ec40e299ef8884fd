"""The four codecs of record batches, as Apache Kafka's clients write and read them.

Records are opened only where they must be: compaction, a topic's own `compression.type`, search by
timestamp. What a batch unpacks to is bounded, so that a small one cannot fill the memory.
Sources: RFC 1952 (gzip); the LZ4 frame format 1.6.1 (clients in Java take independent blocks only);
xerial's framing of Snappy, beside which plain Snappy is understood; RFC 8878 (Zstandard).
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import cramjam

from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.runtime.api import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""The codec by its name in `compression.type`."""
NAMES = {number: name for name, number in CODECS.items()}
OPENED_BYTES_MAX = 64 << 20
"""The most bytes that a batch may unpack to, unless the caller allows less."""
_GROWTH = 8
"""From one buffer to the next larger one that is tried."""
_GZIP_WINDOW_BITS = 31
_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
_XERIAL_SIZE = struct.Struct(">i")
_LZ4_HEADER = bytes.fromhex("04224d18604082")
"""Version 1, independent blocks of at most 64 KiB, no checksums: the batch has its own."""
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_FLAGS_AT, _LZ4_INDEPENDENT = 4, 0x20
_LZ4_SIZE = struct.Struct("<I")
_LZ4_STORED = 1 << 31


def decompress(codec: int, data: Buffer, bytes_max: int = OPENED_BYTES_MAX) -> Buffer:
    """Return the bytes of the records of a batch.

    Uncompressed ones are returned as they are, without a copy. Raises KafkaError(CORRUPT_MESSAGE)
    if the bytes cannot be unpacked, or become more than `bytes_max`.
    """
    if codec == NONE or not len(data):
        return data
    opener = _OPENERS.get(codec)
    if opener is None:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"codec {codec} is not known")
    try:
        opened = opener(data, bytes_max)
    except (cramjam.DecompressionError, zlib.error, struct.error, _BrokenError) as error:
        text = f"records cannot be unpacked by {NAMES[codec]}: {error}"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, text) from None
    # A batch of a few kilobytes may claim gigabytes; the callers count on the bound.
    invariant(len(opened) <= bytes_max, "what is unpacked is bounded")
    return opened


def compress(codec: int, data: Buffer, config: TopicConfig) -> bytes:
    """Return the records packed, at the topic's level where the codec has levels."""
    if codec == GZIP:
        packer = zlib.compressobj(config.compression_gzip_level, wbits=_GZIP_WINDOW_BITS)
        return packer.compress(data) + packer.flush()
    if codec == SNAPPY:
        return _snappy(data)
    if codec == LZ4:
        return _lz4(data)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(bytes(data), level=config.compression_zstd_level))
    return bytes(data)


class _BrokenError(Exception):
    pass


def _open_gzip(data: Buffer, bytes_max: int) -> Buffer:
    opener = zlib.decompressobj(_GZIP_WINDOW_BITS)
    opened = opener.decompress(data, bytes_max)
    # A stream that ends early opens without an error, as far as it goes: its CRC is at its end.
    if opener.unconsumed_tail:
        raise _BrokenError(f"more than {bytes_max} bytes")
    if not opener.eof:
        raise _BrokenError("it ends early")
    if opener.unused_data:
        raise _BrokenError(f"{len(opener.unused_data)} bytes follow its end")
    return opened


def _open_into(
    opener: Callable[[bytes, bytearray], int], data: Buffer, sizes: tuple[int, ...]
) -> Buffer:
    """Open into the first buffer that is large enough: most batches need the small one.

    The libraries raise the same error for a buffer that is too small as for broken bytes. So bytes
    that are broken cost an attempt with each size.
    """
    for size in sizes[:-1]:
        out = bytearray(size)
        try:
            return memoryview(out)[: opener(bytes(data), out)]
        except cramjam.DecompressionError:
            continue
    out = bytearray(sizes[-1])
    return memoryview(out)[: opener(bytes(data), out)]


def _sizes(data: Buffer, bytes_max: int) -> tuple[int, ...]:
    """Return the sizes to try. A buffer costs its size, so none is much larger than it must be."""
    sizes, size = [], _GROWTH * len(data) + 4096
    while size < bytes_max:
        sizes.append(size)
        size *= _GROWTH
    return (*sizes, bytes_max)


def has_linked_blocks(data: Buffer) -> bool:
    """Return whether LZ4's blocks depend on earlier ones, which clients in Java cannot read."""
    return len(data) > _LZ4_FLAGS_AT and not data[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT


def _open_lz4(data: Buffer, bytes_max: int) -> Buffer:
    return _open_into(cramjam.lz4.decompress_into, data, _sizes(data, bytes_max))


def _open_zstd(data: Buffer, bytes_max: int) -> Buffer:
    return _open_into(cramjam.zstd.decompress_into, data, _sizes(data, bytes_max))


def _open_snappy(data: Buffer, bytes_max: int) -> Buffer:
    view = memoryview(data)
    # librdkafka writes one plain block, clients in Java a stream of them after a header.
    if bytes(view[: len(_XERIAL)]) != _XERIAL:
        return _open_snappy_block(view, bytes_max)
    opened, at = bytearray(), len(_XERIAL_HEADER)
    while at < len(view):
        (size,) = _XERIAL_SIZE.unpack_from(view, at)
        at += _XERIAL_SIZE.size
        if not 0 <= size <= len(view) - at:
            raise _BrokenError(f"a block of {size} bytes")
        opened += _open_snappy_block(view[at : at + size], bytes_max - len(opened))
        at += size
    return opened


def _open_snappy_block(block: memoryview, bytes_max: int) -> Buffer:
    size = cramjam.snappy.decompress_raw_len(bytes(block))
    if size > bytes_max:
        raise _BrokenError(f"{size} bytes, of {bytes_max} at most")
    return _open_into(cramjam.snappy.decompress_raw_into, block, (size,))


def _snappy(data: Buffer) -> bytes:
    pieces = [_XERIAL_HEADER]
    for block in _blocks(data, _XERIAL_BLOCK_BYTES):
        packed = bytes(cramjam.snappy.compress_raw(block))
        pieces += [_XERIAL_SIZE.pack(len(packed)), packed]
    return b"".join(pieces)


def _lz4(data: Buffer) -> bytes:
    pieces = [_LZ4_HEADER]
    for block in _blocks(data, _LZ4_BLOCK_BYTES):
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            pieces += [_LZ4_SIZE.pack(len(packed)), packed]
        else:
            pieces += [_LZ4_SIZE.pack(len(block) | _LZ4_STORED), block]
    return b"".join([*pieces, _LZ4_SIZE.pack(0)])


def _blocks(data: Buffer, size: int) -> list[bytes]:
    whole = bytes(data)
    return [whole[at : at + size] for at in range(0, len(whole), size)]


_OPENERS = {GZIP: _open_gzip, SNAPPY: _open_snappy, LZ4: _open_lz4, ZSTD: _open_zstd}
