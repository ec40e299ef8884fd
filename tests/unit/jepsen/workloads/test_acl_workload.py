"""The workload of rules: what administrators do next, and what answers come to."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.protocol.admin import CreateAclsRequest_v1

from jepsen.cli.main import BAD_ARGUMENTS, run
from jepsen.core.spec import workloads_in
from jepsen.environments.access import acl_values
from jepsen.errors import ClusterError
from jepsen.generator.core import Context, Processes, Todo
from jepsen.history import Op, OpType
from jepsen.workloads.acl import (
    ADMINISTRATORS,
    Administration,
    access_of,
    codes,
    request_for,
    rules_of,
)

if TYPE_CHECKING:
    from jepsen.generator.core import Generator

pytestmark = pytest.mark.req("J3", "S4")
RULE = ("DENY", "User:t-anna", "READ", "TOPIC", "PREFIXED", "t-a")


def context() -> Context:
    return Context(0, (0,), Processes({0: 0}), random.Random(1))


def ended(generator: Generator, kind: OpType, f: str) -> Generator:
    return generator.updated(context(), Op(1, 1, 0, kind, f, list(RULE)))


def test_an_acknowledged_rule_is_removed_next_and_then_added() -> None:
    begun: Generator = Administration((RULE,))
    rng = random.Random(0)
    seen = []
    for _ in range(40):
        todo = _drawn(begun, rng)
        if todo.f != "reached":
            seen.append(todo.f)
            assert todo.value == list(RULE)
            begun = ended(begun, OpType.OK, todo.f)
    assert seen[:4] == ["add", "remove", "add", "remove"]


def test_a_rule_of_unknown_state_is_not_touched_again() -> None:
    begun = ended(Administration((RULE,)), OpType.INFO, "add")
    rng = random.Random(0)
    assert {_drawn(begun, rng).f for _ in range(40)} == {"reached"}
    refused = ended(Administration((RULE,)), OpType.FAIL, "add")
    assert {_drawn(refused, rng).f for _ in range(40)} == {"reached", "add"}


def _drawn(generator: Generator, rng: random.Random) -> Todo:
    found = generator.next_op(Context(0, (0,), Processes({0: 0}), rng))
    assert found is not None
    assert isinstance(found[0], Todo)
    return found[0]


def test_each_administrator_has_rules_of_its_own() -> None:
    rules = rules_of("t")
    assert len(set(rules)) == len(rules) > 20
    kinds = {(one[0], one[4]) for one in rules}
    assert kinds == {(a, b) for a in ("ALLOW", "DENY") for b in ("LITERAL", "PREFIXED")}
    assert any(one[5] == "*" for one in rules)
    assert ADMINISTRATORS == 2


def test_a_rule_is_sent_with_the_codes_of_the_protocol() -> None:
    assert acl_values(*RULE) == (2, "t-a", 4, "User:t-anna", "*", 3, 2)
    assert CreateAclsRequest_v1([acl_values(*RULE)]).encode()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"creation_responses": [(0, None)]}, [0]),
        ({"filter_responses": [(0, None, [(0, None), (41, "not now")])]}, [0, 0, 41]),
        ({"filter_responses": [(54, "no authorizer", [])]}, [54]),
    ],
)
def test_each_error_of_an_answer_counts(answer: dict[str, Any], expected: list[int]) -> None:
    assert list(codes(SimpleNamespace(**answer))) == expected


@pytest.mark.parametrize(
    ("operation", "kind", "api_key"),
    [("WRITE", "TOPIC", 0), ("READ", "TOPIC", 1), ("DESCRIBE", "TOPIC", 3), ("READ", "GROUP", 8)],
)
def test_a_right_is_needed_by_a_request(operation: str, kind: str, api_key: int) -> None:
    assert api_key == request_for(operation, kind, "t-a", "t").API_KEY


def test_it_needs_a_cluster_whose_clients_log_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["test", "acl", "--env", "sim"]) == BAD_ARGUMENTS
    assert "acl: its clients must log in; use --security SASL_PLAINTEXT" in capsys.readouterr().err
    assert run(["test", "set", "--env", "sim", "--security", "SASL_PLAINTEXT"]) == BAD_ARGUMENTS
    assert "acl" in workloads_in("sim", "SASL_PLAINTEXT")
    assert "acl" not in (*workloads_in("sim"), *workloads_in("external"))
    without: Any = SimpleNamespace(access=None)
    with pytest.raises(ClusterError, match="nobody logs in"):
        access_of(without)
