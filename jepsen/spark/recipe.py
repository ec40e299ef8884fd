"""Recipes of generated histories, and the anomalies that will be found in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jepsen.errors import InputError

REGISTER, UNIQUE_REGISTER, LOG = "register", "unique-register", "log"
WORKLOADS = (REGISTER, UNIQUE_REGISTER, LOG)
POLL_SENDS = 10
"""A poll of a log returns what so many sends in a row have written."""
_GROUP_OPERATIONS = 50_000
_FAULT_OPERATIONS = 3


class Expected(NamedTuple):
    """An anomaly that is in the history."""

    key: str
    """The key as text, the way it stands in verdicts."""
    name: str
    value: int | None
    """The value in the anomaly's detail, if it has one."""


@dataclass(frozen=True)
class Recipe:
    """The same recipe makes the same history on every machine."""

    workload: str = REGISTER
    operations: int = 1_000_000
    """The number in all, the same for each key, rounded down. Of logs the sends; polls come on
    top."""
    keys: int = 10_000
    faults: int = 0
    processes: int = 5
    """The number of processes that work on a key at a time."""
    crashes: float = 0.01
    """The share of operations whose outcome nobody knows."""
    seed: int = 0
    barrier_every: int = 0
    """All operations on a register end after so many before the next begins, and only reads crash:
    what may still take effect never ends. 0: neither."""

    @property
    def operations_a_key(self) -> int:
        """Rounded down, but one at least."""
        return max(1, self.operations // self.keys)

    @property
    def group_keys(self) -> int:
        """Keys that are made together."""
        return 1 if self.workload == LOG else max(1, _GROUP_OPERATIONS // self.operations_a_key)

    @property
    def groups(self) -> int:
        """Number of such groups."""
        return -(-self.keys // self.group_keys)

    def keys_of(self, group: int) -> range:
        """Return the keys of a group."""
        first = group * self.group_keys
        return range(first, min(first + self.group_keys, self.keys))

    def faults_of(self, key: int) -> range:
        """Return the numbers of the faults that are planted in a key; they are spread evenly."""
        return range(key * self.faults // self.keys, (key + 1) * self.faults // self.keys)

    def refuse(self) -> None:
        """Raise InputError if there is no place for so many faults, or none for barriers."""
        if self.barrier_every and self.workload == LOG:
            raise InputError(f"--barrier-every {self.barrier_every}: only for registers, not log")
        if not self.faults:
            return
        if self.workload == LOG:
            # Not in the first poll, nor in the last.
            most = self.keys * max(0, self.operations_a_key // POLL_SENDS - 2)
            room = f"one for {POLL_SENDS} sends but the first and last of each key"
        else:
            most = self.keys if self.operations_a_key >= _FAULT_OPERATIONS else 0
            room = f"one a key of {_FAULT_OPERATIONS} or more operations"
        if self.faults > most:
            raise InputError(
                f"--faults {self.faults}: there is room for {most} ({room}): raise --ops"
            )
