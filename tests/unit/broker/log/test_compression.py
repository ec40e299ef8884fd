"""The codecs, beside those of an independent implementation, and their bounds."""

from __future__ import annotations

import gzip
import struct

import cramjam
import pytest
from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.batches import compression
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.topic import TopicConfig

PACKED = [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD]
TEXT = b"a line of text, and again a line of text\n" * 5_000


@pytest.mark.req("L2")
@pytest.mark.parametrize("codec", [compression.NONE, *PACKED])
@given(data=st.binary(max_size=2_000), times=st.integers(0, 200))
@settings(max_examples=30, deadline=None)
def test_what_is_packed_is_unpacked(codec: int, data: bytes, times: int) -> None:
    whole = data * times
    packed = compression.compress(codec, whole, TopicConfig())
    assert bytes(compression.decompress(codec, packed)) == whole


@pytest.mark.req("L2")
def test_others_read_what_is_packed_here() -> None:
    pack = compression.compress
    assert gzip_decode(pack(compression.GZIP, TEXT, TopicConfig())) == TEXT
    assert bytes(snappy_decode(pack(compression.SNAPPY, TEXT, TopicConfig()))) == TEXT
    assert bytes(lz4_decode(pack(compression.LZ4, TEXT, TopicConfig()))) == TEXT
    assert bytes(zstd_decode(pack(compression.ZSTD, TEXT, TopicConfig()))) == TEXT


def test_what_others_pack_is_read_here() -> None:
    read = compression.decompress
    assert bytes(read(compression.GZIP, gzip.compress(TEXT))) == TEXT
    # Snappy without a frame, as clients in C write it.
    assert bytes(read(compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)))) == TEXT
    assert bytes(read(compression.LZ4, bytes(cramjam.lz4.compress(TEXT)))) == TEXT
    assert bytes(read(compression.ZSTD, bytes(cramjam.zstd.compress(TEXT)))) == TEXT


@pytest.mark.parametrize("codec", [*PACKED, 5, 7])
def test_rubbish_is_refused(codec: int) -> None:
    for rubbish in (b"rubbish", b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 99) + b"x"):
        with pytest.raises(KafkaError) as raised:
            compression.decompress(codec, rubbish)
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", PACKED)
def test_a_small_batch_cannot_fill_the_memory(codec: int) -> None:
    bomb = compression.compress(codec, bytes(compression.OPENED_BYTES_MAX + 1), TopicConfig())
    with pytest.raises(KafkaError):
        compression.decompress(codec, bomb)
