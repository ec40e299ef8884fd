"""Reassignments as Apache Kafka's JSON files have them, and plans for new ones. Pure.

{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}
{"version": 1, "topics": [{"topic": "t"}]}
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from raftctl.errors import ConfigError
from raftctl.metadata.placement import UsableBroker, place_replicas

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

CURRENT, PROPOSED = "# current", "# proposed"
"""The lines above the two plans that `--generate` prints."""
Partition = tuple[str, int]
Plan = dict[Partition, tuple[int, ...]]
"""(topic, partition id) to replicas, the preferred leader first."""


def parse_plan(text: str, name: str) -> Plan:
    """The partitions of a reassignment file; ConfigError names the file and what is wrong.

    What `--generate` has printed, as text or JSON, counts as the plan that it proposes.
    """
    plan: Plan = {}
    for one in _items(_proposed(text), name, "partitions"):
        topic, number, replicas = one.get("topic"), one.get("partition"), one.get("replicas")
        if not isinstance(topic, str) or not isinstance(number, int) or not _is_id(number):
            raise ConfigError(f"{name}: each partition needs `topic` (text) and `partition`: {one}")
        if not isinstance(replicas, list) or not replicas or not all(map(_is_id, replicas)):
            raise ConfigError(
                f"{name}: `replicas` of {topic}-{number} must be a list of broker ids"
            )
        if (topic, number) in plan:
            raise ConfigError(f"{name}: {topic}-{number} stands there twice")
        plan[topic, number] = tuple(replicas)
    return plan


def _proposed(text: str) -> str:
    """The plan in the output of `--generate`; the text itself if it is no such output."""
    printed = text.partition(f"{PROPOSED}\n")[2]
    if printed:
        return printed
    try:
        document = json.loads(text)
    except ValueError:
        return text
    is_output = isinstance(document, dict) and "proposed" in document
    return json.dumps(document["proposed"]) if is_output else text


def parse_topics(text: str, name: str) -> list[str]:
    """The topics of a topics-to-move file; ConfigError names the file and what is wrong."""
    topics = [one.get("topic") for one in _items(text, name, "topics")]
    found = [topic for topic in topics if isinstance(topic, str)]
    if len(found) < len(topics):
        raise ConfigError(f"{name}: each of `topics` needs `topic` (text)")
    return found


def _items(text: str, name: str, key: str) -> list[dict[str, Any]]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name}: not valid JSON: {error}") from None
    if not isinstance(document, dict) or document.get("version", 1) != 1:
        raise ConfigError(f'{name}: must be an object with "version": 1')
    items = document.get(key)
    if not isinstance(items, list) or not items or not all(isinstance(i, dict) for i in items):
        raise ConfigError(f"{name}: `{key}` must be a list of objects, not empty")
    return items


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def plan_document(plan: Mapping[Partition, Sequence[int]]) -> dict[str, Any]:
    """The plan as a reassignment file has it."""
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for (topic, number), replicas in sorted(plan.items())
    ]
    return {"version": 1, "partitions": partitions}


def generate(
    current: Plan, racks: Mapping[int, str | None], broker_ids: Sequence[int], rng: random.Random
) -> Plan:
    """Spreads the partitions anew over these brokers and their racks, each topic on its own.

    Every partition keeps its number of replicas. KafkaError(INVALID_REPLICATION_FACTOR) if there
    are too few brokers.
    """
    brokers = [UsableBroker(one, racks.get(one), active=True) for one in sorted(set(broker_ids))]
    plan: Plan = {}
    for topic in sorted({topic for topic, _ in current}):
        numbers = sorted(number for name, number in current if name == topic)
        factor = len(current[topic, numbers[0]])
        placed = place_replicas(brokers, len(numbers), factor, rng)
        plan |= {(topic, number): one for number, one in zip(numbers, placed, strict=True)}
    return plan


def progress(
    plan: Plan, current: Mapping[Partition, Sequence[int]], moving: Sequence[Partition]
) -> dict[Partition, str]:
    """What has become of each partition: `done`, `in progress`, `differs` or `missing`."""
    found = {}
    for key, replicas in plan.items():
        if key in moving:
            found[key] = "in progress"
        elif key not in current:
            found[key] = "missing"
        else:
            found[key] = "done" if tuple(current[key]) == replicas else "differs"
    return found


def throttles(plan: Plan, current: Mapping[Partition, Sequence[int]]) -> dict[str, dict[str, str]]:
    """Topic to the configs that name the replicas to be throttled while the plan is carried out.

    Those that are there send, those that are new fetch.
    """
    found: dict[str, dict[str, str]] = {}
    for topic in sorted({topic for topic, _ in plan}):
        numbers = sorted(number for name, number in plan if name == topic)
        senders = [f"{n}:{one}" for n in numbers for one in current.get((topic, n), ())]
        fetchers = [
            f"{n}:{one}"
            for n in numbers
            for one in plan[topic, n]
            if one not in current.get((topic, n), ())
        ]
        found[topic] = {
            "leader.replication.throttled.replicas": ",".join(senders),
            "follower.replication.throttled.replicas": ",".join(fetchers),
        }
    return found
