"""Decisions of a StandardAuthorizer with millions of rules, and what the rules cost to hold.

The shape is that of Apache Kafka's AuthorizerBenchmark: each resource has 50 rules, of 50
principals; each fifth name is a prefix, each tenth resource a group, a fifth of the rules denies.
Two more shapes hold one rule a resource and one principal a rule, where sharing helps least.

Times are the thread's own, so that what else the machine does hardly shows.
"""

from __future__ import annotations

import gc
import io
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

from raftctl.metadata.acls import Operation, PatternType, Permission, ResourceType
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from raftctl.runtime.real import make_collector, make_log
from raftctl.security import Action, Principal, Requester, StandardAuthorizer
from tests.bench.figures import figure

if TYPE_CHECKING:
    from raftctl.metadata.image import MetadataImage

RULES = 2_500_000
LOADED = 1_000_000
OF_RESOURCE = 50
DENY = 0.2
QUESTIONS = 20_000
REPEATED = 200_000
SEED = 1
HOST = "10.0.0.7"
OPERATIONS = (
    Operation.READ,
    Operation.WRITE,
    Operation.DESCRIBE,
    Operation.ALTER,
    Operation.ALL,
)
Shape = Callable[[int], tuple[str, str]]
"""Number of a rule to the names of its resource and its principal."""
SHAPES: dict[str, Shape] = {
    "50 rules a resource": lambda number: (str(number // OF_RESOURCE), str(number % OF_RESOURCE)),
    "one rule a resource": lambda number: (str(number), str(number % OF_RESOURCE)),
    "one rule a principal": lambda number: (str(number // OF_RESOURCE), str(number)),
}
MICROSECONDS = 1e-3
"""In a nanosecond."""


def run(turns: int, count: int) -> dict[str, Any]:
    """Measure all, with the garbage collector of a node."""
    collector = make_collector()
    collector.start()
    figures = _figures(turns, count)
    collector.stop()
    return figures


def _figures(turns: int, count: int) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    image = _image(count, SHAPES["50 rules a resource"])
    authorizer = _authorizer()
    bytes_a_rule = _published(authorizer, image)
    figures |= _decisions(authorizer, image, turns, f"{len(image.acls):,} rules")
    del authorizer, image
    loads = [_load(min(count, LOADED)) for _ in range(turns)]
    loaded = f"{min(count, LOADED):,} rules"
    figures[f"load {loaded}, image to index"] = figure(loads, "s", "at most 10")
    figures["memory, 50 rules a resource"] = figure([bytes_a_rule], "B a rule", "at most 250", 0)
    for name in ("one rule a resource", "one rule a principal"):
        found = _published(_authorizer(), _image(min(count, LOADED), SHAPES[name]))
        figures[f"memory, {name}"] = figure([found], "B a rule", "at most 250", 0)
    return figures


def _authorizer() -> StandardAuthorizer:
    return StandardAuthorizer({}, make_log(io.StringIO(), "warning"))


def rules(count: int, shape: Shape) -> Iterator[AccessControlEntryRecord]:
    """Return the rules of an image; texts are objects of their own, as those of a log are."""
    chance = random.Random(SEED)
    for number in range(count):
        name, user = shape(number)
        resource = int(name)
        yield AccessControlEntryRecord(
            UUID(int=number),
            ResourceType.GROUP if resource % 10 == 0 else ResourceType.TOPIC,
            f"foo-bar35_resource-{name}",
            PatternType.PREFIXED if resource % 5 == 0 else PatternType.LITERAL,
            f"User:principal-{user}",
            "*",
            OPERATIONS[(resource + int(user)) % len(OPERATIONS)],
            Permission.DENY if chance.random() < DENY else Permission.ALLOW,
        )


def _image(count: int, shape: Shape) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    found = rules(count, shape)
    while piece := [*islice(found, 100_000)]:
        delta.replay_all(piece, 0)
    return delta.apply(count, 1, 0)


def _published(authorizer: StandardAuthorizer, image: MetadataImage) -> float:
    """Give the authorizer its first image; return the bytes that a rule takes in its index."""
    delta = MetadataDelta(EMPTY_IMAGE)
    tracemalloc.start()
    authorizer.publish(delta, image)
    gc.collect()
    allocated, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return allocated / len(image.acls)


def _load(count: int) -> float:
    image = _image(count, SHAPES["50 rules a resource"])
    authorizer = _authorizer()
    began = time.thread_time()
    authorizer.publish(MetadataDelta.between_empty_and(image), image)
    return time.thread_time() - began


def _decisions(
    authorizer: StandardAuthorizer, image: MetadataImage, turns: int, size: str
) -> dict[str, Any]:
    chance = random.Random(SEED)
    resources = len(image.acls) // OF_RESOURCE
    firsts: list[float] = []
    slow: list[float] = []
    repeated: list[float] = []
    types: list[float] = []
    types_slow: list[float] = []
    types_again: list[float] = []
    changes: list[float] = []
    for turn in range(turns):
        asked = [_question(chance, resources) for _ in range(QUESTIONS)]
        took = [_timed(partial(authorizer.authorize, *one)) for one in dict.fromkeys(asked)]
        firsts.append(statistics.median(took) * MICROSECONDS)
        slow.append(statistics.quantiles(took, n=100)[98] * MICROSECONDS)
        repeated.append(_again(partial(authorizer.authorize, *asked[-1])))
        by_type = [
            (Requester(Principal("User", f"principal-{user}"), HOST), operation, resource_type)
            for user in range(OF_RESOURCE)
            for operation in OPERATIONS
            for resource_type in (ResourceType.TOPIC, ResourceType.GROUP)
        ]
        took = [_timed(partial(authorizer.authorize_by_resource_type, *one)) for one in by_type]
        types.append(statistics.median(took) * MICROSECONDS)
        types_slow.append(statistics.quantiles(took, n=100)[98] * MICROSECONDS)
        types_again.append(_again(partial(authorizer.authorize_by_resource_type, *by_type[-1])))
        image, took_ns = _change(authorizer, image, turn)
        changes.append(took_ns * MICROSECONDS)
    return {
        f"authorize, repeated, {size}": figure(repeated, "µs", "at most 2"),
        f"authorize, first, {size}": figure(firsts, "µs", "at most 20"),
        f"authorize, first, 99th percentile, {size}": figure(slow, "µs", "at most 20"),
        f"by type, repeated, {size}": figure(types_again, "µs", "at most 2"),
        f"by type, first, {size}": figure(types, "µs", "at most 50"),
        f"by type, first, 99th percentile, {size}": figure(types_slow, "µs", "at most 50"),
        f"a rule added and removed, {size}": figure(changes, "µs", "not with the rules"),
    }


def _question(chance: random.Random, resources: int) -> tuple[Requester, Action]:
    """Return a question about a name that has rules, begins with a prefix, or is unknown."""
    user = Principal("User", f"principal-{chance.randrange(OF_RESOURCE + 5)}")
    resource = chance.randrange(resources * 11 // 10)
    longer = "-more" if resource % 5 == 0 else ""
    kind = ResourceType.GROUP if resource % 10 == 0 else ResourceType.TOPIC
    action = Action(chance.choice(OPERATIONS[:4]), kind, f"foo-bar35_resource-{resource}{longer}")
    return Requester(user, HOST), action


def _timed(step: Callable[[], object]) -> int:
    began = time.thread_time_ns()
    step()
    return time.thread_time_ns() - began


def _again(step: Callable[[], object]) -> float:
    began = time.thread_time_ns()
    for _ in range(REPEATED):
        step()
    return (time.thread_time_ns() - began) / REPEATED * MICROSECONDS


def _change(
    authorizer: StandardAuthorizer, image: MetadataImage, turn: int
) -> tuple[MetadataImage, int]:
    """Add a rule and remove it; the decisions that were kept are dropped."""
    took = 0
    entry_id = UUID(int=1 << 100 | turn)
    added = AccessControlEntryRecord(
        entry_id, ResourceType.TOPIC, "new", PatternType.LITERAL, "User:new", "*", 3, 3
    )
    for record in (added, RemoveAccessControlEntryRecord(entry_id)):
        delta = MetadataDelta(image)
        delta.replay(record, image.offset + 1)
        image = delta.apply(image.offset + 1, 1, 0)
        took += _timed(partial(authorizer.publish, delta, image))
    return image, took
