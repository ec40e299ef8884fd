"""A reader of DER (X.690), for names of certificates and keys in Java's stores. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

OBJECT_IDENTIFIER = 0x06
OCTET_STRING = 0x04
SEQUENCE = 0x30
SET = 0x31
_LONG_FORM = 0x80


class Element(NamedTuple):
    """A value with its tag; `encoded` is all of it, `content` what follows tag and length."""

    tag: int
    content: bytes
    encoded: bytes

    def children(self, tag: int) -> list[Element]:
        """Return the values within a SEQUENCE or SET, which this must be; else ValueError."""
        if self.tag != tag:
            raise ValueError(f"tag {self.tag:#x} where {tag:#x} is expected")
        return list(_elements(self.content))


def parse(data: bytes) -> Element:
    """Return the one value that `data` is; ValueError if it is anything else."""
    found = list(_elements(data))
    if len(found) != 1:
        raise ValueError(f"{len(found)} values where one is expected")
    return found[0]


def object_identifier(element: Element) -> str:
    """Return an identifier with dots, `2.5.4.3`; ValueError if it is none."""
    if element.tag != OBJECT_IDENTIFIER or not element.content or element.content[-1] & 0x80:
        raise ValueError("no object identifier")
    numbers, number = [], 0
    for byte in element.content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    # The first two numbers share one: the first of them is 0, 1 or 2.
    top = min(numbers[0] // 40, 2)
    return ".".join(map(str, (top, numbers[0] - 40 * top, *numbers[1:])))


def _elements(data: bytes) -> Iterator[Element]:
    position = 0
    while position < len(data):
        start, position = position, position + 2
        size = int.from_bytes(data[position - 1 : position], "big")
        if size & _LONG_FORM:
            count = size & 0x7F
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        content = data[position : position + size]
        if position > len(data) or len(content) < size:
            raise ValueError("a value that ends too early")
        position += size
        yield Element(data[start], content, data[start:position])
