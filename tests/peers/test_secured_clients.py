"""Every client library gets in by each protocol and mechanism that it has, and no further.

All clients run at the same time against one cluster; each test judges one of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.peers.secured.cases import (
    COUNT,
    LAST,
    STAY,
    STAY_S,
    USE,
    WRITE,
    case_name,
    cases,
)
from tests.peers.secured.cluster import (
    MECHANISMS,
    MUTUAL,
    REAUTH_MS,
    REQUESTED,
    SASL_PLAINTEXT,
    SASL_SSL,
    SHORT,
)
from tests.peers.secured.playing import LIBRARIES, PROGRAM_S, playing
from tests.peers.tools import INSTALL_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peers.secured.cases import Outcome
    from tests.peers.secured.cluster import SecuredCluster

    Find = Callable[..., Outcome]

QUICK_S = 20.0
"""Well below the 30 and 40 s for which clients try on."""
SESSIONS = STAY_S * 1000 / REAUTH_MS
"""That a client has while it stays."""

pytestmark = [
    pytest.mark.timeout(2 * INSTALL_TIMEOUT_S + PROGRAM_S),
    pytest.mark.xdist_group("secured"),
]

PASSWORD, TOKEN, AUTHORITY, CERTIFICATE, DENIED = range(5)
ERRORS = {
    "confluent-kafka": {
        PASSWORD: r"^_AUTHENTICATION: .*SASL authentication error: .* failed: ",
        TOKEN: r"^_AUTHENTICATION: .*invalid_token",
        AUTHORITY: r"^_SSL: .*certificate verify failed",
        CERTIFICATE: r"^_TRANSPORT: .*alert certificate required",
        DENIED: r"^TOPIC_AUTHORIZATION_FAILED: ",
    },
    # While they know no broker yet, these two have the reason in their logs alone.
    "kafka-python": {
        # It drops what it has received when the end of the connection comes with it.
        PASSWORD: r"Unable to bootstrap.*(SaslAuthenticationFailedError|socket disconnected)",
        TOKEN: r"Unable to bootstrap.*(SaslAuthenticationFailedError|socket disconnected)",
        AUTHORITY: r"Unable to bootstrap.*CERTIFICATE_VERIFY_FAILED",
        CERTIFICATE: r"Unable to bootstrap.*CERTIFICATE_REQUIRED",
        DENIED: r"^TopicAuthorizationFailedError: ",
    },
    "aiokafka": {
        PASSWORD: r"Unable to bootstrap.*SaslAuthenticationFailed",
        # As kafkajs: see there.
        TOKEN: r"Unable to bootstrap.*Connection at .* closed",
        AUTHORITY: r"Unable to bootstrap.*CERTIFICATE_VERIFY_FAILED",
        CERTIFICATE: r"Unable to bootstrap.*Connection at .* closed",
        DENIED: r"^TopicAuthorizationFailedError: ",
    },
    "kafkajs": {
        PASSWORD: r"^KafkaJSSASLAuthenticationError: ",
        # It sends no end of the exchange (RFC 7628 §3.2.3), and takes itself for logged in.
        TOKEN: r"^KafkaJSNumberOfRetriesExceeded: Closed connection",
        AUTHORITY: r"^KafkaJSNumberOfRetriesExceeded: .*self-signed certificate",
        CERTIFICATE: r"^KafkaJSNumberOfRetriesExceeded: .*alert certificate required",
        DENIED: r"KafkaJSProtocolError: Not authorized to access topics",
    },
    "franz-go": {
        PASSWORD: r"^SASL_AUTHENTICATION_FAILED: ",
        TOKEN: r"^unexpected data in oauth response",
        AUTHORITY: r"certificate signed by unknown authority",
        CERTIFICATE: r"tls: certificate required",
        DENIED: r"^TOPIC_AUTHORIZATION_FAILED: ",
    },
}
"""What each library says of each refusal."""
OF_PASSWORDS = [one for one in MECHANISMS if one != "OAUTHBEARER"]
REFUSALS = [
    *((SASL_SSL, one, "wrong password", PASSWORD) for one in OF_PASSWORDS),
    *((SASL_SSL, one, "unknown user", PASSWORD) for one in OF_PASSWORDS),
    (SASL_SSL, "OAUTHBEARER", "forged token", TOKEN),
    (SASL_SSL, "OAUTHBEARER", "expired token", TOKEN),
    (SASL_SSL, "SCRAM-SHA-512", "wrong authority", AUTHORITY),
    (SASL_SSL, "SCRAM-SHA-512", "denied topic", DENIED),
    (MUTUAL, "", "denied topic", DENIED),
    (MUTUAL, "", "no certificate", CERTIFICATE),
    (REQUESTED, "", "anonymous", DENIED),
]
USES = [
    *((listener, one) for listener in (SASL_PLAINTEXT, SASL_SSL) for one in MECHANISMS),
    (MUTUAL, ""),
    (REQUESTED, ""),
]


@pytest.fixture(scope="module")
def find(secured: SecuredCluster) -> Find:
    """Find the outcome of a library's case."""
    futures = playing({library: list(cases(secured, library)) for library in LIBRARIES})

    def found(library: str, *of_case: str) -> Outcome:
        return futures[library].result()[case_name(*of_case)]

    return found


@pytest.mark.req("N1", "S2", "S3", "S4")
@pytest.mark.parametrize(("listener", "mechanism"), USES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_client_creates_writes_reads_and_commits(
    find: Find, library: str, listener: str, mechanism: str
) -> None:
    outcome = find(library, listener, mechanism, USE)
    assert outcome.error == ""
    assert outcome.created
    assert outcome.values == [str(number) for number in range(COUNT)]
    assert outcome.again == [LAST]


@pytest.mark.req("S2", "S3", "S4")
@pytest.mark.parametrize(("listener", "mechanism", "why", "kind"), REFUSALS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_client_is_refused_with_the_reason(
    find: Find, library: str, listener: str, mechanism: str, why: str, kind: int
) -> None:
    outcome = find(library, listener, mechanism, WRITE, why)
    assert re.search(ERRORS[library][kind], outcome.error), outcome
    assert outcome.written == 0
    assert outcome.seconds < QUICK_S


@pytest.mark.req("S3")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_client_goes_on_while_its_sessions_end(find: Find, library: str, mechanism: str) -> None:
    outcome = find(library, SHORT, mechanism, STAY)
    assert outcome.error == ""
    assert outcome.written > SESSIONS, "it stood still"


@pytest.mark.req("S3")
def test_who_renews_its_session_keeps_its_connection(find: Find, secured: SecuredCluster) -> None:
    for library in LIBRARIES:
        find(library, SHORT, "PLAIN", STAY)
    logs = [secured.cluster.log_path(node).read_text() for node in secured.cluster.layout.brokers]
    expired = re.findall(r"the session of (\S+) has expired", "".join(logs))
    # bob's client does not know KIP-368. Each of the others has as many sessions, and on a busy
    # machine one may renew its own too late.
    assert set(expired) <= {"User:alice", "User:bob"}
    assert expired.count("User:bob") >= len(MECHANISMS)
    assert expired.count("User:alice") <= expired.count("User:bob") / 2


@pytest.mark.req("S3", "S4")
def test_no_password_and_no_token_is_in_a_log(find: Find, secured: SecuredCluster) -> None:
    for library in LIBRARIES:
        find(library, SHORT, "PLAIN", STAY)
    logs = [secured.cluster.log_path(node).read_text() for node in secured.cluster.layout.nodes]
    secrets = [*secured.issuer.secrets.values(), "not hers", "eyJ"]
    assert [one for one in secrets if any(one in log for log in logs)] == []


def test_every_case_is_judged(secured: SecuredCluster) -> None:
    judged = {case_name(listener, one, USE) for listener, one in USES}
    judged |= {case_name(listener, one, WRITE, why) for listener, one, why, _ in REFUSALS}
    judged |= {case_name(SHORT, one, STAY) for one in MECHANISMS}
    assert {case.name for case in cases(secured, LIBRARIES[0])} == judged
    assert set(ERRORS) == set(LIBRARIES)
