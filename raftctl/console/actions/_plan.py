"""An action whose body has been read, and what the modules of actions share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.console.brokers import check, error_code
from raftctl.errors import ErrorCode, KafkaError
from raftctl.http_json import BadFieldError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from raftctl.console.brokers import Brokers, BrokerViews
    from raftctl.console.http import Rights
    from raftctl.http_json import Fields
    from raftctl.metadata.image import MetadataImage
    from raftctl.security import Requester

TIMEOUT_MS = 8_000
"""That the controller has for a change: less than what its answer is waited for."""
PARTITION_MAX = 2**31 - 1
BROKER_MAX = 2**31 - 1
LIST_MAX = 1_000
"""Partitions, configs or brokers of one action."""


class Plan(NamedTuple):
    """What an action is about, and the step that does it."""

    subject: str
    """For the log: names alone, never a value."""
    carry_out: Callable[[], Awaitable[str]]
    """Returns a sentence on what was done. Raises KafkaError, BadFieldError."""


class Acting(NamedTuple):
    """What an action works with."""

    brokers: Brokers
    views: BrokerViews
    rights: Rights

    @property
    def requester(self) -> Requester:
        """For whom it is done."""
        return self.rights.requester

    @property
    def image(self) -> MetadataImage:
        """The newest image."""
        return self.brokers.image

    async def ask(self, api: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask any broker as the requester."""
        return await self.brokers.ask(self.requester, api, body)


def check_field(code: int, message: str | None, fields: Mapping[ErrorCode, str]) -> None:
    """Raise BadFieldError for a code that is about a field, KafkaError for another."""
    if not code:
        return
    name = fields.get(error_code(code))
    if name is not None:
        raise BadFieldError(name, message or error_code(code).text)
    check(code, message)


def check_config(code: int, message: str | None, keys: Iterable[str], field: str) -> None:
    """Raise BadFieldError for an error of a config, of the key that the message names."""
    known = error_code(code)
    if known not in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST):
        return
    text = message or known.text
    named = max((key for key in keys if key in text), key=len, default=None)
    if named is not None:
        raise BadFieldError(f"{field}.{named}", text)
    if known is ErrorCode.INVALID_CONFIG:
        raise BadFieldError(field, text)


def partitions_of(fields: Fields) -> list[tuple[str, int, Fields]]:
    """Return the `partitions` of a body: topic, number, and what else each has."""
    found = fields.objects_or_none("partitions", LIST_MAX)
    if found is None:
        raise BadFieldError("partitions", "is missing")
    named = [(one.text("topic"), one.integer("partition", 0, PARTITION_MAX), one) for one in found]
    if len({(topic, number) for topic, number, _ in named}) < len(named):
        raise BadFieldError("partitions", "names one twice")
    return named


class Results:
    """The outcomes of several partitions, as one sentence or one error."""

    def __init__(self, passing: Iterable[ErrorCode] = ()) -> None:
        """`passing` are codes that mean there was nothing to do."""
        self._passing = frozenset(passing)
        self.done = 0
        self.idle = 0
        self._failed: list[tuple[str, ErrorCode, str]] = []

    def add(self, what: str, code: int, message: str | None) -> None:
        """Count one outcome."""
        known = error_code(code)
        if not code:
            self.done += 1
        elif known in self._passing:
            self.idle += 1
        else:
            self._failed.append((what, known, message or known.text))

    def check(self) -> None:
        """Raise KafkaError, of the first that failed, if any has."""
        if not self._failed:
            return
        what, code, message = self._failed[0]
        more = f", as {len(self._failed) - 1} others" if self._failed[1:] else ""
        rest = f"; {self.done} were done" if self.done else ""
        raise KafkaError(code, f"{what}: {message}{more}{rest}")


def counted(number: int, noun: str) -> str:
    """Return `1 partition`, `2 partitions`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
