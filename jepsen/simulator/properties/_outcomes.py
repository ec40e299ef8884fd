"""What clients were told of their changes of metadata, held against every image that follows.

A register is anything that one client at a time changes and an image shows: a config, a quota, the
partitions of a topic, a key. Each of its values is asked for once, so whoever sees a value knows
whose it is.

`refused_operation_never_takes_effect`: what a client was told is not done is in no image, ever.
Whoever cannot know has to say so.

`acknowledged_operation_stays`: from its acknowledgement on, the newest image shows the value, until
another one is asked for. An operation of unknown outcome may take effect at any later time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jepsen.simulator.properties._invariants import Violation

if TYPE_CHECKING:
    from jepsen.simulator.properties._invariants import ImageView


@dataclass(slots=True)
class Register:
    """One register; `read` finds its value in an image, None for none."""

    name: str
    read: Callable[[Any], object]
    acknowledged: object = None
    possible: set[object] = field(default_factory=set)
    """Values that were asked for, without a word yet or ever of what became of it."""
    refused: set[object] = field(default_factory=set)
    shown: object = None
    offset: int = -1
    """Of the newest image that was looked at."""
    outcomes: list[str] = field(default_factory=list)

    def ask(self, value: object) -> None:
        """From now on it may take effect."""
        self.possible.add(value)

    def done(self, value: object) -> None:
        """The client was told that it is done."""
        self.outcomes.append("done")
        self.possible.discard(value)
        self.acknowledged = value
        self._judge()

    def refuse(self, value: object) -> None:
        """The client was told that it is not done."""
        self.outcomes.append("refused")
        self.possible.discard(value)
        self.refused.add(value)
        self._judge()

    def lose(self) -> None:
        """The client was told nothing, or that nobody knows."""
        self.outcomes.append("unknown")

    def image_published(self, view: ImageView) -> None:
        """Some node has a newer image; raises `Violation`."""
        if view.offset > self.offset:
            self.offset = view.offset
            self.shown = self.read(view.image)
            self._judge()

    def _judge(self) -> None:
        where = f"{self.name} is {self.shown!r} at offset {self.offset}"
        if self.shown in self.refused:
            told = f"{where}, which was told as not done"
            raise Violation("refused_operation_never_takes_effect", told)
        if self.shown != self.acknowledged and self.shown not in self.possible:
            told = f"{where}, acknowledged {self.acknowledged!r}, may be {self.possible}"
            raise Violation("acknowledged_operation_stays", told)
