"""Small edits that a property of whole clusters is to notice, whatever the unit tests see.

Each is one place in one function, as in `tests.mutants.edit`, planted into every node of a run.
"""

from __future__ import annotations

from tests.mutants.mutant import SILENT, edited, node_mutant

SIMULATION_MUTANTS = (
    node_mutant(
        "observer_asks_nobody_for_a_leader",
        "a broker that has lost its leader fetches from nobody until it is restarted",
        ("every_node_follows",),
        edited("raft._roles:Roles.detach", "fetcher.failed(now_ms)", "pass"),
        scenario="chaos",
    ),
    node_mutant(
        "leader_must_be_a_known_voter",
        "a replica with configured voters believes only these as leaders",
        ("every_node_follows", "liveness"),
        edited(
            "raft._replica:Replica.may_lead",
            "node_id >= 0 and",
            "(self.voters.dynamic or node_id in self.voters.ids) and",
        ),
        scenario="configured_voters_become_dynamic",
    ),
    node_mutant(
        "client_counts_its_session_from_the_answer",
        "a client counts its session from when a heartbeat was answered, not from when it was sent",
        ("one_holds_a_lock",),
        edited(
            "client._session:Session._keep", "lease_ends(sent_at,", "lease_ends(lease_time(loop),"
        ),
        scenario="locks_stay_safe",
    ),
    node_mutant(
        "broker_counts_its_session_from_the_answer",
        "a broker counts its session from when a heartbeat was answered, not from when it was sent",
        ("fenced_broker_is_not_sure",),
        edited(
            "node._registrations:BrokerLifecycle._heartbeat",
            "lease_ends(sent_s,",
            "lease_ends(lease_time(asyncio.get_running_loop()),",
        ),
        scenario="a_broker_that_is_held_up_keeps_no_session",
    ),
    node_mutant(
        "broker_believes_in_all_of_its_session",
        "a broker that was held up takes what it was last told for what holds still",
        ("fenced_broker_is_not_sure",),
        edited(
            "node._registrations:BrokerLifecycle.has_session",
            "lease_time(asyncio.get_running_loop()) < self._session_ends_s",
            "not self._fenced",
        ),
        scenario="a_broker_that_is_held_up_keeps_no_session",
    ),
    node_mutant(
        "producer_ids_of_what_is_committed",
        "a block of producer ids is taken from committed metadata, without what is under way",
        ("no_producer_id_is_given_twice",),
        edited(
            "controller._quorum_controller:QuorumController.handle",
            "return self._decisions[type(request)](self.image, request)",
            "is_block = isinstance(request, AllocateProducerIdsRequest)\n"
            "    image = self.committed_image if is_block else self.image\n"
            "    return self._decisions[type(request)](image, request)",
        ),
        SILENT,
    ),
    node_mutant(
        "blocks_of_producer_ids_share_one",
        "the next block of producer ids begins with the last id of the one before",
        ("producer_ids_are_granted_by_the_log", "no_producer_id_is_given_twice"),
        edited(
            "controller._cluster_control:allocate_producer_ids",
            "request.broker_epoch, first + block)",
            "request.broker_epoch, first + block - 1)",
        ),
    ),
    node_mutant(
        "refusal_of_a_second_attempt_is_told",
        "a broker that got no answer asks again, and tells what is refused then as not done",
        ("refused_operation_never_takes_effect",),
        edited(
            "controller_channel._channel:RepeatInDoubt.check",
            "in_doubt = True",
            "in_doubt = False",
        ),
        scenario="administrators_change_everything",
    ),
    node_mutant(
        "a_hung_disk_fills_the_memory",
        "the active controller takes more and more while its own disk writes nothing",
        ("what_waits_is_bounded",),
        edited(
            "node._controller_service:ControllerService._is_full",
            "full or self._driver.is_full",
            "full",
        ),
        scenario="the_active_controllers_disk_hangs",
    ),
    node_mutant(
        "what_cannot_commit_fills_the_memory",
        "the active controller takes more and more while nothing commits, but counts the answers",
        ("what_waits_is_bounded",),
        edited(
            "node._controller_service:ControllerService._is_full",
            "self.waiting_bytes >= WAITING_BYTES_MAX",
            "False",
        ),
        scenario="the_other_voters_disks_hang",
    ),
    node_mutant(
        "older_connections_of_a_client_stay",
        "what a client gave up over an older connection is done after what it asked since",
        ("acknowledged_operation_stays",),
        edited(
            "rpc._server:_Connection._replace_older",
            "other.channel.abort()",
            "pass",
        ),
        scenario="the_same_controller_gets_it_late",
    ),
    node_mutant(
        "next_leadership_takes_what_was_sent_before",
        "a controller that leads again does what hung on its way since it led before",
        ("acknowledged_operation_stays",),
        edited(
            "node._controller_service:ControllerService.on_leader_changed", "self._fence()", "pass"
        ),
        scenario="a_controller_that_leads_again_gets_it_late",
    ),
    node_mutant(
        "controller_answers_changes_before_they_commit",
        "a change is acknowledged as soon as the active controller has decided on it",
        ("producer_ids_are_granted_by_the_log", "acknowledged_operation_stays"),
        edited(
            "node._controller_service:ControllerService._answer",
            "elif self._last_appended < self._driver.high_watermark:",
            "elif True:",
        ),
        scenario="administrators_change_everything",
    ),
    node_mutant(
        "snapshot_of_the_newest_voters",
        "a snapshot names the voters of now, not those of the records that it stands for",
        ("snapshot_names_the_voters_at_its_end",),
        edited(
            "loader._snapshots:Snapshotter._begin",
            "self._replica.voters_at(id_of(image).offset)",
            "self._replica.core.voters",
        ),
        scenario="changes_compete",
    ),
    node_mutant(
        "snapshot_without_its_last_record",
        "a snapshot lacks its last record",
        ("snapshot_is_the_image_at_its_end", "images_agree"),
        edited(
            "loader._snapshots:pack_image",
            "image.records_after_topics()",
            "list(image.records_after_topics())[:-1]",
        ),
        scenario="locks_stay_safe",
    ),
    node_mutant(
        "one_follower_keeps_a_leader",
        "a leader of five stays while any one follower fetches from it",
        ("nobody_leads_without_a_majority",),
        edited("raft._tracker:Tracker.majority_seen_ms", "[needed - 1]", "[0]"),
        scenario="controllers_are_cut_off_for_long",
    ),
    node_mutant(
        "voter_without_its_disk_votes",
        "a vote counts for a voter's node id, whatever disk the voter has now",
        ("vote_is_durable_before_it_counts",),
        edited(
            "raft._core:RaftCore._vote_response", "response.voter in self._replica.voters and ", ""
        ),
        scenario="changes_compete",
    ),
    node_mutant(
        "voter_without_its_disk_has_what_it_had",
        "what another disk has counts as if the voter of this node id had it",
        ("committed_is_durable_on_a_majority", "new_leader_has_all_committed"),
        edited("raft._tracker:Tracker.fetching", " and key in self._replica.voters", ""),
        scenario="wiped_voter_counts_for_nothing",
    ),
)
