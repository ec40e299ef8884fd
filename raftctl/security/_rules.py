"""An index of rules: which of them are for a resource, and what they say of a subject.

Each resource type has its rules by the name of their resource: literal names in one dict, prefixes
in one dict for each length. So a question costs as many look-ups as prefixes have lengths, two for
the literal name and the wildcard, and a few for the subject, however many rules there are.

Clusters have millions of rules, so a rule is a bit: one integer has all operations that a subject
is allowed or denied on a resource. Subjects without a host of their own are their principal's text.

Whether something of a type is allowed is asked without a resource. For it each subject has the
names of the resources that its rules allow something on.

Sources: Apache Kafka's StandardAuthorizer; KIP-290 (prefixes), KIP-679 (questions by type).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from raftctl.errors import invariant
from raftctl.metadata.acls import WILDCARD, Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from raftctl.metadata.records import AccessControlEntryRecord

Subject = str | tuple[str, str]
"""The principal of a rule, or the principal and the host if the rule names a host."""
EVERYBODY = "User:*"
"""The principal of rules for all principals, of whatever type."""

_LITERAL, _PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
_DENY_SHIFT = 16
"""Distance of the bit that denies an operation from the bit that allows it."""
_BITS: dict[int, list[int]] = {
    Permission.ALLOW: [1 << number for number in range(max(Operation) + 1)],
    Permission.DENY: [1 << number + _DENY_SHIFT for number in range(max(Operation) + 1)],
}
"""Permission to the bit of each operation by its number. The integers are shared by all rules."""
_ALL_ALLOWED = (1 << _DENY_SHIFT) - 1
_IMPLIED_BY: dict[Operation, tuple[Operation, ...]] = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""Operation to those that allow it too. To deny one denies no other."""


def _bits(permission: Permission, *operations: Operation) -> int:
    return sum(_BITS[permission][one] for one in operations)


_NAMED = {one: _bits(Permission.ALLOW, *{one, Operation.ALL}) for one in Operation}
"""Operation to the bits that allow it by its own name, or as one of all."""
_ALLOWING = {
    one: bits | _bits(Permission.ALLOW, *_IMPLIED_BY.get(one, ())) for one, bits in _NAMED.items()
}
_DENYING = {one: bits << _DENY_SHIFT for one, bits in _NAMED.items()}


class Match(NamedTuple):
    """The rule that has decided."""

    resource_type: ResourceType
    pattern_type: PatternType
    resource_name: str
    subject: Subject
    bits: int
    """Of the operations; rules that say the same of other operations may be among them."""

    def __str__(self) -> str:
        principal, host = (
            (self.subject, WILDCARD) if isinstance(self.subject, str) else self.subject
        )
        denies = self.bits > _ALL_ALLOWED
        number = (self.bits >> _DENY_SHIFT if denies else self.bits).bit_length() - 1
        return (
            f"{'DENY' if denies else 'ALLOW'} {principal} {Operation(number).name} from {host} on "
            f"{self.resource_type.name}:{self.pattern_type.name}:{self.resource_name}"
        )


class Decision(NamedTuple):
    """Whether something is allowed, and the rule or the reason."""

    allowed: bool
    because: Match | str


class _OneSubject(NamedTuple):
    """The rules of a resource that has them for one subject: a third of what a dict takes."""

    subject: Subject
    mask: int

    def get(self, subject: Subject, default: int) -> int:
        """Return the bits of a subject, as a dict would."""
        return self.mask if subject == self.subject else default


_Rules = dict[Subject, int] | _OneSubject
"""Subject to what it is allowed and denied on one resource, a bit each."""
_NO_RULES: dict[Subject, int] = {}


class RuleIndex:
    """The rules of an image. Rules are added and removed one by one."""

    def __init__(self, rules: Iterable[AccessControlEntryRecord] = ()) -> None:
        self._types = {int(one): _TypeIndex(one) for one in ResourceType}
        self._copies: dict[tuple[Any, ...], int] = {}
        """Rules that another entry has too, to the number of further entries."""
        self._count = 0
        for rule in rules:
            self.add(rule)

    def __len__(self) -> int:
        return self._count

    def add(self, rule: AccessControlEntryRecord) -> None:
        """Add a rule; an equal one under another id counts."""
        if not self._types[rule.resource_type].add(rule):
            same = _fields(rule)
            self._copies[same] = self._copies.get(same, 0) + 1
        self._count += 1

    def remove(self, rule: AccessControlEntryRecord) -> None:
        """Remove a rule that was added."""
        same = _fields(rule) if self._copies else ()
        further = self._copies.get(same, 0)
        if further > 1:
            self._copies[same] = further - 1
        elif further == 1:
            del self._copies[same]
        else:
            self._types[rule.resource_type].remove(rule)
        self._count -= 1

    def decide(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> Decision | None:
        """Return what the rules of the resource say; None if it has no rule at all."""
        return self._types[resource_type].decide(_subjects(principal, host), operation, name)

    def decide_prefix(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        prefix: str,
    ) -> Decision | None:
        """Return what the rules say of all names with a prefix; None if none has a rule."""
        subjects = _subjects(principal, host)
        return self._types[resource_type].decide_prefix(subjects, operation, prefix)

    def decide_by_type(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> Match | None:
        """Return a rule by which the operation is allowed on some resource of the type."""
        return self._types[resource_type].some_allowed(_subjects(principal, host), operation)

    def rules(self) -> Iterator[tuple[int, int, str, Subject, int]]:
        """Return type, pattern type, name, subject and bits of all that it holds; for tests."""
        for number, of_type in self._types.items():
            for pattern_type, name, rules in of_type.resources():
                items = rules.items() if isinstance(rules, dict) else [rules]
                yield from ((number, pattern_type, name, *item) for item in items)


class _TypeIndex:
    """The rules for resources of one type."""

    __slots__ = ("_allowed", "_literal", "_masks", "_prefixes", "_type")

    def __init__(self, resource_type: ResourceType) -> None:
        self._type = resource_type
        self._literal: dict[str, _Rules] = {}
        self._prefixes: dict[int, dict[str, _Rules]] = {}
        """Length to the prefixes of that length; a length without any is absent."""
        self._allowed: dict[tuple[Subject, int, int], str | set[str]] = {}
        """(subject, operation, pattern type) to the names on which a rule allows it."""
        self._masks: dict[int, int] = {}
        """Each combination of bits, so that equal ones are one object."""

    def add(self, rule: AccessControlEntryRecord) -> bool:
        """Add a rule; False if it is there."""
        name, operation = rule.resource_name, rule.operation
        subject = _subject(rule)
        bit = _BITS[rule.permission_type][operation]
        if rule.pattern_type == _LITERAL:
            names = self._literal
        else:
            names = self._prefixes.setdefault(len(name), {})
        rules = names.get(name)
        if rules is None:
            names[name] = _OneSubject(subject, bit)
        else:
            mask = rules.get(subject, 0)
            if mask & bit:
                return False
            names[name] = _changed(rules, subject, self._shared(mask | bit))
        if bit <= _ALL_ALLOWED:
            self._allow((subject, operation, rule.pattern_type), name)
        return True

    def remove(self, rule: AccessControlEntryRecord) -> None:
        """Remove a rule; nothing is left of a resource or a length without rules."""
        name, length = rule.resource_name, len(rule.resource_name)
        subject = _subject(rule)
        bit = _BITS[rule.permission_type][rule.operation]
        literal = rule.pattern_type == _LITERAL
        names = self._literal if literal else self._prefixes.get(length, {})
        rules = names.get(name, _NO_RULES)
        mask = rules.get(subject, 0)
        invariant(mask & bit > 0, "a rule that is removed was added")
        left = _changed(rules, subject, self._shared(mask & ~bit))
        if left:
            names[name] = left
        else:
            del names[name]
            if not names and not literal:
                del self._prefixes[length]
        if bit <= _ALL_ALLOWED:
            self._disallow((subject, rule.operation, rule.pattern_type), name)

    def _shared(self, mask: int) -> int:
        return self._masks.setdefault(mask, mask)

    def _allow(self, key: tuple[Subject, int, int], name: str) -> None:
        names = self._allowed.setdefault(key, name)
        if isinstance(names, set):
            names.add(name)
        elif names != name:
            self._allowed[key] = {names, name}

    def _disallow(self, key: tuple[Subject, int, int], name: str) -> None:
        names = self._allowed[key]
        if isinstance(names, set):
            names.remove(name)
        if names == name or not names:
            del self._allowed[key]

    def resources(self) -> Iterator[tuple[PatternType, str, _Rules]]:
        """Return all resources that have rules, with them."""
        for name, rules in self._literal.items():
            yield _LITERAL, name, rules
        for names in self._prefixes.values():
            for name, rules in names.items():
                yield _PREFIXED, name, rules

    def _matching(self, name: str) -> Iterator[tuple[PatternType, str, _Rules]]:
        """Return the patterns that match a resource's name, with their rules."""
        for pattern in (name, WILDCARD):
            if (rules := self._literal.get(pattern)) is not None:
                yield _LITERAL, pattern, rules
        # A name shorter than the length is no prefix of it: it is not in that length's dict.
        for length, names in self._prefixes.items():
            if (rules := names.get(name[:length])) is not None:
                yield _PREFIXED, name[:length], rules

    def decide(
        self, subjects: Sequence[Subject], operation: Operation, name: str
    ) -> Decision | None:
        """Return what the rules of a resource say of the subjects: one that denies wins."""
        return self._decide(self._matching(name), subjects, operation)

    def decide_prefix(
        self, subjects: Sequence[Subject], operation: Operation, prefix: str
    ) -> Decision | None:
        """Return what the rules say of all names with a prefix.

        One rule must allow all of them, and none may deny any of them.
        """
        decision = self._decide(self._covering(prefix), subjects, operation)
        denying = _DENYING[operation]
        for pattern_type, pattern, rules in self._within(prefix):
            decision = decision or _NOTHING_ALLOWS
            for subject in subjects:
                if denied := rules.get(subject, 0) & denying:
                    return Decision(False, self._match(pattern_type, pattern, subject, denied))
        return decision

    def _covering(self, prefix: str) -> Iterator[tuple[PatternType, str, _Rules]]:
        """Return the patterns that match each name with a prefix, with their rules."""
        if (rules := self._literal.get(WILDCARD)) is not None:
            yield _LITERAL, WILDCARD, rules
        for length, names in self._prefixes.items():
            if (rules := names.get(prefix[:length])) is not None:
                yield _PREFIXED, prefix[:length], rules

    def _within(self, prefix: str) -> Iterator[tuple[PatternType, str, _Rules]]:
        """Return the patterns that match some of the names with a prefix and not others."""
        for name, rules in self._literal.items():
            if name != WILDCARD and name.startswith(prefix):
                yield _LITERAL, name, rules
        for length, names in self._prefixes.items():
            if length > len(prefix):
                for name, rules in names.items():
                    if name.startswith(prefix):
                        yield _PREFIXED, name, rules

    def _decide(
        self,
        patterns: Iterable[tuple[PatternType, str, _Rules]],
        subjects: Sequence[Subject],
        operation: Operation,
    ) -> Decision | None:
        allowing, denying = _ALLOWING[operation], _DENYING[operation]
        decision: Decision | None = None
        for pattern_type, pattern, rules in patterns:
            decision = decision or _NOTHING_ALLOWS
            for subject in subjects:
                mask = rules.get(subject, 0)
                if denied := mask & denying:
                    return Decision(False, self._match(pattern_type, pattern, subject, denied))
                if mask & allowing and not decision.allowed:
                    match = self._match(pattern_type, pattern, subject, mask & allowing)
                    decision = Decision(True, match)
        return decision

    def some_allowed(self, subjects: Sequence[Subject], operation: Operation) -> Match | None:
        """Return a rule that allows the operation on some resource, and that no other denies.

        An operation that another implies does not count, as in Apache Kafka: who asks for WRITE on
        some topic, or READ, means that operation.
        """
        allowing, denying = _NAMED[operation], _DENYING[operation]
        everything = self._literal.get(WILDCARD, _NO_RULES)
        if _has(everything, subjects, denying):
            return None
        for subject in subjects:
            if granted := everything.get(subject, 0) & allowing:
                return self._match(_LITERAL, WILDCARD, subject, granted)
        for subject in subjects:
            for one in {operation, Operation.ALL}:
                for pattern_type in (_LITERAL, _PREFIXED):
                    names = self._allowed.get((subject, one, pattern_type), ())
                    for name in (names,) if isinstance(names, str) else names:
                        if not self._is_dominated(pattern_type, name, subjects, denying):
                            bit = _BITS[Permission.ALLOW][one]
                            return self._match(pattern_type, name, subject, bit)
        return None

    def _is_dominated(
        self, pattern_type: PatternType, name: str, subjects: Sequence[Subject], denying: int
    ) -> bool:
        """Return whether everything that a pattern matches is denied by one other rule."""
        if pattern_type == _LITERAL and _has(self._literal[name], subjects, denying):
            return True
        for length, names in self._prefixes.items():
            rules = names.get(name[:length])
            if rules is not None and _has(rules, subjects, denying):
                return True
        return False

    def _match(self, pattern_type: PatternType, name: str, subject: Subject, bits: int) -> Match:
        return Match(self._type, pattern_type, name, subject, bits)


_NOTHING_ALLOWS = Decision(False, "no rule of the resource allows it")


def _subject(rule: AccessControlEntryRecord) -> Subject:
    return rule.principal if rule.host == WILDCARD else (rule.principal, rule.host)


def _subjects(principal: str, host: str) -> tuple[Subject, ...]:
    """Return the subjects whose rules are for a requester."""
    return principal, (principal, host), EVERYBODY, (EVERYBODY, host)


def _changed(rules: _Rules, subject: Subject, mask: int) -> _Rules:
    """Return the rules with another mask of the subject; a mask of 0 is absent."""
    if isinstance(rules, _OneSubject):
        if rules.subject == subject:
            return _OneSubject(subject, mask) if mask else _NO_RULES
        return {rules.subject: rules.mask, subject: mask}
    if mask:
        rules[subject] = mask
        return rules
    del rules[subject]
    return _OneSubject(*next(iter(rules.items()))) if len(rules) == 1 else rules


def _has(rules: _Rules, subjects: Sequence[Subject], bits: int) -> bool:
    said = 0
    for subject in subjects:
        said |= rules.get(subject, 0)
    return said & bits > 0


def _fields(rule: AccessControlEntryRecord) -> tuple[Any, ...]:
    """Return what the rule says, without its id."""
    return (
        rule.resource_type,
        rule.resource_name,
        rule.pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )
