"""Levels of a node's loggers over HTTP, for controllers above all: brokers speak Kafka's protocol.

    GET /api/v1/loggers    {"node_id": 1, "loggers": {"root": "INFO", ...}}
    PUT /api/v1/loggers    {"set": {"raftctl.quorum": "DEBUG"}, "unset": ["raftctl"]}

A change is made as a whole or not at all, and answered as GET is. An error is {error, message}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from raftctl.errors import ErrorCode, KafkaError
from raftctl.loggers import Level, LogLevels, read_level

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

LOGGERS_PATH = "/api/v1/loggers"
_MALFORMED = 'the body must be {"set": {LOGGER: LEVEL}, "unset": [LOGGER]}'


class LoggersApi:
    """Answers for one node, of whatever role."""

    def __init__(self, node_id: int, log: FilteringBoundLogger) -> None:
        """`log` is one of the node's loggers."""
        self._node_id = node_id
        self._log = log
        self._levels = LogLevels.of(log)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes for the node's application."""
        return [web.get(LOGGERS_PATH, self._describe), web.put(LOGGERS_PATH, self._alter)]

    async def _describe(self, request: web.Request) -> web.Response:
        del request
        levels = {name: level.name for name, level in self._levels.all().items()}
        return web.json_response({"node_id": self._node_id, "loggers": levels})

    async def _alter(self, request: web.Request) -> web.Response:
        try:
            changes = read_changes(await _document(request))
            self._levels.alter(changes)
        except KafkaError as error:
            document = {"error": error.code.name, "message": error.message}
            return web.json_response(document, status=400)
        for name in changes:
            level = self._levels.level(name)
            self._log.warning("log_level_changed", changed=name, to=level.name)
        return await self._describe(request)


async def _document(request: web.Request) -> Any:
    try:
        return await request.json()
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, _MALFORMED) from None


def read_changes(document: Any) -> dict[str, Level | None]:
    """Return the level for each logger, None: that of its parent.

    Raises KafkaError: INVALID_REQUEST for another document, INVALID_CONFIG for an unknown level.
    """
    given = document if isinstance(document, dict) else {"": None}
    levels: Any = given.get("set", {})
    unset: Any = given.get("unset", [])
    is_sound = (
        given.keys() <= {"set", "unset"}
        and isinstance(levels, dict)
        and isinstance(unset, list)
        and all(isinstance(one, str) for one in (*levels.values(), *unset))
        and len({*levels, *unset}) == len(levels) + len(unset) > 0
    )
    if not is_sound:
        raise KafkaError(ErrorCode.INVALID_REQUEST, _MALFORMED)
    found: dict[str, Level | None] = dict.fromkeys(unset)
    for name, text in levels.items():
        try:
            found[name] = read_level(text)
        except ValueError:
            known = ", ".join(level.name for level in sorted(Level, reverse=True))
            message = f"{name:.100}: {text:.100} is no level: there are {known}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message) from None
    return found
