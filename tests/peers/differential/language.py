"""What the table is written in: scripts, which are steps in order, most of them requests.

A body is a dict as of `broker.protocol._schema`; what it leaves out has the default of Kafka's
message, or zero. A string in it that begins with `$` is a name: `$t` is what a step before has kept
by that name, or else a name that only this script has, for a topic or a group. So scripts do not
meet, and many run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from broker.protocol import REQUIRED
from broker.protocol._schema import FIXED, known_versions, load
from broker.protocol.versions import SERVED, ApiKey

if TYPE_CHECKING:
    from broker.protocol import Field, Struct

Body = Mapping[str, Any]
Kept = Mapping[str, Any]
"""What steps have kept of one system's answers, by name."""
MAIN = "main"


@dataclass(frozen=True, slots=True)
class Built:
    """A value of a body that is made when it is sent."""

    make: Callable[[Kept], Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, in one or more versions one after the other."""

    name: str
    api: ApiKey
    body: Body = field(default_factory=dict)
    versions: Sequence[int] | None = None
    """None: all that we advertise."""
    keep: Mapping[str, Sequence[str | int]] = field(default_factory=dict)
    """Names for what stands at these places of the answer."""
    on: str = MAIN
    """The connection."""
    later: bool = False
    """The answer is waited for by an `Answer` of the same name; other steps go on."""
    mine: bool = False
    """Of lists in the answer only what has a name of this script."""
    counts: bool = True
    """Whether the answer is compared; if not, the request only prepares."""
    raw: bytes | None = None
    """Sent instead of the body."""
    patience_s: float = 20.0
    """How long an answer may take before it is taken for none; the connection is then closed."""
    silent: bool = False
    """No answer comes; what is compared is that the connection goes on."""

    def each(self) -> Iterator[tuple[int, str]]:
        """(version, name of the request)."""
        for version in SERVED[self.api] if self.versions is None else self.versions:
            yield version, f"{self.name} v{version}"


@dataclass(frozen=True, slots=True)
class Answer:
    """Waits for the answer of an `Ask` that was `later`."""

    name: str


@dataclass(frozen=True, slots=True)
class Until:
    """Asks until the answer is so; what is asked is not compared."""

    api: ApiKey
    version: int
    body: Body
    ready: Callable[[dict[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Pause:
    """Lets time go by, for what only time does."""

    seconds: float


Step = Ask | Answer | Until | Pause


@dataclass(frozen=True, slots=True)
class Script:
    """Steps in order; each system goes through them by itself."""

    name: str
    steps: Sequence[Step]

    def requests(self) -> Iterator[tuple[ApiKey, int, str]]:
        """(api, version, `script: request`) of all that is compared."""
        for step in self.steps:
            if isinstance(step, Ask) and step.counts:
                for version, name in step.each():
                    yield step.api, version, f"{self.name}: {name}"


def prepare(api: ApiKey, version: int, body: Body, **keep: Sequence[str | int]) -> Ask:
    """A request that is not compared."""
    return Ask(f"prepare {api.name}", api, body, [version], keep, counts=False)


def topic(name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> list[Step]:
    """A new topic with leaders; keeps its id as `$name.id`."""
    pairs = [{"name": key, "value": value} for key, value in (configs or {}).items()]
    new = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": pairs,
    }
    create = {"topics": [new], "timeout_ms": 10_000}
    asked = [{"partition_index": number, "timestamp": -1} for number in range(partitions)]
    return [
        prepare(ApiKey.CREATE_TOPICS, 7, create, **{f"{name}.id": ("topics", 0, "topic_id")}),
        Until(
            ApiKey.LIST_OFFSETS,
            7,
            {"replica_id": -1, "topics": [{"name": name, "partitions": asked}]},
            lambda told: all(
                one["error_code"] == 0 for t in told["topics"] for one in t["partitions"]
            ),
        ),
    ]


def few(api: ApiKey, lowest: int = 0) -> list[int]:
    """The first version that we serve, not below `lowest`, one in the middle, and the newest."""
    served = [version for version in SERVED[api] if version >= lowest]
    return sorted({served[0], served[len(served) // 2], served[-1]})


def since(api: ApiKey, version: int) -> list[int]:
    """All that we serve, from this one."""
    return [one for one in SERVED[api] if one >= version]


def until(api: ApiKey, version: int) -> list[int]:
    """All that we serve before this one."""
    return [one for one in SERVED[api] if one < version]


@cache
def names_of(api: ApiKey) -> frozenset[str]:
    """Every field that some version of the request has, ours or a newer one."""
    found: set[str] = set()

    def walk(table: Struct) -> None:
        for one in table.fields:
            found.add(one.name)
            if one.struct is not None:
                walk(one.struct)

    for version in known_versions(api):
        walk(load(api, version, "request"))
    return frozenset(found)


def filled(api: ApiKey, version: int, body: Body) -> dict[str, Any]:
    """The body with a value for every field; KeyError on one that no version of the api has."""
    unknown = _keys(body) - names_of(api)
    if unknown:
        raise KeyError(f"{api.name} has no {', '.join(sorted(unknown))}")
    return _filled(load(api, version, "request"), body)


def _keys(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        return set(value) | set().union(*map(_keys, value.values()), set())
    if isinstance(value, list | tuple):
        return set().union(*map(_keys, value), set())
    return set()


def _filled(table: Struct, body: Body) -> dict[str, Any]:
    return {one.name: _value(one, body) for one in table.fields}


def _value(one: Field, body: Body) -> Any:
    if one.name not in body:
        return _zero(one) if one.default is REQUIRED else one.default
    value = body[one.name]
    if one.struct is None or value is None:
        return value
    if one.array:
        return [_filled(one.struct, element) for element in value]
    return _filled(one.struct, value)


def _zero(one: Field) -> Any:
    if one.array:
        return []
    if one.nullable:
        return None
    if one.struct is not None:
        return _filled(one.struct, {})
    return 0 if one.kind in FIXED else {"string": ""}.get(one.kind, b"")


def resolved(value: Any, prefix: str, kept: Kept) -> Any:
    """A body with its names and what is built in place."""
    if isinstance(value, Built):
        return resolved(value.make(kept), prefix, kept)
    if isinstance(value, Mapping):
        return {key: resolved(one, prefix, kept) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [resolved(one, prefix, kept) for one in value]
    if isinstance(value, str) and value.startswith("$"):
        return kept[value] if value in kept else prefix + value[1:]
    return value
