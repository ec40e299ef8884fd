"""Delegation tokens against a model: three lists of what may be done, and by whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from raftctl.errors import ErrorCode
from raftctl.metadata.requests.security import (
    CreateDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.unit.raftctl.controller.cluster import WALL_MS
from tests.unit.raftctl.controller.test_tokens import CHECK_MS, EXPIRY_MS, MAX_MS, ask, new_cluster

USERS = st.sampled_from(["a", "b", "c"])
PERIODS = st.sampled_from([-1, 0, 1, 500, EXPIRY_MS, MAX_MS, 2 * MAX_MS])


@dataclass
class Token:
    """A token as its users believe that it is; times from the begin of the test."""

    hmac: bytes = field(repr=False)
    who: set[str]
    ends: int
    expires: int


class TokenMachine(RuleBasedStateMachine):
    """Users create, renew and end tokens while time passes and controllers fail."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = new_cluster()
        self.known: dict[str, Token] = {}
        """Every token that was created and not ended, also if it is over."""
        self.ended: list[bytes] = []

    @property
    def now(self) -> int:
        return self.cluster.now_ms

    @rule(who=USERS, owner=st.none() | USERS, renewers=st.lists(USERS, max_size=2), life=PERIODS)
    def create(self, who: str, owner: str | None, renewers: list[str], life: int) -> None:
        named = tuple(("User", one) for one in renewers)
        request = CreateDelegationTokenRequest(
            None if owner is None else ("User", owner), named, life
        )
        made = ask(self.cluster, request, f"User:{who}")
        assert made.error == ErrorCode.NONE
        ends = self.now + (min(life, MAX_MS) if life > 0 else MAX_MS)
        allowed = {owner or who, *renewers}
        token = Token(made.hmac, allowed, ends, min(ends, self.now + EXPIRY_MS))
        assert (made.max_ms - WALL_MS, made.expires_ms - WALL_MS) == (ends, token.expires)
        assert made.token_id not in self.known
        self.known[made.token_id] = token

    @rule(data=st.data(), who=USERS, period=PERIODS)
    def renew(self, data: Any, who: str, period: int) -> None:
        if not self.known:
            return
        token = self.known[data.draw(st.sampled_from(sorted(self.known)))]
        found = ask(self.cluster, RenewDelegationTokenRequest(token.hmac, period), f"User:{who}")
        if found.error == ErrorCode.DELEGATION_TOKEN_NOT_FOUND:
            assert token.expires < self.now, "only a token that is over is removed by itself"
        elif token.expires < self.now:
            assert found.error == ErrorCode.DELEGATION_TOKEN_EXPIRED
        elif who not in token.who:
            assert found.error == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        else:
            prolonged = min(period, EXPIRY_MS) if period > 0 else EXPIRY_MS
            token.expires = min(token.ends, self.now + prolonged)
            assert found.expires_ms - WALL_MS == token.expires

    @rule(data=st.data(), who=USERS, period=PERIODS)
    def expire(self, data: Any, who: str, period: int) -> None:
        if not self.known:
            return
        token_id = data.draw(st.sampled_from(sorted(self.known)))
        token = self.known[token_id]
        found = ask(self.cluster, ExpireDelegationTokenRequest(token.hmac, period), f"User:{who}")
        if found.error == ErrorCode.DELEGATION_TOKEN_NOT_FOUND:
            assert token.expires < self.now
        elif who not in token.who:
            assert found.error == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        elif period < 0:
            assert found.expires_ms - WALL_MS == self.now
            del self.known[token_id]
            self.ended.append(token.hmac)
        elif token.expires < self.now:
            assert found.error == ErrorCode.DELEGATION_TOKEN_EXPIRED
        else:
            token.expires = min(token.ends, self.now + period)
            assert found.expires_ms - WALL_MS == token.expires

    @rule(data=st.data(), who=USERS)
    def use_an_ended_one(self, data: Any, who: str) -> None:
        if self.ended:
            given = data.draw(st.sampled_from(self.ended))
            found = ask(self.cluster, RenewDelegationTokenRequest(given, -1), f"User:{who}")
            assert found.error == ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    @rule(elapsed=st.sampled_from([1, 2, 600, CHECK_MS, EXPIRY_MS, MAX_MS]))
    def wait(self, elapsed: int) -> None:
        self.cluster.tick(self.now + elapsed)

    @rule()
    def fail_over(self) -> None:
        image = self.cluster.image
        self.cluster.controller.renounce()
        self.cluster.claim(image)

    @invariant()
    def what_is_valid_is_there_as_its_users_know_it(self) -> None:
        tokens = self.cluster.image.tokens
        assert set(tokens) <= set(self.known)
        for token_id, token in self.known.items():
            if token.expires >= self.now:
                assert tokens[token_id].expires_ms - WALL_MS == token.expires
            elif token_id in tokens:
                age = self.now - token.expires
                assert age <= CHECK_MS + 1, "a token that is over is removed at the next check"


@pytest.mark.req("S3")
def test_random_requests_about_tokens() -> None:
    budget = settings(max_examples=60, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(TokenMachine, settings=budget)
