"""Small edits of the rules of access that a test or a property finds."""

from __future__ import annotations

from tests.mutants.edit import Edit

_RULES = "security._rules:"
_STANDARD = "security._standard:StandardAuthorizer."
_UNIT = "unit/raftctl/security/test_standard.py::"
_MODEL = (
    "unit/raftctl/security/test_standard_model.py::test_every_decision_is_the_one_by_definition"
)

EDITS = (
    Edit(
        "rule_for_a_prefix_is_ignored",
        f"{_RULES}_TypeIndex._matching",
        "self._prefixes.items()",
        "()",
        _MODEL,
    ),
    Edit(
        "prefixes_are_looked_up_by_the_whole_name",
        f"{_RULES}_TypeIndex._matching",
        "names.get(name[:length])",
        "names.get(name)",
        _MODEL,
    ),
    Edit(
        "rule_for_every_name_is_ignored",
        f"{_RULES}_TypeIndex._matching",
        "(name, WILDCARD)",
        "(name,)",
        _MODEL,
    ),
    Edit(
        "first_rule_that_allows_wins_over_a_deny",
        f"{_RULES}_TypeIndex.decide",
        "if denied := mask & denying:",
        "if not decision.allowed and (denied := mask & denying):",
        _MODEL,
    ),
    Edit(
        "deny_does_not_win",
        f"{_RULES}_TypeIndex.decide",
        "if denied := mask & denying:",
        "if (denied := mask & denying) and not mask & allowing:",
        _MODEL,
    ),
    Edit(
        "host_of_a_rule_is_ignored",
        f"{_RULES}_subject",
        "if rule.host == WILDCARD",
        "if True",
        _MODEL,
    ),
    Edit(
        "rules_for_everybody_at_a_host_are_ignored",
        f"{_RULES}_subjects",
        ", (EVERYBODY, host)",
        "",
        _MODEL,
    ),
    Edit(
        "rules_for_everybody_are_ignored",
        f"{_RULES}_subjects",
        "principal, (principal, host), EVERYBODY, (EVERYBODY, host)",
        "principal, (principal, host)",
        _MODEL,
    ),
    Edit(
        "wildcard_deny_is_ignored_by_type",
        f"{_RULES}_TypeIndex.some_allowed",
        "if _has(everything, subjects, denying):",
        "if False:",
        _MODEL,
    ),
    Edit(
        "prefix_that_denies_does_not_dominate",
        f"{_RULES}_TypeIndex._is_dominated",
        "names.get(name[:length])",
        "None",
        _MODEL,
    ),
    Edit(
        "literal_that_denies_dominates_a_prefix",
        f"{_RULES}_TypeIndex._is_dominated",
        "pattern_type == _LITERAL and _has(self._literal[name]",
        "_has(self._literal.get(name, _NO_RULES)",
        _MODEL,
    ),
    Edit(
        "removed_rule_is_still_found_by_type",
        f"{_RULES}_TypeIndex.remove",
        "if bit <= _ALL_ALLOWED:",
        "if False:",
        _MODEL,
    ),
    Edit(
        "length_without_prefixes_stays",
        f"{_RULES}_TypeIndex.remove",
        "del self._prefixes[length]",
        "pass",
        f"{_UNIT}test_nothing_is_left_of_rules_that_are_gone",
    ),
    Edit(
        "removal_takes_the_other_rules_of_the_subject",
        f"{_RULES}_TypeIndex.remove",
        "mask & ~bit",
        "0",
        _MODEL,
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
        "self._decisions, self._by_type = {}, {}",
        "self._by_type = {}",
        f"{_UNIT}test_no_decision_outlives_the_rules",
    ),
    Edit(
        "decision_by_type_outlives_the_rules",
        f"{_STANDARD}publish",
        "self._decisions, self._by_type = {}, {}",
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
        _MODEL,
    ),
    Edit(
        "denials_of_lists_are_logged",
        f"{_STANDARD}authorize",
        "and action.log_if_denied",
        "",
        f"{_UNIT}test_the_audit_log_has_only_what_is_asked_for",
    ),
)
"""Bugs of an authorizer, and the tests that find them."""
