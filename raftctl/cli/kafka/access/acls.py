"""`raftctl acls`: who may do what with which resources (row C12; KIP-11, KIP-290)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._arguments import parse_principal
from raftctl.cli._options import CommandGroup
from raftctl.cli.kafka.admin import Cluster
from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

app = CommandGroup("Lists, adds and removes the rules of access control.")

CLUSTER_NAME = "kafka-cluster"
"""What the one resource of its kind is called."""
ANY_HOST = "*"


class Operation(enum.StrEnum):
    """What a rule is about, named as Apache Kafka's tools name it."""

    ALL = "All"
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"


class Pattern(enum.StrEnum):
    """How a resource's name is meant."""

    LITERAL = "literal"
    PREFIXED = "prefixed"
    MATCH = "match"
    ANY = "any"


Names = list[str] | None
Resource = tuple[str, str | None]
"""(kind, name): the kind as the library names it; None is any name."""
Person = tuple[str | None, str | None, str]
"""(principal, host, ALLOW or DENY or ANY); None is any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What rules are about."""

    topic: Annotated[Names, typer.Option(metavar="NAME", help="A topic; `*`: all.")] = None
    group: Annotated[Names, typer.Option(metavar="NAME", help="A consumer group; `*`: all.")] = None
    transactional_id: Annotated[
        Names, typer.Option(metavar="NAME", help="A transactional id; `*`: all.")
    ] = None
    is_cluster: Annotated[bool, typer.Option("--cluster", help="The cluster as a whole.")] = False

    def named(self) -> list[Resource]:
        """The resources that are named."""
        options = (
            ("TOPIC", self.topic),
            ("GROUP", self.group),
            ("TRANSACTIONAL_ID", self.transactional_id),
        )
        found: list[Resource] = [(kind, name) for kind, names in options for name in names or ()]
        # The library's name for the kind that is 4 in the protocol.
        return [*found, *([("BROKER", CLUSTER_NAME)] if self.is_cluster else [])]

    def some(self) -> list[Resource]:
        """The resources that are named; ConfigError if none is."""
        found = self.named()
        if not found:
            raise ConfigError("name a resource: --topic, --group, --transactional-id or --cluster")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Principals:
    """The principals that rules allow or deny."""

    allow_principal: Annotated[
        Names,
        typer.Option(
            "--allow-principal", metavar="User:NAME", help="Principal to allow; `User:*`: all."
        ),
    ] = None
    allow_host: Annotated[
        Names,
        typer.Option(
            "--allow-host", metavar="ADDRESS", help="Address to allow it from; default: any."
        ),
    ] = None
    deny_principal: Annotated[
        Names, typer.Option("--deny-principal", metavar="User:NAME", help="Principal to deny.")
    ] = None
    deny_host: Annotated[
        Names,
        typer.Option(
            "--deny-host", metavar="ADDRESS", help="Address to deny it from; default: any."
        ),
    ] = None

    def each(self, any_host: str | None = ANY_HOST) -> list[Person]:
        """Each principal with each host; ConfigError for hosts of nobody, a wrong principal."""
        found: list[Person] = []
        for word, principals, hosts in (
            ("allow", self.allow_principal, self.allow_host),
            ("deny", self.deny_principal, self.deny_host),
        ):
            if hosts and not principals:
                raise ConfigError(
                    f"--{word}-host: name a --{word}-principal, too; User:* is anybody"
                )
            for one in principals or ():
                parse_principal(f"--{word}-principal", one)
            from_where: Sequence[str | None] = hosts or (any_host,)
            pairs = product(principals or (), from_where)
            found += [(who, host, word.upper()) for who, host in pairs]
        return found


PatternOption = Annotated[
    Pattern,
    typer.Option(
        "--resource-pattern-type",
        metavar="literal|prefixed",
        help="`prefixed`: all resources whose names begin with the name.",
    ),
]
FilterPatternOption = Annotated[
    Pattern,
    typer.Option(
        "--resource-pattern-type",
        metavar="literal|prefixed|match|any",
        help="`match`: rules of every kind that apply to the name.",
    ),
]
OperationOption = Annotated[
    list[Operation] | None,
    typer.Option(
        "--operation",
        metavar="NAME",
        case_sensitive=False,
        help=f"One of {', '.join(Operation)}; may be repeated.",
    ),
]
COLUMNS = ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")


@app.command(name="list")
def list_rules(
    cluster: Cluster,
    resources: Resources,
    resource_pattern_type: FilterPatternOption = Pattern.ANY,
    principal: Annotated[
        Names, typer.Option(metavar="User:NAME", help="Only rules for this principal.")
    ] = None,
) -> None:
    """Lists the rules, all of them if nothing is named."""
    people: list[Person] = [(one, None, "ANY") for one in principal or (None,)]
    named = resources.named() or [("ANY", None)]
    filters = _filters(named, resource_pattern_type, people, None)
    _print(cluster, _matching(cluster, filters))


@app.command()
def add(
    cluster: Cluster,
    resources: Resources,
    *,
    resource_pattern_type: PatternOption = Pattern.LITERAL,
    principals: Principals,
    operation: OperationOption = None,
) -> None:
    """Adds rules. There is one for each combination of the resources, principals, hosts and
    operations named."""
    persons = principals.each()
    named = resources.some()
    if not persons:
        raise ConfigError("name a principal: --allow-principal or --deny-principal User:NAME")
    if not operation:
        raise ConfigError("name an operation: --operation, once or more")
    if resource_pattern_type not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise ConfigError("--resource-pattern-type: a rule is either literal or prefixed")
    rules = [_rule(*one) for one in product(named, [resource_pattern_type], persons, operation)]
    futures = cluster.client.create_acls(rules, request_timeout=cluster.timeout)
    for future in futures.values():
        cluster.wait(future)
    _print(cluster, rules)


@app.command()
def remove(
    cluster: Cluster,
    resources: Resources,
    *,
    resource_pattern_type: FilterPatternOption = Pattern.LITERAL,
    principals: Principals,
    operation: OperationOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Shows the rules that would go; changes nothing.")
    ] = False,
) -> None:
    """Removes rules and shows them. A principal or operation that is not named is any."""
    named = resources.some()
    persons = principals.each(any_host=None) or [(None, None, "ANY")]
    filters = _filters(named, resource_pattern_type, persons, operation)
    if dry_run:
        _print(cluster, _matching(cluster, filters))
        return
    futures = cluster.client.delete_acls(filters, request_timeout=cluster.timeout)
    _print(cluster, [rule for one in futures.values() for rule in cluster.wait(one)])


# --- rules ----------------------------------------------------------------------------------------


def _filters(
    resources: Iterable[Resource],
    pattern: Pattern,
    people: Iterable[Person],
    operations: Sequence[Operation] | None,
) -> list[Any]:
    from confluent_kafka.admin._acl import AclBindingFilter, AclOperation, AclPermissionType
    from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

    names = [one.name for one in operations or ()] or ["ANY"]
    # The library takes None for any, though it is typed otherwise.
    make: Any = AclBindingFilter
    return [
        make(
            ResourceType[kind],
            name,
            ResourcePatternType[pattern.name],
            principal,
            host,
            AclOperation[operation],
            AclPermissionType[permission],
        )
        for (kind, name), (principal, host, permission), operation in product(
            resources, people, names
        )
    ]


def _rule(resource: Resource, pattern: Pattern, person: Person, operation: Operation) -> Any:
    from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
    from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

    (kind, name), (principal, host, permission) = resource, person
    make: Any = AclBinding
    return make(
        ResourceType[kind],
        name,
        ResourcePatternType[pattern.name],
        principal,
        host,
        AclOperation[operation.name],
        AclPermissionType[permission],
    )


# --- what is shown --------------------------------------------------------------------------------


def _matching(cluster: Cluster, filters: Iterable[Any]) -> list[Any]:
    """The rules that any of the filters means, each once."""
    answers = [
        cluster.client.describe_acls(one, request_timeout=cluster.timeout) for one in filters
    ]
    found = list(dict.fromkeys(rule for one in answers for rule in cluster.wait(one)))
    if not found:
        _require_rules(cluster)
    return found


def _require_rules(cluster: Cluster) -> None:
    """KafkaError if the cluster keeps no rules: librdkafka shows that as if there were none."""
    from kafka import admin

    nothing = admin.ACLFilter(
        "nobody",
        None,
        admin.ACLOperation.ANY,
        admin.ACLPermissionType.ANY,
        admin.ResourcePatternFilter(admin.ResourceType.ANY, None, admin.ACLResourcePatternType.ANY),
    )
    with cluster.open() as client:
        client.describe_acls(nothing)


def _print(cluster: Cluster, rules: Iterable[Any]) -> None:
    found = sorted((_document(one) for one in rules), key=lambda one: list(one.values()))
    cluster.show_rows(COLUMNS, found, "no such rule")


def _document(rule: Any) -> dict[str, str]:
    kind = rule.restype.name
    return {
        "resource_type": "cluster" if kind == "BROKER" else kind.lower().replace("_", "-"),
        "resource_name": rule.name,
        "pattern_type": rule.resource_pattern_type.name.lower(),
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation.name.title().replace("_", ""),
        "permission": rule.permission_type.name.lower(),
    }
