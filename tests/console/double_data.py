"""Worlds that the double serves: a calm cluster, one in trouble, a large one, a hostile one."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

BROKERS = (4, 5, 6)
SCRIPT = (
    '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>\'"javascript:alert(1)'
)
"""What each text holds that is not under the rules of a topic's name."""
GIGABYTE = 1 << 30
CUT = 1 << 20
_NAMES = ("orders", "payments", "shipments", "customers", "audit.log", "clicks", "prices.eur")
_SIZES = (48_318_382_080, 9_126_805_504, 734_003_200, 52_428_800, 3_221_225_472, 118_111_600, 4096)


def now_ms() -> int:
    """The time, in ms since the epoch."""
    return int(time.time() * 1000)


def topic_row(name: str, size: int, partitions: int = 6, **troubles: int) -> dict[str, Any]:
    """A row of `GET topics`."""
    row = {
        "name": name,
        "id": base64.urlsafe_b64encode(name.encode().ljust(16, b"-")[:16]).decode().rstrip("="),
        "internal": name.startswith("__"),
        "partitions": partitions,
        "replication_factor": 3,
        "under_replicated": 0,
        "offline": 0,
        "under_min_isr": 0,
        "reassigning": 0,
        "size": size,
    }
    return row | troubles


def content(data: bytes, size: int | None = None) -> dict[str, Any]:
    """A key or value of a record."""
    facts = {"size": len(data) if size is None else size, "cut": size is not None}
    try:
        return {"text": data.decode(), **facts}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode(), **facts}


@dataclass
class World:
    """A cluster as its console sees it. The lists hold the rows of the tables."""

    topics: list[dict[str, Any]]
    groups: list[dict[str, Any]] = field(default_factory=list)
    problem_rows: list[dict[str, Any]] = field(default_factory=list)
    fenced: set[int] = field(default_factory=set)
    leader: int = 1
    epoch: int = 42
    metadata_offset: int = 184_412
    text: str = "analytics"
    """Stands in client ids, group metadata, principals, config values, keys, values."""
    transactions: list[dict[str, Any]] = field(default_factory=list)
    acls: list[dict[str, Any]] = field(default_factory=list)
    quotas: list[dict[str, Any]] = field(default_factory=list)
    reassignments: list[dict[str, Any]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    elections: list[dict[str, Any]] = field(default_factory=list)
    lags: dict[int, int] = field(default_factory=dict)
    """Records that a voter is behind."""

    @property
    def brokers(self) -> list[dict[str, Any]]:
        """Rows of `GET brokers`."""
        return [
            {
                "id": number,
                "rack": f"zone-{'abc'[place]}",
                "fenced": number in self.fenced,
                "in_controlled_shutdown": False,
                "epoch": 2_101 + place,
                "endpoints": [{"name": "PLAINTEXT", "host": f"10.0.0.{number}", "port": 9092}],
                "leaders": 0 if number in self.fenced else 14,
                "replicas": 42,
                "offline_directories": [],
            }
            for place, number in enumerate(BROKERS)
        ]

    def overview(self) -> dict[str, Any]:
        """The document of `GET overview`."""
        return {
            "cluster_id": "Qk3yZ1lXTt6vR0bN8uWfHg",
            "node_id": 1,
            "roles": ["controller"],
            "principal": "User:operator",
            "metadata_version": "4.3-IV0",
            "controller": {"id": self.leader, "epoch": self.epoch},
            "metadata_offset": self.metadata_offset,
            "brokers": {"total": len(BROKERS), "fenced": len(self.fenced)},
            "topics": len(self.topics),
            "partitions": sum(one["partitions"] for one in self.topics),
            "offline": sum(one["offline"] for one in self.topics),
            "under_replicated": sum(one["under_replicated"] for one in self.topics),
            "under_min_isr": sum(one["under_min_isr"] for one in self.topics),
            "reassigning": len(self.reassignments),
            "problems": self.problem_rows[:20],
            "problem_count": len(self.problem_rows),
            "served_ms": now_ms(),
        }

    def quorum(self) -> dict[str, Any]:
        """The document of `GET quorum`."""
        end = self.metadata_offset

        def replica(number: int, role: str) -> dict[str, Any]:
            lag = self.lags.get(number, 0)
            return {
                "node_id": number,
                "directory_id": f"dir-{number}",
                "host": f"10.0.0.{number}",
                "port": 9093,
                "role": "leader" if number == self.leader else role,
                "log_end_offset": end - lag,
                "lag": lag,
                "last_fetch_age_ms": 14 * number,
                "last_caught_up_age_ms": 14 * number + 400 * lag,
            }

        return {
            "leader_id": self.leader,
            "epoch": self.epoch,
            "high_watermark": end,
            "log_end_offset": end,
            "voters": [replica(number, "follower") for number in (1, 2, 3)],
            "observers": [replica(number, "observer") for number in BROKERS],
            "timeline": self.elections,
        }

    def problems(self) -> list[dict[str, Any]]:
        """Rows of `GET problems`."""
        return self.problem_rows

    def topics_of(self, only_problems: bool) -> list[dict[str, Any]]:
        """Rows of `GET topics`."""
        signs = ("under_replicated", "offline", "under_min_isr", "reassigning")
        if only_problems:
            return [one for one in self.topics if any(one[sign] for sign in signs)]
        return self.topics

    def topic(self, name: str) -> dict[str, Any] | None:
        """The document of a topic."""
        for row in self.topics:
            if row["name"] == name:
                count = row["partitions"]
                return {**row, "partition_count": count, "configs": self.configs("topic", name)}
        return None

    def partitions(self, name: str) -> list[dict[str, Any]]:
        """Rows of a topic's partitions."""
        row = next(one for one in self.topics if one["name"] == name)
        return [self._partition(row, number) for number in range(row["partitions"])]

    def _partition(self, row: Mapping[str, Any], number: int) -> dict[str, Any]:
        turn = number % len(BROKERS)
        replicas = [*BROKERS[turn:], *BROKERS[:turn]]
        alive = [one for one in replicas if one not in self.fenced]
        if number < row["offline"]:
            alive = []
        end = 1_204_311 + 977 * number
        return {
            "partition": number,
            "leader": alive[0] if alive else None,
            "leader_epoch": 12,
            "replicas": replicas,
            "isr": alive,
            "elr": [] if alive else replicas[:1],
            "last_known_elr": [],
            "adding": [],
            "removing": [],
            "offline": not alive,
            "size": row["size"] // row["partitions"],
            "log_start": 1000 * number,
            "log_end": end,
            "high_watermark": end,
            "followers": [
                {"broker_id": one, "lag": 0 if one in alive else 8_112} for one in replicas[1:]
            ],
        }

    def broker(self, number: str) -> dict[str, Any] | None:
        """The document of a broker."""
        for row in self.brokers:
            if str(row["id"]) == number:
                total = 500 * GIGABYTE
                places = [
                    {
                        "path": f"/var/lib/raftctl/{number}/{disk}",
                        "size": 60 * GIGABYTE,
                        "total": total,
                        "usable": total * free // 100,
                        "offline": False,
                        "partitions": 21,
                    }
                    for disk, free in (("disk-a", 71), ("disk-b", 9))
                ]
                return {**row, "log_directories": places, "configs": self.configs("broker", number)}
        return None

    def configs(self, kind: str, name: str) -> list[dict[str, Any]]:
        """The configs of anything."""
        del name
        source = f"DYNAMIC_{kind.upper()}_CONFIG"
        known = [
            ("cleanup.policy", "delete", "DEFAULT_CONFIG", "What happens to old records."),
            ("min.insync.replicas", "2", source, "Replicas that must have a record."),
            ("retention.ms", "604800000", source, "How long records are kept, in ms."),
            ("description", self.text, source, ""),
            ("ssl.keystore.password", None, "STATIC_BROKER_CONFIG", "Opens the key store."),
        ]
        return [
            {
                "name": key,
                "value": value,
                "source": of,
                "read_only": key.startswith("ssl"),
                "sensitive": value is None,
                "type": "STRING",
                "documentation": about,
                "synonyms": [],
            }
            for key, value, of, about in known
        ]

    def group(self, name: str) -> dict[str, Any] | None:
        """The document of a group."""
        for row in self.groups:
            if row["group"] == name:
                topic = self.topics[0]["name"]
                return {
                    **row,
                    "epoch": 7,
                    "members": [
                        {
                            "id": f"{self.text}-{place}-5b2c",
                            "instance": None,
                            "client_id": f"{self.text}-{place}",
                            "host": f"/10.0.1.{place}",
                            "assignment": [
                                {"topic": topic, "partitions": [3 * place, 3 * place + 1]}
                            ],
                        }
                        for place in range(2)
                    ],
                    "offsets": [
                        {
                            "topic": topic,
                            "partition": number,
                            "committed": 1_204_000,
                            "end": 1_204_311,
                            "lag": 311,
                            "metadata": self.text if number == 0 else "",
                        }
                        for number in range(6)
                    ],
                }
        return None

    def transaction(self, name: str) -> dict[str, Any] | None:
        """The document of a transaction."""
        for row in self.transactions:
            if row["transactional_id"] == name:
                topic = self.topics[0]["name"]
                return {**row, "topics": [{"topic": topic, "partitions": [0, 1, 4]}]}
        return None

    def messages(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Records from a place on."""
        start = query["from"]
        rows = self.records
        if start.isdigit():
            rows = [one for one in rows if one["offset"] >= int(start)]
        end = self.records[-1]["offset"] + 1 if self.records else 0
        return {
            "rows": rows[: int(query["limit"])],
            "next_offset": rows[-1]["offset"] + 1 if rows else end,
            "log_start": self.records[0]["offset"] if self.records else 0,
            "high_watermark": end,
            "last_stable_offset": end,
        }


def record(offset: int, key: bytes, value: bytes, **more: Any) -> dict[str, Any]:
    """A record of the browser of messages."""
    return {
        "offset": offset,
        "timestamp_ms": 1_795_600_000_000 + offset,
        "key": content(key),
        "value": content(value, more.get("size")),
        "headers": [[name, content(of)] for name, of in more.get("headers", [])],
        "batch": {
            "producer_id": 4001,
            "epoch": 0,
            "sequence": offset,
            "codec": "zstd",
            "transactional": False,
        },
    }


def group_row(name: str, place: int = 0) -> dict[str, Any]:
    """A row of `GET groups`."""
    return {
        "group": name,
        "type": "consumer",
        "state": ("Stable", "Empty", "Assigning")[place % 3],
        "protocol": "uniform",
        "members": (2, 0, 3)[place % 3],
        "coordinator": BROKERS[place % 3],
        "lag": 1866 * (place % 5),
    }


def transaction_row(name: str, place: int, hanging: bool = False) -> dict[str, Any]:
    """A row of `GET transactions`."""
    return {
        "transactional_id": name,
        "producer_id": 4000 + place,
        "epoch": place,
        "state": "Hanging" if hanging else "Ongoing" if place % 2 else "CompleteCommit",
        "coordinator": BROKERS[place % 3],
        "started_ms": now_ms() - (4_000_000 if hanging else 1_200),
        "timeout_ms": 60_000,
        "partitions": 3,
        "hanging": hanging,
    }


def _elections(began: int) -> list[dict[str, Any]]:
    """Events of the quorum's timeline: three leaders."""
    return [
        {
            "at_ms": began,
            "epoch": 40,
            "kind": "elected",
            "leader_id": 3,
            "text": "3 was elected",
        },
        {
            "at_ms": began + 300_000,
            "epoch": 41,
            "kind": "resigned",
            "leader_id": 3,
            "text": "3 resigned: no majority fetched for 1.5 s",
        },
        {
            "at_ms": began + 301_200,
            "epoch": 41,
            "kind": "elected",
            "leader_id": 2,
            "text": "2 was elected with the votes of 1 and 2",
        },
        {
            "at_ms": began + 640_000,
            "epoch": 42,
            "kind": "elected",
            "leader_id": 1,
            "text": "1 was elected with the votes of 1, 2 and 3",
        },
    ]


def calm(text: str = "analytics") -> World:
    """A cluster where all is well."""
    topics = [topic_row(name, size) for name, size in zip(_NAMES, _SIZES, strict=True)]
    topics.append(topic_row("__consumer_offsets", 1_048_576, 50))
    return World(
        topics=topics,
        groups=[group_row(f"{text}-{name}", place) for place, name in enumerate(_NAMES)],
        text=text,
        transactions=[transaction_row(f"{text}-tx-{place}", place) for place in range(4)],
        acls=[
            {
                "principal": f"User:{text}",
                "host": "*",
                "operation": operation,
                "permission": permission,
                "resource_type": "TOPIC",
                "resource_name": name,
                "pattern_type": pattern,
            }
            for operation, permission, name, pattern in (
                ("READ", "ALLOW", "orders", "LITERAL"),
                ("WRITE", "DENY", "audit.", "PREFIXED"),
            )
        ],
        quotas=[
            {
                "user": text,
                "client_id": None,
                "ip": None,
                "key": "producer_byte_rate",
                "value": 1e6,
            },
            {
                "user": "<default>",
                "client_id": f"{text}-app",
                "ip": None,
                "key": "request_percentage",
                "value": 50,
            },
        ],
        records=[
            record(
                offset,
                f"{text}-{offset % 7}".encode(),
                b'{"id":9007199254740993,"customer":"%s","lines":[{"sku":"A-17","n":2}]}'
                % text.replace('"', "'").encode(),
                headers=[("trace", text.encode()), ("raw", b"\x00\xff\x10")],
            )
            for offset in range(120_400, 120_440)
        ]
        + [record(120_440, b"\xfe\xed", b"\x00\x01\x02 binary \xff" * 9)],
        elections=_elections(now_ms() - 900_000),
    )


def troubled() -> World:
    """A cluster with a dead broker, partitions without a leader, and more."""
    world = calm()
    world.fenced = {6}
    world.lags = {3: 214}
    for row in world.topics[:5]:
        row["under_replicated"] = row["partitions"]
    world.topics[2] |= {"offline": 2, "under_min_isr": 2}
    hanging = {"transactional_id": None, "topic": "payments", "partition": 2}
    row = transaction_row("", 9, hanging=True)
    world.transactions.insert(0, {**row, **hanging, "start_offset": 1_204_311})
    world.reassignments = [
        {
            "topic": "orders",
            "partition": number,
            "replicas": [4, 5, 6],
            "adding": [6],
            "removing": [5],
            "isr": [4, 5],
            "progress": part,
        }
        for number, part in ((0, 0.82), (1, 0.4), (2, None))
    ]
    since = now_ms() - 372_000

    def problem(severity: str, what: str, do: str, kind: str, name: str, **more: int) -> None:
        world.problem_rows.append(
            {
                "severity": severity,
                "what": what,
                "subject": {"kind": kind, "name": name, **more},
                "since_ms": since,
                "do": do,
            }
        )

    start = "start broker 6, or move its replicas with `raftctl topics reassign`"
    for number in (0, 1):
        problem("error", "No replica can lead:", start, "partition", "shipments", partition=number)
    problem("error", "Is fenced, since it sends no heartbeats:", start, "broker", "6")
    problem(
        "warning",
        "Holds up readers of committed records for longer than its timeout:",
        "`raftctl transactions abort --topic payments --partition 2` when its producer is gone",
        "topic",
        "payments",
    )
    problem("warning", "One of three replicas is out of sync:", start, "topic", "orders")
    return world


def large(topics: int = 10_000, groups: int = 10_000) -> World:
    """As many topics, of ten partitions each, and groups."""
    world = calm()
    world.topics = [
        topic_row(f"topic-{number:05}", number * 1_000_003 % 90_000_000, 10)
        for number in range(topics)
    ]
    world.groups = [group_row(f"group-{number:05}", number) for number in range(groups)]
    return world


def hostile() -> World:
    """Script in every text that a client chooses, and a record of a gigabyte."""
    world = calm(SCRIPT)
    world.records.append(record(120_441, b"huge", b"x" * CUT, size=GIGABYTE))
    world.records.append(record(120_442, "\u202etxt.exe\x1b[2J".encode(), SCRIPT.encode()))
    return world
