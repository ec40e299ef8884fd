"""Levels of loggers, and the loggers that follow them."""

from __future__ import annotations

import enum
import logging
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.loggers._names import LOGGERS, ROOT
from raftctl.optional_imports import without

with without("rich"):
    import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from structlog.typing import FilteringBoundLogger


class Level(enum.IntEnum):
    """Apache Kafka's levels. A logger writes lines of its level and above.

    This program writes no FATAL lines and no TRACE lines. FATAL therefore silences a logger, and
    TRACE is DEBUG.
    """

    TRACE = logging.NOTSET
    DEBUG = logging.DEBUG
    INFO = logging.INFO
    WARN = logging.WARNING
    ERROR = logging.ERROR
    FATAL = logging.CRITICAL


def read_level(text: str) -> Level:
    """Return the level of this name, as Apache Kafka spells it; ValueError if there is none."""
    try:
        return Level[text]
    except KeyError:
        raise ValueError(text) from None


class LogLevels:
    """The levels of one node's loggers, and the classes of these loggers."""

    def __init__(self, root: Level) -> None:
        self._own: dict[str, Level] = {ROOT: root}
        """The levels that were set."""
        self._classes: dict[str, type[_LeveledLogger]] = {}

    def logger(
        self, target: object, processors: Iterable[Any], **context: Any
    ) -> FilteringBoundLogger:
        """Return a logger of `root` that writes to `target`, as `structlog.wrap_logger` does.

        It shares no configuration with others.
        """
        logger: Any = self._class(ROOT)(target, list(processors), context)
        bound: FilteringBoundLogger = logger.bind(**context)
        return bound

    def all(self) -> Mapping[str, Level]:
        """Return the level in force of each logger, by name in alphabetical order."""
        names = sorted({*LOGGERS, *self._classes})
        return {name: self.level(name) for name in names}

    def level(self, name: str) -> Level:
        """Return the level in force of a logger."""
        while name not in self._own:
            name = _parent(name)
        return self._own[name]

    def alter(self, changes: Mapping[str, Level | None]) -> None:
        """Set levels by the names of loggers, None unsets one; all or none.

        Raises what `set` and `unset` raise.
        """
        for name, level in changes.items():
            if level is None:
                self.check_unset(name)
            else:
                self.check_name(name)
        for name, level in changes.items():
            if level is None:
                self.unset(name)
            else:
                self.set(name, level)

    def set(self, name: str, level: Level) -> None:
        """Give a logger a level. Raises KafkaError(INVALID_CONFIG) if there is no such logger."""
        self.check_name(name)
        self._own[name] = level
        self._follow()

    def unset(self, name: str) -> None:
        """Have a logger follow its parent again.

        Raises KafkaError: INVALID_CONFIG if there is no such logger, INVALID_REQUEST for `root`.
        """
        self.check_unset(name)
        self._own.pop(name, None)
        self._follow()

    def check_name(self, name: str) -> None:
        """Raise KafkaError(INVALID_CONFIG), which names the logger, if there is none of the name.

        A plug-in's loggers are there once something was bound to them.
        """
        if name not in LOGGERS and name not in self._classes:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name:.100} does not exist!")

    def check_unset(self, name: str) -> None:
        """Raise what `unset` raises, and change nothing."""
        self.check_name(name)
        if name == ROOT:
            message = "Removing the log level of the root logger is not allowed"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)

    def _class(self, name: str) -> type[_LeveledLogger]:
        found = self._classes.get(name)
        if found is None:
            found = type("Logger", (_LeveledLogger,), {"levels": self})
            self._classes[name] = found
            _follow(found, self.level(name))
        return found

    @staticmethod
    def of(log: FilteringBoundLogger) -> LogLevels:
        """Return the levels that a logger follows, whose loggers are those of its node."""
        invariant(isinstance(log, _LeveledLogger), "a node's logger has levels that change")
        return cast("_LeveledLogger", log).levels

    def rebound(self, logger: _LeveledLogger, name: str) -> _LeveledLogger:
        """Return a logger of this name that writes what the other would."""
        return self._class(name)(*logger.parts)

    def _follow(self) -> None:
        for name, one in self._classes.items():
            _follow(one, self.level(name))


class _LeveledLogger(structlog.BoundLoggerBase):
    """A logger of one name: a class of its own, whose methods are those of its level in force.

    To ask for the level in each call would cost more than a call that returns at once.
    """

    levels: ClassVar[LogLevels]

    @property
    def parts(self) -> tuple[Any, Any, Any]:
        """What it writes to, its processors, and what is bound."""
        return self._logger, self._processors, self._context

    def bind(self, **new_values: Any) -> Self:
        """Bind more values; `logger` makes it a logger of that name."""
        bound = super().bind(**new_values)
        name = new_values.get("logger")
        if name is None:
            return bound
        # A class of that name, which differs from this one in its level alone.
        return cast("Self", self.levels.rebound(bound, name))


def _methods(level: Level) -> dict[str, Callable[..., Any]]:
    """The methods of structlog's logger of this level, by name."""
    methods = vars(structlog.make_filtering_bound_logger(level))
    return {name: one for name, one in methods.items() if not name.startswith("__")}


def _follow(one: type[_LeveledLogger], level: Level) -> None:
    """Give all loggers of a class the methods of the level, also those that are bound already."""
    for name, method in _methods(level).items():
        setattr(one, name, method)


def _parent(name: str) -> str:
    """The name without its last word; `root` for one of a single word."""
    invariant(name != ROOT, "the root logger has a level")
    return name.rpartition(".")[0] or ROOT
