"""Users, passwords and rules of a cluster, changed over Kafka's protocol, in every environment.

`ClusterAccess` is the `AccessControl` of clusters whose clients log in by SCRAM-SHA-512.
`Passwords` has the passwords that the users of a test have and had; they are kept in memory alone.
`UserLogin` is the login of one of them.

Sources: KIP-140 (rules), KIP-290 (prefixes), KIP-554 (credentials of SCRAM).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka.conn import create_conn
from aiokafka.errors import SaslAuthenticationFailed, for_code
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from jepsen.environments._access import AccessControl, Rule, Security
from jepsen.environments._entrance import Entrance, Login
from jepsen.environments.admin import ASK_S, ERRORS, REQUEST_TIMEOUT_MS, asked, open_admin
from jepsen.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from aiokafka.admin import AIOKafkaAdminClient

CLIENT, OPERATOR = "client", "operator"
"""The users of a test: that of the workload's clients, and a super user who administers."""
MECHANISM = "SCRAM-SHA-512"
ITERATIONS = 4096
"""The least that is allowed: a login costs as little as it may."""
PATIENCE_S = 20.0
_HASH, _SCRAM_ID = "sha512", 2
_SALT_BYTES = 16
_ANY = 1
_ANY_HOST = "*"
_PERMISSIONS = {"DENY": 2, "ALLOW": 3}
_PATTERN_TYPES = {"LITERAL": 3, "PREFIXED": 4}
_RESOURCE_TYPES = {"TOPIC": 2, "GROUP": 3, "CLUSTER": 4, "TRANSACTIONAL_ID": 5}
_OPERATIONS = {
    name: code
    for code, name in enumerate(
        (
            "ALL",
            "READ",
            "WRITE",
            "CREATE",
            "DELETE",
            "ALTER",
            "DESCRIBE",
            "CLUSTER_ACTION",
            "DESCRIBE_CONFIGS",
            "ALTER_CONFIGS",
            "IDEMPOTENT_WRITE",
        ),
        start=2,
    )
}
_NAME_OF_RESOURCE = {code: name.lower() for name, code in _RESOURCE_TYPES.items()}
_NAME_OF_OPERATION = {code: name.lower() for name, code in _OPERATIONS.items()}
_PRINCIPAL = "User:"


class Passwords:
    """The passwords of users, the newest last; for no text and no file."""

    def __init__(self, draw: Callable[[], str]) -> None:
        """`draw`: makes a new password."""
        self._draw = draw
        self._known: dict[str, list[str]] = {}

    def drawn(self) -> str:
        """Return a new one, which is nobody's yet."""
        return self._draw()

    def take(self, user: str, password: str) -> None:
        """Have the user log in with this one from now on."""
        self._known.setdefault(user, []).append(password)

    def newest(self, user: str) -> str:
        """Return the one with which the user logs in. KeyError for a user without one."""
        return self._known[user][-1]

    def former(self, user: str) -> str | None:
        """Return the one before; None if it was never changed."""
        known = self._known[user]
        return known[-2] if len(known) > 1 else None

    def generation(self, user: str) -> int:
        """Return how often it has changed."""
        return len(self._known[user]) - 1


class UserLogin(Login):
    """The login of a user by SCRAM, with the password that is the newest when it is asked for."""

    def __init__(
        self, protocol: str, user: str, passwords: Passwords, authorities: str = ""
    ) -> None:
        """`authorities`: a file of certificates that are trusted, where there is TLS."""
        self._protocol = protocol
        self._user = user
        self._passwords = passwords
        self._authorities = authorities

    @property
    def has_user(self) -> bool:
        return True

    @property
    def generation(self) -> int:
        return self._passwords.generation(self._user)

    @contextlib.contextmanager
    def librdkafka(self) -> Iterator[dict[str, Any]]:
        has_tls = self._protocol == Security.SASL_SSL
        stores = {"ssl.ca.location": self._authorities} if has_tls else {}
        yield {
            **stores,
            "security.protocol": self._protocol,
            "sasl.mechanism": MECHANISM,
            "sasl.username": self._user,
            "sasl.password": self._passwords.newest(self._user),
        }

    def aiokafka(self) -> dict[str, Any]:
        return self.with_password(self._passwords.newest(self._user))

    def with_password(self, password: str) -> dict[str, Any]:
        """Return aiokafka's settings with another password."""
        return {
            "security_protocol": self._protocol,
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": self._user,
            "sasl_plain_password": password,
            "ssl_context": self.context(),
        }

    def context(self) -> ssl.SSLContext | None:
        if self._protocol != Security.SASL_SSL:
            return None
        return ssl.create_default_context(cafile=self._authorities)


class ClusterAccess(AccessControl):
    """See the module; the operator has its password before the cluster starts."""

    user, operator = CLIENT, OPERATOR

    def __init__(
        self, bootstrap_servers: str, protocol: str, passwords: Passwords, authorities: str = ""
    ) -> None:
        """`protocol`, `authorities`: of every user's login (`UserLogin`)."""
        self._bootstrap_servers = bootstrap_servers
        self._protocol = protocol
        self._passwords = passwords
        self._authorities = authorities

    def entrance(self, user: str) -> Entrance:
        return Entrance(self._bootstrap_servers, self._login(user))

    def _login(self, user: str) -> UserLogin:
        return UserLogin(self._protocol, user, self._passwords, self._authorities)

    async def set_password(self, user: str) -> None:
        password = self._passwords.drawn()
        salt = hashlib.sha256(self._passwords.drawn().encode()).digest()[:_SALT_BYTES]
        salted = hashlib.pbkdf2_hmac(_HASH, password.encode(), salt, ITERATIONS)
        request = _AlterUserScramCredentials(user, salt, salted)
        await self._done(f"the password of {user}", partial(_altered, request=request))
        self._passwords.take(user, password)

    async def allow(self, user: str, rules: Sequence[Rule]) -> None:
        await self._done(f"rules of {user}", partial(_created, user=user, rules=rules))

    async def revoke(self, user: str, rules: Sequence[Rule]) -> None:
        await self._done(f"rules of {user}", partial(_deleted, user=user, rules=rules))

    async def _done(self, what: str, ask: Callable[[AIOKafkaAdminClient], Awaitable[bool]]) -> None:
        if not await asked(self.entrance(self.operator), ask, PATIENCE_S):
            raise ClusterError(f"{what} could not be changed in {PATIENCE_S:g} s")

    async def rules(self, broker_id: int | None = None) -> frozenset[tuple[str, Rule]]:
        """See `AccessControl`; ClusterError if the broker does not answer."""
        try:
            async with (
                asyncio.timeout(ASK_S),
                open_admin(self.entrance(self.operator)) as admin,
            ):
                return await _described(admin, broker_id)
        except ERRORS as error:
            raise ClusterError(f"the rules that a broker has are not known: {error!r}") from error

    async def accepts(self, user: str, *, former: bool = False) -> bool | None:
        password = self._passwords.former(user) if former else self._passwords.newest(user)
        if password is None:
            return None
        settings = self._login(user).with_password(password)
        for address in self._bootstrap_servers.split(","):
            host, _, port = address.rpartition(":")
            try:
                connection = await create_conn(
                    host, int(port), request_timeout_ms=REQUEST_TIMEOUT_MS, **settings
                )
            except SaslAuthenticationFailed:
                return False
            except ERRORS:
                continue
            connection.close()
            return True
        return None


# --- requests -------------------------------------------------------------------------------------


_AclValues = tuple[int, str, int, str, str, int, int]


def acl_values(
    permission: str, principal: str, operation: str, kind: str, pattern: str, name: str
) -> _AclValues:
    """Return a rule for any host, by the names of KIP-140 and KIP-290, as requests have it."""
    return (
        _RESOURCE_TYPES[kind],
        name,
        _PATTERN_TYPES[pattern],
        principal,
        _ANY_HOST,
        _OPERATIONS[operation],
        _PERMISSIONS[permission],
    )


def _values(user: str, rule: Rule) -> _AclValues:
    pattern = "PREFIXED" if rule.prefixed else "LITERAL"
    operation, kind = rule.operation.upper(), rule.resource.upper()
    return acl_values("ALLOW", _PRINCIPAL + user, operation, kind, pattern, rule.name)


async def _created(admin: AIOKafkaAdminClient, user: str, rules: Sequence[Rule]) -> bool:
    for rule in rules:
        answer: Any = await admin._send_request(CreateAclsRequest(*_values(user, rule)))
        for code, message in answer.creation_responses:
            _check(code, message)
    return True


async def _deleted(admin: AIOKafkaAdminClient, user: str, rules: Sequence[Rule]) -> bool:
    for rule in rules:
        answer: Any = await admin._send_request(DeleteAclsRequest(*_values(user, rule)))
        for code, message, _ in answer.filter_responses:
            _check(code, message)
    return True


async def _described(
    admin: AIOKafkaAdminClient, broker_id: int | None
) -> frozenset[tuple[str, Rule]]:
    anybody: Any = None
    request = DescribeAclsRequest(_ANY, anybody, _ANY, anybody, anybody, _ANY, _ANY)
    answer: Any = await admin._send_request(request, broker_id)
    _check(answer.error_code, answer.error_message)
    resources = answer.to_object()["resources"]
    return frozenset(
        (
            acl["principal"].removeprefix(_PRINCIPAL),
            Rule(
                _NAME_OF_RESOURCE.get(one["resource_type"], ""),
                one["resource_name"],
                _NAME_OF_OPERATION.get(acl["operation"], ""),
                one["resource_pattern_type"] == _PATTERN_TYPES["PREFIXED"],
            ),
        )
        for one in resources
        for acl in one["acls"]
        if acl["permission_type"] == _PERMISSIONS["ALLOW"]
    )


async def _altered(admin: AIOKafkaAdminClient, request: _AlterUserScramCredentials) -> bool:
    answer: Any = await admin._send_request(request)
    for _, code, message, _ in answer.results:
        _check(code, message)
    return True


def _check(code: int, message: str | None) -> None:
    if code:
        raise for_code(code)(message)


class _AlterUserScramCredentialsResponse(Response):
    API_KEY = 51
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "results",
            CompactArray(
                ("user", CompactString("utf-8")),
                ("error_code", Int16),
                ("error_message", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _AlterUserScramCredentialsStruct(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 51
    API_VERSION = 0
    RESPONSE_TYPE = _AlterUserScramCredentialsResponse
    SCHEMA = Schema(
        (
            "deletions",
            CompactArray(
                ("name", CompactString("utf-8")), ("mechanism", Int8), ("tags", TaggedFields)
            ),
        ),
        (
            "upsertions",
            CompactArray(
                ("name", CompactString("utf-8")),
                ("mechanism", Int8),
                ("iterations", Int32),
                ("salt", CompactBytes),
                ("salted_password", CompactBytes),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _AlterUserScramCredentials(Request[_AlterUserScramCredentialsStruct]):
    """AlterUserScramCredentials (KIP-554)."""

    API_KEY = 51

    def __init__(self, user: str, salt: bytes, salted_password: bytes) -> None:
        self._upsertion: Any = (user, _SCRAM_ID, ITERATIONS, salt, salted_password, {})

    def build(
        self, request_struct_class: type[_AlterUserScramCredentialsStruct]
    ) -> _AlterUserScramCredentialsStruct:
        """The request as it is sent."""
        return request_struct_class([], [self._upsertion], {})
