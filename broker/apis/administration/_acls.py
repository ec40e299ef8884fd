"""DescribeAcls (from this broker's image), CreateAcls and DeleteAcls (KIP-290).

SECURITY_DISABLED where no authorizer enforces rules: an operator who adds one must not believe
that it protects anything.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from broker.apis.administration._forwarding import ask, forward, result_of
from broker.apis.handler import authorization
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import (
    ANY,
    KAFKA_RESOURCE_TYPES,
    Operation,
    PatternType,
    ResourceType,
    matches,
)
from raftctl.metadata.requests.admin import ItemOutcome
from raftctl.metadata.requests.security import (
    AclBinding,
    AclFilter,
    CreateAclsRequest,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import security as wire
    from raftctl.metadata.records import AccessControlEntryRecord

_TIMEOUT_MS = 30_000
"""The requests name none."""


def _check_enforced(context: ApiContext) -> None:
    if context.authorizer is None:
        text = "No Authorizer is configured: rules of access would protect nothing"
        raise KafkaError(ErrorCode.SECURITY_DISABLED, text)


def handle_describe(
    context: ApiContext, request: Request[wire.DescribeAclsRequest]
) -> wire.DescribeAclsResponse:
    """Answer with the rules that match, by resource."""
    _check_enforced(context)
    authorization.require(context, request, Operation.DESCRIBE, ResourceType.CLUSTER)
    wanted = _filter(request.body)
    rules = context.metadata.image.acls.values()
    found = sorted((rule for rule in rules if matches(wanted, rule)), key=_order)
    return {
        "error_code": ErrorCode.NONE,
        "resources": [
            {
                "resource_type": kind,
                "resource_name": name,
                "pattern_type": pattern,
                "acls": [_rule(one) for one in group],
            }
            for (kind, name, pattern), group in groupby(found, key=_resource)
        ],
    }


def _resource(rule: AccessControlEntryRecord) -> tuple[int, str, int]:
    return rule.resource_type, rule.resource_name, rule.pattern_type


def _order(rule: AccessControlEntryRecord) -> tuple[Any, ...]:
    # By resource first: a resource stands once in the answer, with all its rules.
    return (*_resource(rule), rule.principal, rule.host, rule.operation, rule.permission_type)


def _rule(rule: AccessControlEntryRecord) -> wire.AclDescription:
    return {
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation,
        "permission_type": rule.permission_type,
    }


def _filter(body: wire.DescribeAclsRequest | wire.DeleteAclsFilter) -> AclFilter:
    # Version 0 knows literal names alone; prefixes came with KIP-290.
    return AclFilter(
        _resource_type(body["resource_type_filter"]),
        body["resource_name_filter"],
        body.get("pattern_type_filter", PatternType.LITERAL),
        body["principal_filter"],
        body["host_filter"],
        body["operation"],
        body["permission_type"],
    )


def _resource_type(number: int) -> int:
    """Return a type of the request; 0, which is none, unless Kafka has it: rules on keys are not
    for Kafka's clients, which could not read them."""
    return number if number == ANY or number in KAFKA_RESOURCE_TYPES else 0


async def handle_create(
    context: ApiContext, request: Request[wire.CreateAclsRequest]
) -> wire.CreateAclsResponse:
    """Add each rule on its own (KIP-140)."""
    _check_enforced(context)
    bindings = tuple(map(_binding, request.body["creations"]))
    outcomes = await forward(context, request, CreateAclsRequest(bindings), _TIMEOUT_MS)
    return {"results": [{**result_of(outcome)} for outcome in outcomes]}


def _binding(one: wire.AclCreation) -> AclBinding:
    return AclBinding(
        _resource_type(one["resource_type"]),
        one["resource_name"],
        one.get("resource_pattern_type", PatternType.LITERAL),
        one["principal"],
        one["host"],
        one["operation"],
        one["permission_type"],
    )


async def handle_delete(
    context: ApiContext, request: Request[wire.DeleteAclsRequest]
) -> wire.DeleteAclsResponse:
    """Remove the rules that match each filter (KIP-140)."""
    _check_enforced(context)
    delete = DeleteAclsRequest(tuple(map(_filter, request.body["filters"])))
    response = await ask(context, request, delete, DeleteAclsResponse, _TIMEOUT_MS)
    return {
        "filter_results": [
            {
                **result_of(ItemOutcome(one.error, one.message)),
                "matching_acls": [_matching(rule) for rule in one.bindings],
            }
            for one in response.results
        ]
    }


def _matching(rule: AclBinding) -> wire.DeleteAclsMatchingAcl:
    return {
        "resource_type": rule.resource_type,
        "resource_name": rule.resource_name,
        "pattern_type": rule.pattern_type,
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation,
        "permission_type": rule.permission_type,
    }
