"""Faults of a secured cluster: each counts only if it took effect, and all of them end."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from jepsen.environments import AccessControl, Entrance, Rule
from jepsen.errors import ClusterError
from jepsen.generator.core import NEMESIS
from jepsen.history import Op, OpType
from jepsen.nemesis import Nemesis, SecurityFaults, _security
from jepsen.nemesis.faults import in_words, kind_struck
from jepsen.nemesis.plan import CERTIFICATE, HEAL, Fault, begin_of, end_of, performed
from tests.unit.jepsen.nemesis.test_nemesis import Cluster, op

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.req("J2", "S7")
READ, WRITE = Rule("topic", "jepsen", "read"), Rule("topic", "jepsen", "write")
COMMIT = Rule("group", "jepsen-readers", "read")
RULES = (READ, WRITE, COMMIT)


class Access(AccessControl):
    """Users and rules that only one broker has, which may be behind."""

    user, operator = "client", "operator"

    def __init__(self) -> None:
        self.held = {(self.user, rule) for rule in RULES}
        self.passwords = ["first"]
        self.reaches = True
        self.refusals = 0
        """How many changes are not acknowledged, though they may be made."""

    def entrance(self, user: str) -> Entrance:
        raise AssertionError(f"no client of {user} is needed")

    def _acknowledge(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ClusterError("nobody answers")

    async def set_password(self, user: str) -> None:
        self._acknowledge()
        self.passwords.append(f"{user}-{len(self.passwords)}")

    async def allow(self, user: str, rules: Sequence[Rule]) -> None:
        self._acknowledge()
        self.held |= {(user, rule) for rule in rules}

    async def revoke(self, user: str, rules: Sequence[Rule]) -> None:
        if self.reaches:
            self.held -= {(user, rule) for rule in rules}
        self._acknowledge()

    async def rules(self, broker_id: int | None = None) -> frozenset[tuple[str, Rule]]:
        del broker_id
        return frozenset(self.held)

    async def accepts(self, user: str, *, former: bool = False) -> bool | None:
        del user
        return not former or not self.reaches


class Secured(Cluster):
    """An environment with users, whose nodes take new certificates unless they are deaf."""

    def __init__(self) -> None:
        super().__init__()
        self.rights = Access()
        self.access = self.rights
        self.deaf: set[str] = set()
        self.certificates: dict[str, float | None] = {}

    async def inject(self, kind: str, nodes: Sequence[str], amount: float | None) -> bool:
        assert kind == CERTIFICATE
        self.certificates |= dict.fromkeys(set(nodes) - self.deaf, amount)
        return not self.deaf & set(nodes)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_security, "POLL_S", 0.001)
    monkeypatch.setattr(_security, "LATE_S", 0.001)
    monkeypatch.setattr(_security, "REACHES_S", 0.005)


@pytest.fixture
def cluster() -> Secured:
    return Secured()


@pytest.fixture
def nemesis(cluster: Secured) -> Nemesis:
    rng = random.Random(1)
    return Nemesis(cluster, rng, security=SecurityFaults(cluster, RULES, rng))


async def test_certificates_count_for_the_nodes_that_serve_them(
    cluster: Secured, nemesis: Nemesis
) -> None:
    cluster.deaf = {"broker-2"}
    authority, nodes = (await nemesis.invoke(op("renew-certificates", "all"))).value
    assert set(nodes) == {*cluster.controllers, *cluster.brokers} - {"broker-2"}
    assert cluster.certificates == dict.fromkeys(nodes, authority)
    assert authority in _security.AUTHORITIES
    assert (await nemesis.invoke(op("renew-certificates", [2, ["broker-2"]]))).value == []
    cluster.deaf = set()
    (_, one) = (await nemesis.invoke(op("renew-certificates", "one"))).value
    assert len(one) == 1
    asked = op("renew-certificates", [2, ["broker-1"]])
    assert (await nemesis.invoke(asked)).value == [2, ["broker-1"]]


async def test_an_authority_that_nobody_trusts_signs_nothing(
    cluster: Secured, nemesis: Nemesis
) -> None:
    done = await nemesis.invoke(op("renew-certificates", [3, ["broker-1"]]))
    assert done.value == []
    assert "authority 3; choose 1 or 2" in (done.error or "")
    assert cluster.certificates == {}


async def test_who_is_down_or_paused_gets_no_certificate(
    cluster: Secured, nemesis: Nemesis
) -> None:
    killed = (await nemesis.invoke(op("kill", ["broker-1"]))).value
    paused = (await nemesis.invoke(op("pause", ["broker-2"]))).value
    (_, nodes) = (await nemesis.invoke(op("renew-certificates", "all"))).value
    assert not {*killed, *paused} & set(nodes)
    assert len(nodes) == len([*cluster.controllers, *cluster.brokers]) - 2


async def test_a_password_counts_where_the_one_before_is_refused(
    cluster: Secured, nemesis: Nemesis
) -> None:
    assert (await nemesis.invoke(op("change-password", "clients"))).value == ["client"]
    assert cluster.rights.passwords[1:] == ["client-1"]
    cluster.rights.reaches = False
    assert (await nemesis.invoke(op("change-password", "clients"))).value == []


async def test_a_change_that_nobody_has_acknowledged_is_made_again_at_the_end(
    cluster: Secured, nemesis: Nemesis
) -> None:
    cluster.rights.refusals = 3
    failed = await nemesis.invoke(op("change-password", "clients"))
    assert (failed.value, failed.error) == ([], "nobody answers")
    healed = await nemesis.invoke(op(HEAL))
    assert healed.error is None
    assert cluster.rights.passwords == ["first", "client-1"]
    assert await nemesis.invoke(op(HEAL)) == healed
    assert cluster.rights.passwords == ["first", "client-1"]


async def test_what_may_come_late_is_made_good_although_a_later_change_was_acknowledged(
    cluster: Secured, nemesis: Nemesis
) -> None:
    cluster.rights.refusals = 1
    await nemesis.invoke(op("change-password", "clients"))
    await nemesis.invoke(op("change-password", "clients"))
    cluster.rights.held = set()
    await nemesis.invoke(op(HEAL))
    assert cluster.rights.passwords == ["first", "client-1", "client-2"]
    assert {rule for _, rule in cluster.rights.held} == set(RULES)


async def test_a_change_that_hangs_does_not_hold_up_other_faults(
    cluster: Secured, nemesis: Nemesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_security, "CHANGE_S", 0.01)
    monkeypatch.setattr(cluster.rights, "set_password", lambda _: asyncio.sleep(60))
    failed = await nemesis.invoke(op("change-password", "clients"))
    assert (failed.value, failed.error) == ([], "not done in 0.01 s")
    monkeypatch.undo()
    assert (await nemesis.invoke(op(HEAL))).error is None
    assert cluster.rights.passwords == ["first", "client-1"]


@pytest.mark.parametrize(
    ("wanted", "operations", "left"),
    [
        ("write", ["write"], {READ, COMMIT}),
        ("read", ["read"], {WRITE}),
        ("all", ["read", "write"], set()),
        (["write"], ["write"], {READ, COMMIT}),
    ],
)
async def test_rights_go_and_come_back(
    cluster: Secured,
    nemesis: Nemesis,
    wanted: str | list[str],
    operations: list[str],
    left: set[Rule],
) -> None:
    assert (await nemesis.invoke(op("revoke", wanted))).value == operations
    assert {rule for _, rule in cluster.rights.held} == left
    await nemesis.invoke(op("allow"))
    assert {rule for _, rule in cluster.rights.held} == set(RULES)


async def test_rights_that_no_broker_has_lost_are_no_fault(
    cluster: Secured, nemesis: Nemesis
) -> None:
    cluster.rights.reaches = False
    assert (await nemesis.invoke(op("revoke", "read"))).value == []
    assert (await nemesis.invoke(op("revoke", "delete"))).value == []


async def test_a_revocation_without_an_answer_is_undone_at_the_end(
    cluster: Secured, nemesis: Nemesis
) -> None:
    cluster.rights.refusals = 1
    assert (await nemesis.invoke(op("revoke", ["write"]))).value == []
    assert {rule for _, rule in cluster.rights.held} == {READ, COMMIT}
    cluster.rights.refusals = _security.HEALING_TRIES - 1
    assert (await nemesis.invoke(op(HEAL))).error is None
    assert {rule for _, rule in cluster.rights.held} == set(RULES)


async def test_an_end_that_cannot_be_made_whole_is_reported(
    cluster: Secured, nemesis: Nemesis
) -> None:
    await nemesis.invoke(op("revoke", "all"))
    cluster.rights.refusals = _security.HEALING_TRIES
    assert (await nemesis.invoke(op(HEAL))).error == "nobody answers"


async def test_a_cluster_that_is_not_secured_has_none_of_these_faults() -> None:
    nemesis = Nemesis(Cluster(), random.Random(1))
    for f, value in (
        ("renew-certificates", "all"),
        ("change-password", "clients"),
        ("revoke", "all"),
    ):
        assert (await nemesis.invoke(op(f, value))).value == []
    assert (await nemesis.invoke(op("allow"))).value is None


def test_what_struck_becomes_a_plan_and_its_operations() -> None:
    lines = [
        (1_000, "renew-certificates", [2, ["broker-1", "broker-3"]]),
        (2_000, "change-password", ["client"]),
        (3_000, "revoke", ["read", "write"]),
        (4_500, "allow", None),
        (5_000, "renew-certificates", []),
    ]
    history = [
        Op(2 * at + half, ms * 1_000_000, NEMESIS, kind, f, value)
        for at, (ms, f, value) in enumerate(lines)
        for half, kind in enumerate((OpType.INVOKE, OpType.INFO))
    ]
    certificate, password, revoke = performed(history)
    assert certificate == Fault(CERTIFICATE, 1_000, 0, ("broker-1", "broker-3"), 2.0)
    assert password == Fault("password", 2_000, 0, ("client",))
    assert revoke == Fault("revoke", 3_000, 1_500, ("read", "write"))
    begins = [
        (todo.f, todo.value)
        for one in (certificate, password, revoke)
        for todo in begin_of(one, [])
    ]
    assert begins == [(f, value) for _, f, value in lines[:3]]
    assert [(todo.f, todo.value) for todo in end_of(revoke, [])] == [("allow", None)]
    assert end_of(certificate, []) == end_of(password, []) == []
    struck = [kind_struck(one) for one in history if one.type is OpType.INFO]
    assert struck == ["certificates", "passwords", "rules", "", ""]
    assert in_words(history[1]) == "renew-certificates: broker-1, broker-3 by authority 2"


def test_a_planned_certificate_may_leave_nodes_to_the_nemesis() -> None:
    (todo,) = begin_of(Fault(CERTIFICATE, 0, 0, ("all",)), [])
    assert (todo.f, todo.value) == ("renew-certificates", "all")
