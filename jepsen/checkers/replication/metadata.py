"""Rules of a cluster's metadata that hold however its brokers and controllers come and go.

The rules are about one partition, or one change of it, as the records of the metadata have it; the
simulation checks them on each image that a node publishes, and `check_metadata` on a log from disk.
Sources: KIP-631 for epochs, KIP-966 for eligible leaders; Raft figure 3, election safety.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from jepsen.checkers.replication.trace import EPOCH_WENT_BACK, NO_LEADER, NOT_IN_ISR, TWO_LEADERS
from jepsen.checkers.verdict import Anomaly

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

FENCED_LEADER = "fenced-leader"


@dataclass(frozen=True, slots=True)
class Assignment:
    """A partition as one image has it."""

    partition: str
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    eligible: tuple[int, ...] = ()
    """Eligible leader replicas (KIP-966)."""


def is_led_in_sync(one: Assignment) -> bool:
    """Return True if the leader is in sync, and the in-sync and eligible brokers are replicas.

    One of them at least must be left.
    """
    led = one.leader == NO_LEADER or one.leader in one.isr
    whole = (*one.isr, *one.eligible)
    return led and bool(whole) and set(whole) <= set(one.replicas) and len(set(whole)) == len(whole)


def is_led_by(one: Assignment, unfenced: Container[int]) -> bool:
    """Return True if the leader, if there is one, is among these brokers."""
    return one.leader == NO_LEADER or one.leader in unfenced


def may_follow(one: Assignment, old: Assignment) -> bool:
    """Return True if epochs grew: the partition's with any change, the leader's with its leader."""
    advances = one.partition_epoch > old.partition_epoch and one.leader_epoch >= old.leader_epoch
    return advances and (one.leader == old.leader or one.leader_epoch > old.leader_epoch)


class MetadataStep(NamedTuple):
    """Changes by one batch of the metadata log, or by a snapshot before it."""

    offset: int
    """The offset of its last record."""
    moved: Sequence[tuple[Assignment | None, Assignment]]
    """Each partition that is another now, before (None: it is new) and after."""
    brokers: Mapping[int, tuple[int, bool]]
    """The broker epoch of each registered broker, and whether it is fenced."""


def check_metadata(steps: Iterable[MetadataStep]) -> Iterator[Anomaly]:
    """Yield the anomalies of a metadata log, replayed in order.

    A broker that is fenced is relieved of its partitions slice by slice, so it may lead for some
    batches more, but it is made the leader of none.
    """
    broker_epochs: dict[int, int] = {}
    for step in steps:
        for broker, (epoch, _) in step.brokers.items():
            if epoch < (known := broker_epochs.get(broker, epoch)):
                found = {"offset": step.offset, "broker": broker, "epoch": epoch, "after": known}
                yield Anomaly(EPOCH_WENT_BACK, found)
            broker_epochs[broker] = max(known, epoch)
        unfenced = {broker for broker, (_, fenced) in step.brokers.items() if not fenced}
        for old, one in step.moved:
            if name := _broken(old, one, unfenced):
                detail = {"offset": step.offset, "partition": str(one), "before": str(old)}
                yield Anomaly(name, detail)


def _broken(old: Assignment | None, one: Assignment, unfenced: Container[int]) -> str:
    """The name of what is wrong with a change; empty if nothing is."""
    if not is_led_in_sync(one):
        return NOT_IN_ISR
    if old is not None and not may_follow(one, old):
        return EPOCH_WENT_BACK
    elected = old is None or one.leader_epoch > old.leader_epoch
    return FENCED_LEADER if elected and not is_led_by(one, unfenced) else ""


class LeadershipClaim(NamedTuple):
    """Claim that a node is the active controller of an epoch."""

    epoch: int
    leader: int
    source: str
    """The source of the claim, for people."""


def check_leaders(claims: Iterable[LeadershipClaim]) -> Iterator[Anomaly]:
    """Check that an epoch has one active controller at most."""
    known: dict[int, LeadershipClaim] = {}
    for claim in claims:
        first = known.setdefault(claim.epoch, claim)
        if first.leader != claim.leader:
            said = {str(one.leader): one.source for one in (first, claim)}
            yield Anomaly(TWO_LEADERS, {"epoch": claim.epoch, "leaders": said})
