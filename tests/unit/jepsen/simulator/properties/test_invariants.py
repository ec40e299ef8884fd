"""Each property of a cluster complains about what it forbids, under its own name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers.replication.metadata import Assignment
from jepsen.simulator.properties import ImageView, Properties, Violation
from jepsen.simulator.properties._committed import Entry
from jepsen.simulator.properties._invariants import (
    IMAGE_PROPERTIES,
    QUORUM_PROPERTIES,
    QuorumChange,
    QuorumHistory,
    QuorumView,
    WaitingView,
)
from jepsen.simulator.properties._partition_invariants import (
    PARTITION_PROPERTIES,
    PartitionChange,
    PartitionView,
)
from raftctl.node import DEFERRED_MAX, WAITING_BYTES_MAX
from raftctl.quorum import UNWRITTEN_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = pytest.mark.req("J1", "Q11")

VOTERS = (1, 2, 3)
LOG = [Entry(0, 1, 1, 10), Entry(1, 4, 1, 11), Entry(4, 5, 2, 12)]


def reader(log: Sequence[Entry]) -> Callable[[int, int], list[Entry]]:
    return lambda begin, end: [e for e in log if e.base_offset >= begin and e.end_offset <= end]


def replica(node: int = 1, log: Sequence[Entry] = LOG, **values: Any) -> QuorumView:
    base = QuorumView(node, 1, 2, False, 0, log[-1].end_offset if log else 0, reader(log))
    return replace(base, **values)


class Quorum:
    """Three voters; steps are given as views."""

    def __init__(self, durable: Sequence[Sequence[Entry]] = (LOG, LOG, LOG)) -> None:
        self.disks = {
            voter: {e.base_offset: e for e in log}
            for voter, log in zip(VOTERS, durable, strict=True)
        }
        self.votes = dict.fromkeys(VOTERS, (2, 1))
        self.properties = Properties(
            QuorumHistory(
                tuple((voter, None) for voter in VOTERS),
                lambda voter: self.disks[voter[0]],
                self.votes.__getitem__,
            )
        )
        self.last: dict[int, QuorumView] = {}

    def see(self, view: QuorumView, *, restarted: bool = False) -> None:
        before = None if restarted else self.last.get(view.node_id)
        self.last[view.node_id] = view
        self.properties.quorum_changed(QuorumChange(before, view))


def caught(quorum: Quorum, view: QuorumView, *, restarted: bool = False) -> str:
    with pytest.raises(Violation) as violation:
        quorum.see(view, restarted=restarted)
    assert violation.value.name in [one.__name__ for one in QUORUM_PROPERTIES]
    return violation.value.name


def test_a_good_quorum_is_left_alone() -> None:
    quorum = Quorum()
    quorum.see(replica(1, leads=True, granting=(1, 2)))
    quorum.see(replica(1, leads=True, high_watermark=4))
    quorum.see(replica(2, high_watermark=4))
    quorum.see(replica(1, leads=True, high_watermark=5))
    quorum.see(replica(2, high_watermark=0, epoch=3), restarted=True)
    quorum.see(replica(2, high_watermark=5, epoch=3))
    assert quorum.properties.quorum.committed.entries == LOG


def test_two_leaders_of_an_epoch() -> None:
    quorum = Quorum()
    quorum.see(replica(1, leads=True))
    assert caught(quorum, replica(2, leads=True)) == "one_leader_per_epoch"


def test_a_leader_that_goes_on_after_its_restart() -> None:
    quorum = Quorum()
    quorum.see(replica(1, leads=True))
    assert caught(quorum, replica(1, leads=True), restarted=True) == "no_epoch_is_led_twice"


def test_an_epoch_that_goes_back() -> None:
    quorum = Quorum()
    quorum.see(replica(1, epoch=3))
    assert caught(quorum, replica(1, epoch=2)) == "epoch_never_goes_back"


@pytest.mark.parametrize("on_disk", [(1, -1), (2, -1), (2, 3)])
def test_a_vote_that_counts_before_it_is_durable(on_disk: tuple[int, int]) -> None:
    quorum = Quorum()
    quorum.votes[2] = on_disk
    view = replica(1, leads=True, granting=(1, 2))
    assert caught(quorum, view) == "vote_is_durable_before_it_counts"


def test_a_vote_of_another_disk_in_the_same_node() -> None:
    quorum = Quorum()
    disks = dict.fromkeys(VOTERS, "first")
    quorum.properties.quorum.directory_of = disks.__getitem__
    voters = tuple((voter, "first") for voter in VOTERS)
    quorum.properties.lost_disk((2, "first"))
    disks[2] = "second"
    quorum.see(replica(1, leads=True, granting=(1, 2), voters=voters))  # with the disk that is gone
    quorum.votes[2] = (3, 3)
    quorum.votes[3] = (3, 3)
    view = replica(3, epoch=3, leads=True, granting=(2, 3), voters=voters)
    assert caught(quorum, view) == "vote_is_durable_before_it_counts"


def test_a_disk_that_votes_twice() -> None:
    quorum = Quorum()
    disks = dict.fromkeys(VOTERS, "first")
    quorum.properties.quorum.directory_of = disks.__getitem__
    quorum.see(replica(2, epoch=2))
    disks[2], quorum.votes[2] = "second", (2, 3)
    quorum.see(replica(2, epoch=2, log_end=4))
    disks[2] = "first"
    view = replica(2, epoch=2, log_end=5)
    assert caught(quorum, view) == "one_vote_per_disk_and_epoch"


def test_a_high_watermark_that_goes_back() -> None:
    quorum = Quorum()
    quorum.see(replica(1, high_watermark=4))
    assert caught(quorum, replica(1, high_watermark=1)) == "high_watermark_never_goes_back"


def test_a_log_that_ends_below_its_high_watermark() -> None:
    quorum = Quorum()
    quorum.see(replica(1, high_watermark=5))
    view = replica(1, LOG[:2], high_watermark=5)
    assert caught(quorum, view) == "committed_is_never_truncated"


def test_a_leader_that_truncates() -> None:
    quorum = Quorum()
    quorum.see(replica(1, leads=True))
    assert caught(quorum, replica(1, LOG[:2], leads=True)) == "leader_only_appends"


def test_a_leader_that_lacks_a_committed_batch() -> None:
    quorum = Quorum()
    quorum.see(replica(1, leads=True, high_watermark=5))
    name = "new_leader_has_all_committed"
    assert caught(quorum, replica(2, LOG[:2], epoch=3, leads=True)) == name
    other = [*LOG[:2], Entry(4, 5, 1, 12)]
    assert caught(quorum, replica(3, other, epoch=4, leads=True)) == name


def test_a_leader_of_an_epoch_that_is_over_may_lack_what_came_later() -> None:
    quorum = Quorum()
    quorum.see(replica(1, epoch=4, leads=True, high_watermark=5))
    quorum.see(replica(2, LOG[:2], epoch=3))
    quorum.see(replica(2, LOG[:2], epoch=3, leads=True))


def test_a_committed_batch_that_changes() -> None:
    quorum = Quorum()
    quorum.see(replica(1, high_watermark=5))
    other = [*LOG[:2], Entry(4, 5, 2, 99)]
    assert caught(quorum, replica(2, other, high_watermark=5)) == "committed_never_changes"


def test_voters_that_change_before_the_last_change_is_committed() -> None:
    three, two, one = (tuple((voter, None) for voter in VOTERS[:n]) for n in (3, 2, 1))
    for first, second, committed in ((three, two, two), (three, one, three), (two, one, three)):
        quorum = Quorum()
        quorum.see(replica(1, leads=True, voters=first, committed_voters=first))
        changed = replica(1, leads=True, voters=second, committed_voters=committed)
        assert caught(quorum, changed) == "voters_change_one_at_a_time"


def test_the_last_voter_commits_its_own_voters_at_once() -> None:
    two, one = (tuple((voter, None) for voter in VOTERS[:n]) for n in (2, 1))
    quorum = Quorum()
    quorum.see(replica(1, leads=True, voters=two, committed_voters=two))
    alone = replica(1, leads=True, voters=one, committed_voters=one, high_watermark=5)
    quorum.see(alone)
    assert quorum.last[1].voters == one


@pytest.mark.parametrize("what", ["unwritten_bytes", "answers", "answers_bytes"])
def test_what_waits_beyond_its_bound(what: str) -> None:
    """One message may go beyond; twice the bound is more than any of them allows."""
    allowed = WaitingView(1, UNWRITTEN_BYTES_MAX, DEFERRED_MAX, WAITING_BYTES_MAX)
    properties = Quorum().properties
    properties.waiting_changed(allowed)
    beyond = replace(allowed, **{what: 2 * getattr(allowed, what) + 1})
    with pytest.raises(Violation, match="what_waits_is_bounded: node 1: "):
        properties.waiting_changed(beyond)


def test_a_commit_that_a_power_failure_undoes() -> None:
    quorum = Quorum((LOG, LOG[:2], LOG[:2]))
    quorum.see(replica(1, high_watermark=4))
    view = replica(1, high_watermark=5)
    assert caught(quorum, view) == "committed_is_durable_on_a_majority"


def test_a_disk_that_is_lost_after_it_was_counted_had_the_commit() -> None:
    quorum = Quorum((LOG, LOG, LOG[:2]))
    quorum.properties.lost_disk((2, None))
    quorum.disks[2].clear()
    quorum.see(replica(1, high_watermark=5))
    with pytest.raises(Violation, match="all_committed_stays_durable_on_a_majority"):
        quorum.properties.come_to_rest()


def test_a_disk_that_is_lost_before_it_had_the_commit_does_not_count() -> None:
    quorum = Quorum((LOG, LOG[:2], LOG[:2]))
    quorum.properties.lost_disk((2, None))
    quorum.disks[2].clear()
    view = replica(1, high_watermark=5)
    assert caught(quorum, view) == "committed_is_durable_on_a_majority"


def test_at_rest_a_commit_has_to_be_everywhere() -> None:
    quorum = Quorum()
    quorum.see(replica(1, high_watermark=5))
    quorum.see(replica(2, high_watermark=1))
    quorum.properties.come_to_rest()
    quorum.see(replica(3, LOG[:2]))
    quorum.properties.come_to_rest()
    quorum.see(replica(3, [*LOG[:2], Entry(4, 5, 1, 12)]))
    with pytest.raises(Violation, match="no_voter_differs_from_committed"):
        quorum.properties.come_to_rest()
    quorum.see(replica(3))
    for voter in (1, 2):
        del quorum.disks[voter][4]
    with pytest.raises(Violation, match="all_committed_stays_durable_on_a_majority"):
        quorum.properties.come_to_rest()


# --- images -----------------------------------------------------------------------------------

ASSIGNED = Assignment("t-0", (1, 2, 3), (1, 2), 1, 0, 0)
UNFENCED = {1: -1, 2: -1, 3: -1}
"""Broker epochs by broker; -1 was before the first image."""


def image(offset: int, *assigned: Assignment, content: object = "same", node: int = 1) -> ImageView:
    return ImageView(node, offset, (offset, content), 100, lambda: assigned, UNFENCED)


@pytest.mark.req("J4")
def test_a_fenced_broker_leads_nothing() -> None:
    assigned = Assignment("t-0", (1, 2, 3), (1, 2), 1, 5, 5)
    view = replace(image(1, assigned), unfenced={2: -1, 3: -1})
    assert complaint_about(view) == "leader_is_not_fenced"


@pytest.mark.req("J4")
def test_a_broker_is_unfenced_once_it_has_seen_its_registration() -> None:
    seen = replace(image(9, node=4), unfenced={4: 9})
    assert complaint_about(seen, replace(seen, unfenced={1: 0})) == "unfenced_broker_has_caught_up"


def complaint_about(*views: ImageView) -> str:
    properties = Quorum().properties
    for view in views[:-1]:
        properties.image_published(view)
    with pytest.raises(Violation) as violation:
        properties.image_published(views[-1])
    assert violation.value.name in [one.__name__ for one in IMAGE_PROPERTIES]
    return violation.value.name


def test_good_images_are_left_alone() -> None:
    properties = Quorum().properties
    properties.image_published(image(1, ASSIGNED))
    properties.image_published(image(1, ASSIGNED, node=2))
    elsewhere = replace(ASSIGNED, leader=2, isr=(2,), leader_epoch=1, partition_epoch=1)
    properties.image_published(image(2, elsewhere))
    properties.image_published(
        image(3, replace(elsewhere, leader=-1, leader_epoch=2, partition_epoch=2))
    )


def test_metadata_that_may_be_lost() -> None:
    assert complaint_about(image(100)) == "image_is_committed"


def test_images_that_differ() -> None:
    assert complaint_about(image(1), image(1, content="other", node=2)) == "images_agree"


@pytest.mark.parametrize(
    "values", [{"leader": 3}, {"isr": ()}, {"isr": (1, 4)}, {"isr": (), "leader": -1}]
)
def test_a_leader_out_of_sync_or_an_isr_of_strangers(values: dict[str, Any]) -> None:
    bad = replace(ASSIGNED, **values)
    assert complaint_about(image(1, bad)) == "leader_is_in_isr_and_isr_in_replicas"


@pytest.mark.parametrize(
    "values",
    [
        {"leader_epoch": 4},
        {"partition_epoch": 4},
        {"isr": (1,)},
        {"leader": 2, "partition_epoch": 6},
    ],
)
def test_partition_epochs_that_do_not_grow(values: dict[str, Any]) -> None:
    first = replace(ASSIGNED, leader_epoch=5, partition_epoch=5)
    bad = replace(first, **values)
    assert complaint_about(image(1, first), image(2, bad)) == "partition_epochs_never_go_back"


# --- partitions -------------------------------------------------------------------------------


def hosted(node: int = 1, log: Sequence[Entry] = LOG, **values: Any) -> PartitionView:
    end = log[-1].end_offset if log else 0
    base = PartitionView(node, 1, "t-0", False, 1, 0, end, (1, 2, 3), 1, reader(log))
    return replace(base, **values)


class Partitions:
    """The replicas of one partition."""

    def __init__(self) -> None:
        self.properties = Quorum().properties
        self.last: dict[int, PartitionView] = {}

    def see(self, view: PartitionView, *, restarted: bool = False) -> None:
        before = None if restarted else self.last.get(view.node_id)
        self.last[view.node_id] = view
        self.properties.partition_changed(PartitionChange(before, view))

    def caught(self, view: PartitionView) -> str:
        with pytest.raises(Violation) as violation:
            self.see(view)
        assert violation.value.name in [one.__name__ for one in PARTITION_PROPERTIES]
        return violation.value.name


def led() -> Partitions:
    partitions = Partitions()
    for node in (2, 3):
        partitions.see(hosted(node))
    partitions.see(hosted(1, leads=True))
    return partitions


def test_a_good_partition_is_left_alone() -> None:
    partitions = led()
    partitions.see(hosted(1, leads=True, high_watermark=5))
    partitions.see(hosted(2, high_watermark=4))
    partitions.see(hosted(2, leads=True, leader_epoch=2, high_watermark=4))
    own = [*LOG[:2], Entry(4, 5, 1, 99)]
    partitions.see(hosted(3, own, high_watermark=1), restarted=True)
    partitions.see(hosted(3, LOG[:2], high_watermark=1))
    # Made anew, as after a reassignment, it begins without a log.
    partitions.see(hosted(3, LOG[:0]), restarted=True)


@pytest.mark.req("R4")
def test_a_replica_that_cuts_what_is_committed_without_knowing_it() -> None:
    partitions = led()
    partitions.see(hosted(1, leads=True, high_watermark=5))
    partitions.see(hosted(3, LOG[:2], high_watermark=1), restarted=True)
    assert partitions.caught(hosted(3, LOG[:1], high_watermark=1)) == "no_committed_record_is_cut"


@pytest.mark.req("R2")
def test_a_high_watermark_beyond_the_log() -> None:
    beyond = hosted(2, LOG[:1], high_watermark=4)
    assert led().caught(beyond) == "high_watermark_is_within_the_log"


def test_two_leaders_of_a_leader_epoch() -> None:
    assert led().caught(hosted(2, leads=True)) == "one_leader_per_leader_epoch"


def test_a_replica_that_truncates_or_takes_back_a_commit() -> None:
    partitions = led()
    partitions.see(hosted(1, leads=True, high_watermark=5))
    partitions.see(hosted(2, high_watermark=5))
    name = "replica_never_truncates_committed"
    assert partitions.caught(hosted(2, LOG[:2], high_watermark=5)) == name
    assert partitions.caught(hosted(1, leads=True, high_watermark=4)) == name


def test_a_leader_that_lacks_a_committed_record() -> None:
    partitions = led()
    partitions.see(hosted(1, leads=True, high_watermark=5))
    view = hosted(3, LOG[:2], leads=True, leader_epoch=2)
    partitions.last.clear()
    assert partitions.caught(view) == "new_partition_leader_has_all_committed"


def test_a_leader_of_an_epoch_that_is_over_may_lack_what_was_committed_since() -> None:
    partitions = led()
    partitions.see(hosted(1, LOG[:2], leads=True, high_watermark=4))
    partitions.see(hosted(2, leads=True, leader_epoch=3, high_watermark=5, isr=(2,)))
    partitions.see(hosted(3, LOG[:2], leads=True, leader_epoch=2))
    assert (
        partitions.caught(hosted(1, LOG[:2], leads=True, leader_epoch=4, high_watermark=4))
        == "new_partition_leader_has_all_committed"
    )


def test_a_committed_record_that_changes() -> None:
    partitions = led()
    partitions.see(hosted(1, leads=True, high_watermark=5))
    other = [*LOG[:2], Entry(4, 5, 3, 12)]
    view = hosted(2, other, high_watermark=5)
    assert partitions.caught(view) == "committed_record_never_changes"


def test_a_commit_that_an_in_sync_replica_lacks() -> None:
    partitions = Partitions()
    partitions.see(hosted(2, LOG[:2]))
    partitions.see(hosted(3))
    view = hosted(1, leads=True, high_watermark=5)
    assert partitions.caught(view) == "committed_record_is_on_the_isr"


def test_at_rest_every_replica_has_every_record() -> None:
    partitions = led()
    partitions.see(hosted(1, leads=True, high_watermark=5))
    partitions.properties.come_to_rest()
    partitions.see(hosted(3, LOG[:2]), restarted=True)
    with pytest.raises(Violation, match="every_replica_has_all_committed: 3 ends at 4"):
        partitions.properties.come_to_rest()


def test_who_lost_power_is_not_asked_until_it_has_left_the_isr() -> None:
    partitions = led()
    partitions.properties.lost_power(3)
    partitions.see(hosted(3, LOG[:1]), restarted=True)
    partitions.see(hosted(1, leads=True, high_watermark=4))
    partitions.see(hosted(1, leads=True, high_watermark=4, isr=(1, 2)))
    partitions.see(hosted(3, LOG[:1]))
    back = hosted(1, leads=True, high_watermark=5)
    assert partitions.caught(back) == "committed_record_is_on_the_isr"
