"""What an answer means: allowed, refused with an error, or left out; or which operations it names.

A request that is allowed may fail for other reasons; those do not matter here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raftctl.errors import ErrorCode
from raftctl.metadata.acls import Operation
from tests.peers.authorization.rows import written

if TYPE_CHECKING:
    from tests.peers.authorization.rows import Row

ALLOWED = "allowed"
LEFT_OUT = "left out"
NOT_ASKED = -(2**31)
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


def verdict(row: Row, answer: Mapping[str, Any], name: str) -> str:
    """What the answer to a row's request means; `name` is what may be left out."""
    refused = {ErrorCode(code).name for code in _codes(answer, row.codes) if code in REFUSALS}
    if refused:
        return " and ".join(sorted(refused))
    if row.among is not None and name not in _at(answer, row.among[0].split(".")):
        return LEFT_OUT
    if row.operations:
        return operations(next(_values(answer, row.operations)))
    return ALLOWED


def is_refusal(one: str) -> bool:
    """Whether a verdict is an error."""
    return one.endswith("AUTHORIZATION_FAILED")


def operations(bits: int) -> str:
    """The names of the operations of a field of bits."""
    if bits == NOT_ASKED:
        return "not asked"
    return ", ".join(written(one) for one in Operation if bits >> one & 1) or "none"


def _values(value: Any, wanted: str) -> Iterator[Any]:
    """The values of all fields of that name."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from [one] if key == wanted else _values(one, wanted)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _values(one, wanted)


def _codes(value: Any, wanted: str) -> Iterator[int]:
    """The errors of all fields, or of those of one name."""
    if wanted:
        yield from _values(value, wanted)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from [one] if key.endswith("error_code") else _codes(one, wanted)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _codes(one, wanted)


def _at(value: Any, path: Sequence[str]) -> list[Any]:
    """The values at a path; of lists those of every element."""
    if not path:
        return [value]
    elements = value if isinstance(value, list | tuple) else [value]
    return [found for one in elements for found in _at(one[path[0]], path[1:])]
