"""Small edits of the checkers: of each rule by which a checker infers one, at least.

`unit/jepsen/test_checker_edits.py` plants them all on every run; a case of its table notices each.
"""

from __future__ import annotations

from tests.mutants.edit import Edit

LISTS = "jepsen.checkers.list_append"
SIMPLE = "jepsen.checkers.simple"
SET = "jepsen.checkers.set_full"
WATCH = "jepsen.checkers.watch"
MODELS = "jepsen.checkers.models"
KAFKA = "jepsen.checkers.kafka.anomalies"

_EDITS = (
    # (name, function, old, new, the checker whose cases notice)
    ("nil_is_not_the_empty_list", f"{LISTS}:_txn", " or txn.ok", "", "list-append"),
    ("unread_appends_have_no_order", f"{LISTS}:_edges", "versions.get(key, ())[-1:]", "(None,)",
     "list-append"),
    ("no_ww", f"{LISTS}:_edges", "if writer:", "if False:", "list-append"),
    ("no_rw", f"{LISTS}:_edges", "in readers.get((key, earlier), ()):", "in ():", "list-append"),
    ("no_wr", f"{LISTS}:_wr_edges", "            if writer:", "            if False:",
     "list-append"),
    ("shortest_list_is_the_order", f"{LISTS}:_longest", "len(seen) > len", "0 < len(seen) < len",
     "list-append"),
    ("internal_of_whole_lists_passes", f"{LISTS}:_alone", "value != expected if whole",
     "False if whole", "list-append"),
    ("internal_of_tails_passes", f"{LISTS}:_alone", "!= expected\n        if not whole and",
     "!= expected and whole\n        if not whole and", "list-append"),
    ("shorter_than_its_own_passes", f"{LISTS}:_alone", "known[key] = (True, value)",
     "known[key] = (False, value)", "list-append"),
    ("future_read_passes", f"{LISTS}:_future_reads", "value in seen.get(key, ())", "False",
     "list-append"),
    ("aborted_read_passes", f"{LISTS}:_unclean_reads", "writer.failed", "False", "list-append"),
    ("half_read_passes", f"{LISTS}:_unclean_reads", "last[end.vertex, key] != seen[-1]", "False",
     "list-append"),
    ("lost_update_passes", f"{LISTS}:_lost_updates", "len(vertices) > 1", "len(vertices) > 9",
     "list-append"),
    ("incompatible_order_passes", f"{LISTS}:_disorder", "order[: len(seen)] != seen",
     "False", "list-append"),
    ("duplicates_pass", f"{LISTS}:_disorder", "len(set(seen)) < len(seen)", "False",
     "list-append"),
    ("dirty_update_passes", f"{LISTS}:_dirty_updates", "if failed is not None:", "if False:",
     "list-append"),
    ("appended_twice_is_judged", f"{LISTS}:_unusable", "count > 1", "count > 9", "list-append"),
    ("empty_graph_is_valid", f"{LISTS}:_is_linked", "edge.source != edge.target", "True",
     "list-append"),
    ("counter_has_no_lower_bound", f"{SIMPLE}:check_counter", "low <= read.value", "True",
     "counter"),
    ("counter_takes_all_maybes", f"{SIMPLE}:check_counter", "high = base +", "high = base - ",
     "counter"),
    ("queue_is_a_set", f"{SIMPLE}:check_queue", "free.pop()",
     "free[-1]", "queue"),
    ("duplicate_passes", f"{SIMPLE}:_impossible", "count <= before", "True", "queue"),
    ("out_before_in", f"{SIMPLE}:_impossible", "index < line for", "True for", "queue"),
    ("refused_may_come_out", f"{SIMPLE}:check_queue",
     "_end(one) < drained", "_end(one) <= 0", "queue"),
    ("wrong_total_passes", f"{SIMPLE}:check_bank", "sum(known.values()) != total", "False", "bank"),
    ("nil_balance_passes", f"{SIMPLE}:check_bank", "len(known) < len(balances)", "False", "bank"),
    ("empty_read_passes", f"{SIMPLE}:check_bank", "set(balances) != accounts", "False", "bank"),
    ("negative_passes", f"{SIMPLE}:check_bank", "balance < 0", "balance < -9", "bank"),
    ("half_transfer_passes", f"{SIMPLE}:_halves_of_failed", "number in transfers", "False", "bank"),
    ("token_may_go_back", f"{SIMPLE}:_backwards", "one.value < token", "False", "lock"),
    ("token_of_overlapping", f"{SIMPLE}:_backwards", "_end(by_end[ended]) < one.invoke.index",
     "True", "lock"),
    ("token_twice", f"{SIMPLE}:check_lock", "count > 1", "count > 2", "lock"),
    ("absent_is_never_read", f"{SET}:_outcome", "element not in read.elements", "False", "set"),
    ("lost_is_stale", f"{SET}:_outcome", "end > last_absent.begin", "True", "set"),
    ("read_before_it_was_known", f"{SET}:_outcome", "read.begin > min(known)", "True", "set"),
    ("set_duplicate_passes", f"{SET}:_read", "count > 1", "count > 2", "set"),
    ("set_unexpected_passes", f"{SET}:_impossible", "add.failed", "False", "set"),
    ("one_failed_add_is_all_of_them", f"{SET}:_added", "failed=not tried",
     "failed=len(tried) < len(several)", "set"),
    ("drain_ends_with_its_last", f"{WATCH}:_missed", "_newest_key(known, watch.asked)", "-1",
     "watch"),
    ("drain_sees_the_future", f"{WATCH}:_newest_key", "< line", "> -1", "watch"),
    ("watch_repeats", f"{WATCH}:_disorder", "change.version <= last", "change.version < last",
     "watch"),
    ("watch_has_no_order", f"{WATCH}:_disorder", "change.version <= last",
     "change.version == last", "watch"),
    ("watch_makes_changes", f"{WATCH}:_unexpected", "<= explained[what]", "< 0", "watch"),
    ("versions_go_back", f"{WATCH}:_went_back", "version <= after", "False", "watch"),
    ("list_may_lack_keys", f"{WATCH}:_wrong_lists", "removed or", "True or", "watch"),
    ("owners_of_any_generation", "jepsen.checkers.group:check_group", "owner != member_id", "False",
     "group"),
    ("topic_is_gone", "jepsen.checkers.topics:Topic._changed", "if partitions == call.result",
     "if True", "topics"),
    ("any_value_is_read", f"{MODELS}:Register.step", "or call.result == state", "or True",
     "linearizable"),
    ("any_cas", f"{MODELS}:Register.step", "if state == expected:", "if True:", "linearizable"),
    ("two_hold", f"{MODELS}:Mutex.step", "if state != held:", "if True:", "linearizable"),
    ("any_order", f"{MODELS}:Queue.step", "state and state[0] == call.result", "state",
     "linearizable"),
    ("bag_keeps_all", f"{MODELS}:UnorderedQueue.step", "_put(bag, call.result, -1)", "bag",
     "linearizable"),
    ("set_lacks", f"{MODELS}:GrowingSet.step",
     "len(seen) == len(state) and frozenset(seen) == state", "frozenset(seen) <= state",
     "linearizable"),
    ("nil_is_anything", f"{MODELS}:MultiRegister._matches", "read == value or", "True or",
     "linearizable"),
    ("append_replaces", f"{MODELS}:StringValue.step", "state + call.argument", "call.argument",
     "linearizable"),
    ("lost_write_passes", f"{KAFKA}:lost_writes", "index <= furthest", "False", "kafka"),
    ("unseen_passes", f"{KAFKA}:unseen", "if call.ok else ()", "if False else ()", "kafka"),
    ("log_duplicate_passes", f"{KAFKA}:duplicates", "len(offsets) > 1", "False", "kafka"),
    ("two_at_one_offset", f"{KAFKA}:inconsistent_offsets", "len(values) > 1", "False", "kafka"),
    ("log_aborted_read_passes", f"{KAFKA}:aborted_reads", "writer.type is OpType.FAIL", "False",
     "kafka"),
    ("log_unexpected_passes", f"{KAFKA}:unexpected", "not in logs.writers:\n                detail",
     "is None:\n                detail", "kafka"),
    ("polls_jump_inside", f"{KAFKA}:internal_polls", "if delta == 1:", "if True:", "kafka"),
    ("polls_jump", f"{KAFKA}:external_polls", "if delta == 1:", "if delta >= 1:", "kafka"),
    ("polls_go_back", f"{KAFKA}:external_polls", "if delta == 1:", "if delta <= 1:", "kafka"),
    ("sends_go_back", f"{KAFKA}:external_sends", "delta < 1", "False", "kafka"),
)  # fmt: skip

CHECKER_EDITS = tuple(
    (Edit(name, function, old, new, "unit/jepsen/test_checker_edits.py"), checker)
    for name, function, old, new, checker in _EDITS
)
"""(edit, the checker whose cases notice it)"""
