"""What a planted bug is: functions of the product replaced from outside, and who must notice.

The product carries no switches. A mutant is caught only by a property that it names: a run that
fails for another reason proves nothing about the property.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Literal, NamedTuple

from raftctl.errors import invariant
from raftctl.raft import RaftCore
from tests.mutants.edit import Edit

if TYPE_CHECKING:
    from collections.abc import Callable

Level = Literal["core", "node"]


class Patch(NamedTuple):
    """One attribute of a class or module, and what takes its place."""

    owner: object
    attribute: str
    """`__code__` of a function reaches all who imported it, and the tables that hold it."""
    replacement: object

    @property
    def original(self) -> object:
        """What the attribute is now, as the owner itself has it."""
        function = isinstance(self.owner, FunctionType)
        return getattr(self.owner, self.attribute) if function else vars(self.owner)[self.attribute]


def edited(function: str, old: str, new: str) -> Patch:
    """The function, as `Edit.function` names it, with another text in one place."""
    edit = Edit(function, function, old, new, "")
    return Patch(edit.target, "__code__", edit.code())


def _silent(condition: object, why: str) -> None:
    """The place of `invariant`."""


SILENT = Patch(invariant, "__code__", _silent.__code__)
"""For a bug that an invariant finds first: that proves nothing about the property it names."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug."""

    name: str
    breaks: str
    """What the product does no more, in a few words."""
    level: Level
    scenario: str
    properties: tuple[str, ...]
    """Any of these catches it; the first is the one that was meant to."""
    patches: tuple[Patch, ...]

    def plant(self) -> Callable[[], None]:
        """Replaces the functions; what it returns puts them back.

        The quorum core's own invariants are silent meanwhile: they would notice some bugs first,
        and prove nothing about the properties that are checked from outside.
        """
        patches = (*self.patches, Patch(RaftCore, "invariants", _unchecked))
        originals = [one.original for one in patches]
        for one in patches:
            setattr(one.owner, one.attribute, one.replacement)

        def restore() -> None:
            for one, original in zip(patches, originals, strict=True):
                setattr(one.owner, one.attribute, original)

        return restore


def _unchecked(core: RaftCore) -> None:
    """The place of `RaftCore.invariants` while a bug is planted."""


def node_mutant(
    name: str, breaks: str, properties: tuple[str, ...], *patches: Patch, scenario: str = "chaos"
) -> Mutant:
    """A bug in whole nodes, shown by a scenario of `tests.mutants.node_scenarios`."""
    return Mutant(name, breaks, "node", scenario, properties, patches)
