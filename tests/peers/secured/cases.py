"""What is tried of a client library, and what it comes to; as JSON for other languages."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.kit.issuer import new_key
from tests.peers.secured.cluster import (
    DENIED_TOPIC,
    MECHANISMS,
    MUTUAL,
    OWN_PREFIX,
    PASSWORDS,
    REQUESTED,
    SASL_PLAINTEXT,
    SASL_SSL,
    SHORT,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.peers.secured.cluster import SecuredCluster

USE, WRITE, STAY = "use", "write", "stay"
"""Actions: all that an application does; one record; a record every `PAUSE_S` for `STAY_S`."""
COUNT = 100
STAY_S = 10.0
PAUSE_S = 0.2
LAST = "last"
_AMOUNTS = {"count": COUNT, "seconds": STAY_S, "pause": PAUSE_S, "last": LAST}
RECONNECTING = ("aiokafka",)
"""Libraries that do not renew a session (KIP-368): brokers end it, and they log in again."""


@dataclass(frozen=True, slots=True)
class Login:
    """How a client logs in."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    token_url: str
    """Where a client of OAUTHBEARER gets its tokens, unless it is given one."""
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Case:
    """One client of one library."""

    name: str
    action: str
    bootstrap: str
    protocol: str
    topic: str
    group: str
    trusted: str = ""
    """PEM of the authorities that it trusts."""
    certificate: str = ""
    key: str = ""
    login: Login | None = None

    def document(self) -> dict[str, Any]:
        """Return the form that programs in other languages take."""
        return {**asdict(self), **_AMOUNTS}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Case:
        """Return the case of a document."""
        own = {name: value for name, value in document.items() if name not in _AMOUNTS}
        login = None if own["login"] is None else Login(**own["login"])
        return cls(**{**own, "login": login})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a client did, and the error with which it ended."""

    error: str = ""
    """The library's own name of it, and its text; empty: none."""
    seconds: float = 0.0
    """Until it ended."""
    created: bool = False
    """Whether it created its topic."""
    values: list[str] = field(default_factory=list)
    """What it read in its group, in order, and committed."""
    again: list[str] = field(default_factory=list)
    """What another member read after `LAST` was written."""
    written: int = 0
    """How many records were acknowledged."""


def cases(secured: SecuredCluster, library: str) -> Iterator[Case]:
    """Return those of a library; those that take longest first."""
    for mechanism in MECHANISMS:
        user = "bob" if library in RECONNECTING else "alice"
        yield case(secured, library, STAY, SHORT, mechanism, user)
    for entrance in (SASL_PLAINTEXT, SASL_SSL):
        for mechanism in MECHANISMS:
            yield case(secured, library, USE, entrance, mechanism)
    for entrance in (MUTUAL, REQUESTED):
        yield case(secured, library, USE, entrance)
    yield from _refused(secured, library)


def _refused(secured: SecuredCluster, library: str) -> Iterator[Case]:
    for mechanism in MECHANISMS:
        good = case(secured, library, WRITE, SASL_SSL, mechanism)
        assert good.login is not None
        if mechanism == "OAUTHBEARER":
            forged = secured.issuer.token("alice", key=new_key())
            expired = secured.issuer.token("alice", seconds=-600)
            yield _renamed(good, "forged token", login=replace(good.login, token=forged))
            yield _renamed(good, "expired token", login=replace(good.login, token=expired))
            continue
        yield _renamed(good, "wrong password", login=replace(good.login, password="not hers"))
        yield _renamed(good, "unknown user", login=replace(good.login, user="nobody"))
    good = case(secured, library, WRITE, SASL_SSL, "SCRAM-SHA-512")
    yield _renamed(good, "denied topic", topic=DENIED_TOPIC)
    yield _renamed(good, "wrong authority", trusted=secured.files.other)
    certified = case(secured, library, WRITE, MUTUAL)
    yield _renamed(certified, "denied topic", topic=DENIED_TOPIC)
    yield _renamed(certified, "no certificate", certificate="", key="")
    requested = case(secured, library, WRITE, REQUESTED)
    yield _renamed(requested, "anonymous", certificate="", key="")


def _renamed(case: Case, why: str, **changes: Any) -> Case:
    return replace(case, name=f"{case.name} {why}", **changes)


def case_name(listener: str, mechanism: str, action: str, why: str = "") -> str:
    """Return the name of a case."""
    return " ".join(word for word in (listener, mechanism, action, why) if word)


def case(
    secured: SecuredCluster,
    library: str,
    action: str,
    listener: str,
    mechanism: str = "",
    user: str = "alice",
) -> Case:
    """Return a client that gets in, by the listener's protocol."""
    entrance, files = secured.entrances[listener], secured.files
    name = "-".join(word for word in (listener, mechanism, action) if word)
    own = f"{OWN_PREFIX}{library}-{name}".lower()
    certified = entrance.protocol == "SSL"
    login = Login(mechanism, user, PASSWORDS[user], secured.issuer.token_url)
    return Case(
        name=case_name(listener, mechanism, action),
        action=action,
        bootstrap=entrance.bootstrap,
        protocol=entrance.protocol,
        topic=own,
        group=own,
        trusted=files.authority if entrance.is_encrypted else "",
        certificate=files.client_certificate if certified else "",
        key=files.client_key if certified else "",
        login=login if mechanism else None,
    )
