"""Small edits of the rules of access that a test or a property finds."""

from __future__ import annotations

from tests.mutants.edit import Edit

_RULES = "security._rules:"
_STANDARD = "security._standard:StandardAuthorizer."
_UNIT = "unit/raftctl/security/test_standard.py::"
_DECIDES = f"{_UNIT}test_a_decision_is_that_of_the_rules"
_OF_TYPE = f"{_UNIT}test_whether_something_of_a_type_is_allowed"
_GONE = f"{_UNIT}test_nothing_is_left_of_rules_that_are_gone"

EDITS = (
    Edit(
        "rule_for_a_prefix_is_ignored",
        f"{_RULES}_TypeIndex._matching",
        "self._prefixes.items()",
        "()",
        f"{_DECIDES}[prefix]",
    ),
    Edit(
        "prefixes_are_looked_up_by_the_whole_name",
        f"{_RULES}_TypeIndex._matching",
        "names.get(name[:length])",
        "names.get(name)",
        f"{_DECIDES}[prefix]",
    ),
    Edit(
        "rule_for_every_name_is_ignored",
        f"{_RULES}_TypeIndex._matching",
        "(name, WILDCARD)",
        "(name,)",
        f"{_DECIDES}[wildcard]",
    ),
    Edit(
        "first_rule_that_allows_wins_over_a_deny",
        f"{_RULES}_TypeIndex._decide",
        "if denied := mask & denying:",
        "if not decision.allowed and (denied := mask & denying):",
        f"{_DECIDES}[a wider deny wins]",
    ),
    Edit(
        "deny_does_not_win",
        f"{_RULES}_TypeIndex._decide",
        "if denied := mask & denying:",
        "if (denied := mask & denying) and not mask & allowing:",
        f"{_DECIDES}[deny wins]",
    ),
    Edit(
        "host_of_a_rule_is_ignored",
        f"{_RULES}_subject",
        "if rule.host == WILDCARD",
        "if True",
        f"{_DECIDES}[host]",
    ),
    Edit(
        "rules_for_everybody_at_a_host_are_ignored",
        f"{_RULES}_subjects",
        ", (EVERYBODY, host)",
        "",
        f"{_DECIDES}[everybody at a host]",
    ),
    Edit(
        "rules_for_everybody_are_ignored",
        f"{_RULES}_subjects",
        "principal, (principal, host), EVERYBODY, (EVERYBODY, host)",
        "principal, (principal, host)",
        f"{_DECIDES}[everybody]",
    ),
    Edit(
        "wildcard_deny_is_ignored_by_type",
        f"{_RULES}_TypeIndex.some_allowed",
        "if _has(everything, subjects, denying):",
        "if False:",
        f"{_OF_TYPE}[all denied]",
    ),
    Edit(
        "prefix_that_denies_does_not_dominate",
        f"{_RULES}_TypeIndex._is_dominated",
        "names.get(name[:length])",
        "None",
        f"{_OF_TYPE}[a prefix denies a literal]",
    ),
    Edit(
        "literal_that_denies_dominates_a_prefix",
        f"{_RULES}_TypeIndex._is_dominated",
        "pattern_type == _LITERAL and _has(self._literal[name]",
        "_has(self._literal.get(name, _NO_RULES)",
        f"{_OF_TYPE}[a literal denies one of many]",
    ),
    Edit(
        "removed_rule_is_still_found_by_type",
        f"{_RULES}_TypeIndex.remove",
        "if bit <= _ALL_ALLOWED:",
        "if False:",
        _GONE,
    ),
    Edit(
        "length_without_prefixes_stays",
        f"{_RULES}_TypeIndex.remove",
        "del self._prefixes[length]",
        "pass",
        _GONE,
    ),
    Edit(
        "removal_takes_the_other_rules_of_the_subject",
        f"{_RULES}_TypeIndex.remove",
        "mask & ~bit",
        "0",
        _GONE,
    ),
    Edit(
        "rule_that_two_entries_have_goes_with_the_first",
        f"{_RULES}RuleIndex.remove",
        "further > 1",
        "False",
        f"{_UNIT}test_a_rule_that_two_entries_have_goes_with_the_last",
    ),
    Edit(
        "decision_outlives_the_rules",
        f"{_STANDARD}publish",
        "self._decisions, self._by_type, self._by_prefix = {}, {}, {}",
        "self._by_type = {}",
        f"{_UNIT}test_no_decision_outlives_the_rules",
    ),
    Edit(
        "decision_by_type_outlives_the_rules",
        f"{_STANDARD}publish",
        "self._decisions, self._by_type, self._by_prefix = {}, {}, {}",
        "self._decisions = {}",
        f"{_UNIT}test_no_decision_outlives_the_rules",
    ),
    Edit(
        "image_of_another_line_is_taken_for_the_next",
        f"{_STANDARD}publish",
        "before is delta.image.acls",
        "before is not None",
        f"{_UNIT}test_an_image_of_another_line_is_read_whole",
    ),
    Edit(
        "former_rule_of_an_entry_stays",
        f"{_STANDARD}_change",
        "if known is not None:",
        "if known is not None and rule is None:",
        f"{_UNIT}test_an_entry_that_says_something_else_replaces_the_former",
    ),
    Edit(
        "super_user_is_denied_by_a_rule",
        f"{_STANDARD}_decide",
        "if principal in self._super_users:",
        "if principal in self._super_users and self._rules is None:",
        f"{_UNIT}test_a_super_user_may_do_what_is_denied",
    ),
    Edit(
        "everyone_is_allowed_before_the_first_image",
        f"{_STANDARD}_decide",
        "if self._rules is None:",
        "if False:",
        f"{_UNIT}test_before_the_first_image_only_super_users_are_allowed",
    ),
    Edit(
        "decisions_are_kept_without_end",
        f"{_STANDARD}authorize",
        "self._decisions.clear()",
        "pass",
        f"{_UNIT}test_few_decisions_are_kept",
    ),
    Edit(
        "decisions_are_kept_without_the_requester",
        f"{_STANDARD}authorize",
        "self._decisions.get((requester, action))",
        "next((was for (_, asked), was in self._decisions.items() if asked == action), None)",
        f"{_DECIDES}[user]",
    ),
    Edit(
        "denials_of_lists_are_logged",
        f"{_STANDARD}_is_logged",
        "and action.log_if_denied",
        "",
        f"{_UNIT}test_the_audit_log_has_only_what_is_asked_for",
    ),
)
"""Bugs of an authorizer, and the tests that find them."""
