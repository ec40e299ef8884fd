"""Kafka's wire protocol: field tables, codec, versions. Pure: bytes in, messages out.

A message is a dict of field names to values. The tables of fields come from kio, which is
generated from Apache Kafka's own message files. Each table is compiled once to a decoder and an
encoder.

    codec     frames to requests, messages to frames
    versions  the api keys and versions that this broker serves

Invariants:

- Bytes from outside are not trusted: each length is compared with the rest of the frame before
  it is used, and a request has a bound on the elements of its arrays.
- Bytes that are no valid message raise `MalformedError`, and nothing else.
- Records are views of the frame, never copies.
- A decoded message has every field of its version, and the default of each tagged field left
  out.

The package must not know what any message means, and does no I/O.

Source: Apache Kafka's protocol guide and message files; KIP-482 (flexible versions), KIP-511.
"""

from broker.protocol._decoder import struct_decoder
from broker.protocol._encoder import EncodedArray, Message, joined, struct_encoder
from broker.protocol._frames import FrameReader
from broker.protocol._schema import REQUIRED, Field, Struct, response_table

__all__ = [
    "REQUIRED",
    "EncodedArray",
    "Field",
    "FrameReader",
    "Message",
    "Struct",
    "joined",
    "response_table",
    "struct_decoder",
    "struct_encoder",
]
