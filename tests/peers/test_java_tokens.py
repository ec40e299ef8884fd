"""Delegation tokens by Apache Kafka's own tool, and Java's clients that log in with one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.peers.jvm import ACLS, TOKENS, JavaClient
from tests.peers.protected_node import ALICE, MALLORY, SASL
from tests.peers.tools import INSTALL_TIMEOUT_S

if TYPE_CHECKING:
    from tests.peers.protected_node import Place

TOPIC = "java-token"
START_S = 120
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

pytestmark = [
    pytest.mark.req("N1", "S3"),
    pytest.mark.timeout(INSTALL_TIMEOUT_S + START_S),
    pytest.mark.xdist_group("java_security"),
]


def words(out: str) -> list[list[str]]:
    """The lines of the tool's table: the third word of each is the owner of a token."""
    lines = [line.split() for line in out.splitlines()]
    return [line for line in lines if len(line) > 2 and line[2].startswith("User:")]


def bearer(
    place: Place, token_id: str, hmac: str, *actions: str, mechanism: str = "SCRAM-SHA-512"
) -> dict[str, Any]:
    """What a client comes to that logs in with a token."""
    keys = place.entrance.properties(SASL, mechanism, ALICE)
    options = f'username="{token_id}" password="{hmac}" tokenauth="true"'
    keys = {**keys, "sasl.jaas.config": f"{MODULE} required {options};"}
    return place.jvm.clients(JavaClient("bearer", keys, TOPIC, actions))["bearer"]


def test_a_token_from_its_creation_to_its_end(java_place: Place) -> None:
    place = java_place
    rights = ("--add", "--allow-principal", f"User:{ALICE}", "--topic", TOPIC)
    place.tool(ACLS, *rights)
    making = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:renewer")
    (made,) = words(place.tool(TOKENS, *making, as_user=ALICE))
    token_id, hmac, owner, requester, renewers, *_ = made
    assert (owner, requester, renewers) == (f"User:{ALICE}", f"User:{ALICE}", "[User:renewer]")
    # Without an owner the tool asks for the tokens of nobody.
    listing = ("--describe", "--owner-principal", f"User:{ALICE}")
    (seen,) = words(place.tool(TOKENS, *listing, as_user=ALICE))
    assert seen == made
    assert bearer(place, token_id, hmac, "create", "acks") == {"create": "done", "acks": "done"}
    by_256 = bearer(place, token_id, hmac, "acks", mechanism="SCRAM-SHA-256")
    assert by_256 == {"acks": "done"}
    renewal = ("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    place.tool(TOKENS, *renewal, as_user=ALICE)
    refused = place.tool(TOKENS, *renewal, as_user=MALLORY, status=1)
    assert "DelegationTokenOwnerMismatchException" in refused
    wrong = bearer(place, token_id, "wrong", "acks")
    assert wrong["acks"] == "SaslAuthenticationException"
    place.tool(TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", hmac, as_user=ALICE)
    assert words(place.tool(TOKENS, *listing, as_user=ALICE)) == []
    assert bearer(place, token_id, hmac, "acks")["acks"] == "SaslAuthenticationException"
