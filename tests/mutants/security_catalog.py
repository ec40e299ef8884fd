"""Bugs of rules and quotas that a property of whole clusters, or of a whole day, is to notice."""

from __future__ import annotations

from tests.mutants.mutant import SILENT, edited, node_mutant

USED, DENIED = "used-without-right", "denied-with-right"
_RULES = "security._rules:"
_STANDARD = "security._standard:StandardAuthorizer."
_THROTTLING = "broker.apis.handler.throttling:"
_ACL, _DAY = "rules_hold", "quotas_hold_all_day"

SECURITY_MUTANTS = (
    node_mutant(
        "nodes_ignore_rules_for_prefixes",
        "rules for prefixes are stored and listed, and decide nothing",
        (DENIED, USED),
        edited(f"{_RULES}_TypeIndex._matching", "self._prefixes.items()", "()"),
        scenario=_ACL,
    ),
    node_mutant(
        "decisions_outlive_changes_of_rules",
        "an authorizer's cache of decisions is stale after a change of the rules",
        (USED, DENIED),
        edited(
            f"{_STANDARD}publish",
            "self._decisions, self._by_type, self._by_prefix = {}, {}, {}",
            "pass",
        ),
        scenario=_ACL,
    ),
    node_mutant(
        "removed_rules_go_when_the_node_restarts",
        "an authorizer adds new rules, and drops removed ones only when it reads an image whole",
        (USED, DENIED),
        edited(f"{_STANDARD}_change", "if known is not None:", "if False:"),
        SILENT,
        scenario=_ACL,
    ),
    node_mutant(
        "brokers_authorize_by_their_first_rules",
        "an authorizer takes up no change after its first image",
        (DENIED, USED),
        edited(f"{_STANDARD}publish", "if before is image.acls:", "if before is not None:"),
        scenario=_ACL,
    ),
    node_mutant(
        "denial_of_everybody_is_for_nobody",
        "rules for all principals decide nothing",
        (USED, DENIED),
        edited(
            f"{_RULES}_subjects",
            "principal, (principal, host), EVERYBODY, (EVERYBODY, host)",
            "principal, (principal, host)",
        ),
        scenario=_ACL,
    ),
    node_mutant(
        "groups_are_anybodys",
        "offsets are committed without a look at the right to the group",
        (USED,),
        edited(
            "broker.apis.consumer._group_offsets:handle_commit",
            "require_member(context, request)",
            "pass",
        ),
        scenario=_ACL,
    ),
    node_mutant(
        "throttled_client_is_served_on",
        "an answer has its throttle time, and the connection is not muted",
        ("throttled_client_waits",),
        edited(
            f"{_THROTTLING}_mute",
            "connection.muted_until = max(connection.muted_until, muted_until)",
            "pass",
        ),
        scenario=_DAY,
    ),
    node_mutant(
        "mute_ends_after_a_second",
        "a connection is muted for a second at most, whatever its answer says",
        ("throttled_client_waits",),
        edited(
            f"{_THROTTLING}_mute", "now + throttle_ms / 1000", "now + min(throttle_ms, 1000) / 1000"
        ),
        scenario=_DAY,
    ),
    node_mutant(
        "throttle_time_is_forgotten",
        "a connection is muted, and its answer says 0",
        ("throttle_time_is_in_the_answer",),
        edited(
            f"{_THROTTLING}finished",
            '{**answer, "throttle_time_ms": request.context.throttle_ms}',
            "answer",
        ),
        scenario=_DAY,
    ),
    node_mutant(
        "muted_connection_counts_as_idle",
        "a connection that is muted for longer than a quiet one may last is closed",
        ("muted_connection_stays",),
        edited(
            "broker.server._connection:Connection._watch_idleness",
            "max(self.active_at, self._client.muted_until)",
            "self.active_at",
        ),
        scenario=_DAY,
    ),
    node_mutant(
        "windows_never_move",
        "samples of a rate never expire, so who was quiet for an hour may use all of it at once",
        ("granted_rate_is_bounded",),
        edited(
            "broker.quotas._rates:SampledRate._elapsed_ms",
            "while samples and now_ms - samples[0].last_ms >= windows.total_ms:",
            "while False:",
        ),
        scenario=_DAY,
    ),
    node_mutant(
        "withheld_records_count_for_ever",
        "records that a fetch has to wait for use the quota up each time they are held back",
        ("quota_is_used_up",),
        edited(
            f"{_THROTTLING}fetched",
            "_record(context, request, QuotaType.FETCH, -size, now)",
            "pass",
        ),
        scenario=_DAY,
    ),
)
