"""What clients were told is held against the images, whichever way it is wrong."""

from __future__ import annotations

import pytest

from jepsen.simulator.properties import ImageView, Properties, Register, Violation
from jepsen.simulator.properties._invariants import QuorumHistory

pytestmark = pytest.mark.req("J1", "C3")


class Images:
    """One register, whose value in each image is given."""

    def __init__(self) -> None:
        self.register = Register("x", lambda image: image)
        self._properties = Properties(QuorumHistory((), lambda _: {}, lambda _: (0, -1)))
        self._properties.registers.append(self.register)
        self._offset = 0

    def show(self, value: object, *, again: bool = False) -> None:
        """An image that is newer, or one that an other node is late with."""
        if not again:
            self._offset += 1
        offset = 1 if again else self._offset
        self._properties.image_published(ImageView(1, offset, value, 1 << 60, list, {}))


def test_changes_that_are_done_or_unknown_are_left_alone() -> None:
    images = Images()
    images.show(None)
    images.register.ask(1)
    images.show(1)
    images.register.done(1)
    images.register.ask(2)
    images.register.lose()
    images.show(1)
    images.register.ask(3)
    images.show(3)
    images.register.done(3)
    images.show(2)  # It was on its way all the time.
    images.show(None, again=True)
    assert images.register.outcomes == ["done", "unknown", "done"]


def test_an_operation_that_took_effect_and_is_refused() -> None:
    images = Images()
    images.register.ask(1)
    images.show(1)
    with pytest.raises(Violation, match="refused_operation_never_takes_effect: x is 1 at offset 1"):
        images.register.refuse(1)


def test_an_operation_that_was_refused_and_takes_effect() -> None:
    images = Images()
    images.register.ask(1)
    images.register.refuse(1)
    with pytest.raises(Violation, match="refused_operation_never_takes_effect"):
        images.show(1)


def test_an_acknowledged_operation_that_no_image_shows() -> None:
    images = Images()
    images.show(None)
    images.register.ask(1)
    with pytest.raises(Violation, match="acknowledged_operation_stays"):
        images.register.done(1)


def test_an_acknowledged_operation_that_goes_away() -> None:
    images = Images()
    images.register.ask(1)
    images.show(1)
    images.register.done(1)
    with pytest.raises(Violation, match="acknowledged_operation_stays"):
        images.show(None)


def test_a_value_that_nobody_asked_for() -> None:
    with pytest.raises(Violation, match="acknowledged_operation_stays"):
        Images().show(9)
