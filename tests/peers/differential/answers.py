"""Takes out of an answer what two systems may differ in: ids, times, ports, texts, order.

An id becomes a symbol: the name that a step kept it by, or its number among the ids of its kind in
the script. What the request itself said stays as it is. Errors become their names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from broker.log.batches.record_batch import HEADER_BYTES, LOG_APPEND_TIME, parse_header
from broker.protocol.versions import ApiKey
from raftctl.errors import ErrorCode

IDS = {
    "producer_id",
    "topic_id",
    "member_id",
    "leader",
    "session_id",
    "replica_directory_id",
    "log_dir",
}
NAMES = ("name", "topic", "topic_name", "group_id", "transactional_id", "user", "resource_name")
TEXTS = {"error_message", "batch_index_error_message", "documentation"}
COUNTERS = {
    ApiKey.API_VERSIONS: {"finalized_features_epoch"},
    ApiKey.DESCRIBE_LOG_DIRS: {"total_bytes", "usable_bytes"},
    ApiKey.DESCRIBE_QUORUM: {"leader_epoch", "high_watermark", "log_end_offset"},
    ApiKey.DESCRIBE_PRODUCERS: {"coordinator_epoch"},
}
"""Numbers that are what they are: known to be there or not, no more."""
CONSUMERS = {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}
FIRST_EPOCH = "$epoch"
"""By this name the first epoch that a member of KIP-848 is given is kept."""
EPOCHS = {"member_epoch", "group_epoch", "assignment_epoch"}
"""Of groups: told as so many more than the first that a member was given."""
ABORTABLE_SINCE = {ApiKey.PRODUCE: 11, ApiKey.TXN_OFFSET_COMMIT: 4}
"""Versions before do not know that error and are told INVALID_TXN_STATE. Apache Kafka sometimes
tells them the newer one, which goes without a text: it asks a coordinator for several requests at
once, and answers all of them as the version of one has it.
"""
DAY_MS = 86_400_000
TRIVIAL: tuple[Any, ...] = (None, "", -1, 0)


@dataclass
class Symbols:
    """The ids of one script on one system."""

    prefix: str
    """What names of the script begin with."""
    kept: dict[str, Any] = field(default_factory=dict)
    started_ms: float = field(default_factory=lambda: time.time() * 1000)
    _seen: dict[tuple[str, Any], str] = field(default_factory=dict)

    def of(self, kind: str, value: Any) -> str:
        """The symbol of an id."""
        for name, known in self.kept.items():
            if known == value and type(known) is type(value):
                return f"<{name}>"
        number = sum(1 for one, _ in self._seen if one == kind) + 1
        return self._seen.setdefault((kind, value), f"<{kind} {number}>")


def normal(
    api: ApiKey, version: int, answer: Mapping[str, Any], said: Any, symbols: Symbols
) -> Any:
    """The answer as it is compared; `said` is the body of the request."""
    shaper = _Shaper(api, version, set(_leaves(said)), symbols)
    return shaper.shaped("", shaper.ordered(answer))


def only_mine(value: Any, symbols: Symbols, said: Any) -> Any:
    """Without what has a name that is neither the script's nor in the request."""
    return _only_mine(value, symbols.prefix, {one for one in _leaves(said) if isinstance(one, str)})


def _only_mine(value: Any, prefix: str, said: Collection[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _only_mine(one, prefix, said) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_only_mine(one, prefix, said) for one in value if _is_mine(one, prefix, said)]
    return value


def _is_mine(one: Any, prefix: str, said: Collection[str]) -> bool:
    if not isinstance(one, Mapping):
        return True
    names = [one[key] for key in NAMES if isinstance(one.get(key), str)]
    return not names or names[0].startswith(prefix) or names[0] in said


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for one in value.values() for leaf in _leaves(one)]
    if isinstance(value, list | tuple):
        return [leaf for one in value for leaf in _leaves(one)]
    return [value] if isinstance(value, str | int | UUID) else []


@dataclass
class _Shaper:
    api: ApiKey
    version: int
    said: set[Any]
    symbols: Symbols

    def ordered(self, value: Any) -> Any:
        """Lists in an order that does not depend on ids."""
        if isinstance(value, Mapping):
            return {key: self.ordered(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return sorted(map(self.ordered, value), key=_rank)
        return value

    def shaped(self, key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            known = self._as_the_version_knows(value)
            return {name: self.shaped(name, one) for name, one in known.items()}
        if isinstance(value, list | tuple):
            return [self.shaped(key, one) for one in value]
        if key == "records":
            return [] if value is None else batches(value, self.symbols)
        if key.endswith("error_code"):
            return error_name(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value).hex()
        return self._leaf(key, value)

    def _as_the_version_knows(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        is_newer = value.get("error_code") == ErrorCode.TRANSACTION_ABORTABLE
        if not is_newer or self.version >= ABORTABLE_SINCE.get(self.api, 0):
            return value
        text = {"error_message": "not in the transaction"} if "error_message" in value else {}
        return {**value, "error_code": ErrorCode.INVALID_TXN_STATE, **text}

    def _leaf(self, key: str, value: Any) -> Any:
        if key in TEXTS:
            return "<text>" if value else value
        if key in COUNTERS.get(self.api, ()):
            return "<number>" if value >= 0 else value
        if key in EPOCHS and self.api in CONSUMERS and FIRST_EPOCH in self.symbols.kept:
            return f"<epoch>{value - self.symbols.kept[FIRST_EPOCH]:+}" if value > 0 else value
        if key == "port":
            return "<port>" if value > 0 else value
        if key in IDS and value not in TRIVIAL:
            is_kept = any(value == known for known in self.symbols.kept.values())
            if is_kept or value not in self.said:
                return self.symbols.of(key, value)
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, UUID):
            return str(value)
        is_now = isinstance(value, int) and abs(value - self.symbols.started_ms) < DAY_MS
        return "<now>" if is_now else value

    def _text(self, value: str) -> str:
        for name, known in self.symbols.kept.items():
            if isinstance(known, str) and known and known in value:
                value = value.replace(known, f"<{name}>")
        return value.replace(self.symbols.prefix, "$")


def _rank(value: Any) -> str:
    return json.dumps(_without_ids(value), sort_keys=True, default=str)


def _without_ids(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_ids(one) for key, one in value.items() if key not in IDS}
    if isinstance(value, list | tuple):
        return [_without_ids(one) for one in value]
    return bytes(value).hex() if isinstance(value, bytes | bytearray | memoryview) else value


def error_name(code: int) -> str:
    """The name of an error code, or its number if we do not know it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def batches(data: bytes | memoryview, symbols: Symbols) -> list[Any]:
    """Record batches; of one whose times are a broker's, or that is cut short, not all bytes."""
    view, position, found = memoryview(data), 0, []
    while position < len(view):
        if len(view) - position < HEADER_BYTES:
            found.append({"cut": True})
            break
        header = parse_header(view, position)
        told = header._asdict()
        del told["crc"]
        payload = bytes(view[position + HEADER_BYTES : position + header.size])
        if header.attributes & LOG_APPEND_TIME or header.is_control:
            told["base_timestamp"] = told["max_timestamp"] = "<broker's>"
        if header.producer_id >= 0:
            told["producer_id"] = symbols.of("producer_id", header.producer_id)
        told["payload"] = payload.hex()
        if header.is_control:
            # It ends with the epoch of the coordinator, and the number of headers.
            told["payload"] = payload[:-5].hex()
        found.append(told)
        position += header.size
    return found
