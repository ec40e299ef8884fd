"""Small edits of the coordinators' cores that their invariants find, each with its test."""

from __future__ import annotations

from tests.mutants.edit import Edit

_UNIT = "unit/broker/"

EDITS = (
    Edit(
        "new_producer_keeps_the_epoch",
        "broker.transactions._state:Transaction.renewed",
        "self.producer_epoch + 1 if same",
        "self.producer_epoch if same",
        f"{_UNIT}transactions/test_transactions.py::test_a_new_producer_fences_the_one_before",
    ),
    Edit(
        "transaction_forgets_partitions",
        "broker.transactions._state:Transaction.joined",
        "self.partitions | partitions if is_open",
        "partitions if is_open",
        f"{_UNIT}transactions/test_transactions.py::test_a_producer_that_goes_on_adding_partitions_has_no_more_time",
    ),
    Edit(
        "outcome_has_no_partitions",
        "broker.transactions._state:Transaction.decided",
        "partitions=self.partitions if is_open",
        "partitions=frozenset() if is_open",
        f"{_UNIT}transactions/test_transactions.py::test_an_outcome_is_told_to_every_partition_and_then_complete",
    ),
    Edit(
        "complete_transaction_keeps_partitions",
        "broker.transactions._state:Transaction.completed",
        "partitions=frozenset(),",
        "partitions=self.partitions,",
        f"{_UNIT}transactions/test_transactions.py::test_an_outcome_is_told_to_every_partition_and_then_complete",
    ),
    Edit(
        "decided_outcome_is_decided_again",
        "broker.transactions._core:TransactionCore._end",
        "raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)\n    if again or",
        "pass\n    if again or",
        f"{_UNIT}transactions/test_transaction_table.py::test_a_producer_is_told",
    ),
    Edit(
        "ended_transaction_stays_ongoing",
        "broker.transactions._ids:TransactionIds.replay",
        "self.ongoing.pop(name, None)",
        "pass",
        f"{_UNIT}transactions/test_transactions.py::test_an_outcome_is_told_to_every_partition_and_then_complete",
    ),
    Edit(
        "group_keeps_a_leader_that_left",
        "broker.groups.classic._group:Group.remove",
        "self.leader = next(iter(self.members), None)",
        "pass",
        f"{_UNIT}groups/test_group_core.py::test_members_leave_each_on_its_own",
    ),
    Edit(
        "static_member_that_left_keeps_its_place",
        "broker.groups.classic._group:Group.remove",
        "self.statics.pop(member.instance_id, None)",
        "pass",
        f"{_UNIT}groups/test_invariants.py::test_a_static_member_that_leaves_gives_up_its_place",
    ),
    Edit(
        "generation_begins_with_members_that_join",
        "broker.groups.classic._rebalance:Rebalancer._begin_generation",
        "member.joining = None\n",
        "pass\n",
        f"{_UNIT}groups/test_group_core.py::test_the_first_member_leads_and_assigns",
    ),
    Edit(
        "generation_has_no_protocol",
        "broker.groups.classic._rebalance:Rebalancer._complete_join",
        "group.protocol = group.selected_protocol()",
        "pass",
        f"{_UNIT}groups/test_group_core.py::test_the_first_member_leads_and_assigns",
    ),
    Edit(
        "contradictory_group_record_is_read",
        "broker.groups.classic._group:Group.of_record",
        "_check_record(fields)",
        "pass",
        f"{_UNIT}groups/test_invariants.py::test_a_group_record_that_contradicts_itself_is_refused",
    ),
    Edit(
        "partition_is_free_while_it_is_held",
        "broker.groups.consumer._reconciliation:_next",
        "owners.get(one) in (None, member.member_id)",
        "True",
        f"{_UNIT}groups/test_consumer_groups.py::test_a_partition_moves_when_its_owner_has_let_go_of_it",
    ),
    Edit(
        "revoked_partition_keeps_its_owner",
        "broker.groups.consumer.consumer_group:ConsumerGroup._set_current",
        "del self.owners[slot]",
        "pass",
        f"{_UNIT}groups/test_consumer_groups.py::test_a_partition_moves_when_its_owner_has_let_go_of_it",
    ),
    Edit(
        "member_that_left_keeps_its_target",
        "broker.groups.consumer.consumer_group:ConsumerGroup._replay_target",
        "self.targets.pop(member_id, None)",
        "pass",
        f"{_UNIT}groups/test_consumer_groups.py::test_others_go_on_reading_while_one_comes_or_goes",
    ),
    Edit(
        "targets_of_an_epoch_to_come",
        "broker.groups.consumer._consumer_groups:ConsumerGroups._assign",
        "assignment_record(group.group_id, group.epoch)",
        "assignment_record(group.group_id, group.epoch + 1)",
        f"{_UNIT}groups/test_consumer_groups.py::test_one_heartbeat_makes_a_member_with_its_partitions",
    ),
    Edit(
        "downgraded_group_begins_at_generation_0",
        "broker.groups._migration:downgraded",
        "CONSUMER_PROTOCOL, group.epoch)",
        "CONSUMER_PROTOCOL, 0)",
        f"{_UNIT}groups/test_migration.py::test_a_group_is_downgraded_when_its_last_consumer_member_leaves",
    ),
    Edit(
        "group_is_of_both_protocols",
        "broker.groups._core:GroupCore.replay",
        "if about.group in self._consumers.groups:",
        "if False:",
        f"{_UNIT}groups/test_migration.py::test_a_group_is_upgraded_and_its_members_go_on",
    ),
    Edit(
        "group_with_members_is_forgotten",
        "broker.groups._core:GroupCore._delete",
        "group.state.value != State.EMPTY.value",
        "False",
        f"{_UNIT}groups/test_group_core.py::test_offsets_of_topics_that_are_read_are_not_deleted",
    ),
    Edit(
        "group_without_offsets_is_listed",
        "broker.groups._offsets:GroupOffsets._remove",
        "self._groups.pop(group, None)",
        "pass",
        f"{_UNIT}groups/test_group_core.py::test_offsets_of_an_empty_group_expire",
    ),
    Edit(
        "places_of_offsets_are_kept_for_ever",
        "broker.groups._offsets:GroupOffsets.ended",
        "self._places.clear()",
        "pass",
        f"{_UNIT}groups/test_group_core.py::test_offsets_of_a_transaction_do_not_replace_later_ones",
    ),
    Edit(
        "shard_is_loaded_after_its_leadership",
        "broker.coordinator._coordinator:Coordinator._close",
        "self._loads.pop(number).cancel()",
        "self._loads[number].cancel()",
        f"{_UNIT}coordinator/test_runtime.py::test_another_broker_reloads_what_was_written",
    ),
)
