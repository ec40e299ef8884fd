"""Dataclasses as MessagePack, driven by type hints that are resolved once for each class.

`Codec(*classes)` is a table of tagged classes, fixed when it is made. An object of a tagged
class is the array `[type id, field, ...]`. A dataclass within it is an array of its fields, a
UUID 16 bytes, an IntEnum its number; None and the primitives are themselves.

The package decides the form on disk and on the wire, of values and of whole columns of them. It
must not know any record or message: the tables belong to those who define the classes.

Invariants:

- Evolution is by position: fields are added at the end, with a default. A reader ignores
  trailing fields it does not know and gives missing ones their defaults.
- Unpacking trusts nothing: every type is checked, and `CodecError` names the class and the
  field.
- A class of another release is `NotKnownError`, which is no damage.
- Packing trusts the type checker and checks nothing.
"""

from raftctl.codec._codec import Codec, CodecError, NotKnownError, Row, by_type_id, maker, pack_rows

__all__ = [
    "Codec",
    "CodecError",
    "NotKnownError",
    "Row",
    "by_type_id",
    "maker",
    "pack_rows",
]
