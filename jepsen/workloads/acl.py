"""Rules of access that administrators change while principals use, at every broker, what they may.

Each process asks as several users, by connections that go on, so that a broker which remembers a
decision is found out. A request goes to any broker: Apache Kafka authorizes before it looks whether
the broker leads the partition or coordinates the group, so each shows what its own rules are.

An administrator changes rules of its own, one after the other. A rule whose last change has an
unknown outcome is not touched again: brokers repeat what they forward, so it may come twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, NodeNotReadyError, StaleMetadata, for_code
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from jepsen.checkers import ALLOWED, DENIED, check_acl, check_availability
from jepsen.client import Client, Completion, failed, ok, unknown
from jepsen.environments.access import acl_values
from jepsen.errors import ClusterError
from jepsen.generator.combinators import Cycle, Limit, UntilOk, once, phases, reserve
from jepsen.generator.core import NOTHING, PENDING, Endless, Generator, Todo, filled
from jepsen.history import OpType
from jepsen.workloads._base import Workload, WorkloadOptions
from jepsen.workloads.sessions import REQUEST_TIMEOUT_MS, create_topic

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Iterator

    from aiokafka.protocol.api import Request

    from jepsen.environments import AccessControl, Entrance, Environment
    from jepsen.generator.core import Context, Next
    from jepsen.history import Op

USERS = ("anna", "bert")
TOPICS = ("a", "ab", "b")
GROUP = "g"
ADMINISTRATORS = 2
REACHED_CHANCE = 0.4
READ_S, PAUSE_S = 5.0, 0.1
FINAL_USES = 120
METADATA_AGE_MS = 2_000
FETCH_BYTES = 1_000
REFUSED = {"TOPIC": 29, "GROUP": 30}
"""Resource type to the code by which a broker says that the right to one is missing."""
UNSAID = (-1, 7)
"""Codes that come before a decision as well: of a server's error, and of one that took too long."""
ERRORS = (KafkaError, OSError, TimeoutError)
UNSENT = (NodeNotReadyError, StaleMetadata)
EVERYBODY = "*"
ANY = 1

Rule = tuple[str, str, str, str, str, str]
"""Permission, principal, operation, resource type, pattern type, resource name."""

_OF_EACH = (
    ("ALLOW", "WRITE", "TOPIC", "LITERAL", "-a"),
    ("ALLOW", "WRITE", "TOPIC", "PREFIXED", "-a"),
    ("ALLOW", "WRITE", "TOPIC", "LITERAL", "*"),
    ("DENY", "WRITE", "TOPIC", "LITERAL", "-ab"),
    ("ALLOW", "READ", "TOPIC", "PREFIXED", "-"),
    ("ALLOW", "READ", "TOPIC", "LITERAL", "-b"),
    ("DENY", "READ", "TOPIC", "PREFIXED", "-a"),
    ("ALLOW", "ALL", "TOPIC", "LITERAL", "-b"),
    ("ALLOW", "READ", "GROUP", "LITERAL", "-g"),
    ("ALLOW", "READ", "GROUP", "PREFIXED", "-"),
    ("DENY", "ALL", "GROUP", "LITERAL", "-g"),
)
_OF_ALL = (
    ("ALLOW", "WRITE", "TOPIC", "LITERAL", "-b"),
    ("DENY", "READ", "TOPIC", "LITERAL", "-ab"),
)
"""The names are behind that of the test's topic."""


def rules_of(prefix: str) -> list[Rule]:
    """Return the rules that are added and removed."""
    return [
        (permission, f"User:{user}", operation, kind, pattern, _name(prefix, name))
        for rules, users in (
            (_OF_EACH, [f"{prefix}-{one}" for one in USERS]),
            (_OF_ALL, [EVERYBODY]),
        )
        for user in users
        for permission, operation, kind, pattern, name in rules
    ]


def _name(prefix: str, name: str) -> str:
    return name if name == "*" else f"{prefix}{name}"


class AclClient(Client):
    """`use` as a user; `add`, `remove` and `reached` as an administrator."""

    def __init__(
        self, environment: Environment, options: WorkloadOptions, rng: random.Random
    ) -> None:
        self._environment = environment
        self._prefix = options.topic
        self._rng = rng
        self._clients: dict[str, AIOKafkaClient] = {}
        """By user; that of the administrator has no name."""
        self._marks = count()
        self._does: dict[str, Callable[[Op], Awaitable[Completion]]] = {
            "use": self._use,
            "add": partial(self._change, CreateAclsRequest),
            "remove": partial(self._change, DeleteAclsRequest),
            "reached": self._reached,
        }

    async def open(self) -> None:
        """Nothing is connected before it is needed."""

    async def close(self) -> None:
        for client in self._clients.values():
            with contextlib.suppress(*ERRORS):
                await client.close()

    async def invoke(self, op: Op) -> Completion:
        return await self._does[op.f](op)

    async def _client(self, user: str) -> AIOKafkaClient:
        """Return a user's connections. Raises one of ERRORS."""
        known = self._clients.get(user)
        if known is None:
            known = await connected(self._entrance(user))
            self._clients[user] = known
        return known

    def _entrance(self, user: str) -> Entrance:
        return access_of(self._environment).entrance(user) if user else self._environment.operator

    async def _use(self, op: Op) -> Completion:
        _, principal, operation, kind, name = op.value
        try:
            client = await self._client(principal.removeprefix("User:"))
            broker = self._rng.choice(brokers_of(client))
        except ERRORS as error:
            return failed(op.value, repr(error))
        request = request_for(operation, kind, name, self._prefix)
        try:
            answer: Any = await client.send(broker, request)
        except UNSENT as error:
            return failed(op.value, repr(error))
        except ERRORS as error:
            return unknown(op.value, repr(error))
        first = answer.topics[0]
        code = first[0] if operation == "DESCRIBE" else first[1][0][1]
        if code in UNSAID:
            return unknown(op.value, for_code(code).__name__)
        decision = DENIED if code == REFUSED[kind] else ALLOWED
        return ok([broker, *op.value[1:], decision])

    async def _change(self, make: Callable[..., Request[Any]], op: Op) -> Completion:
        try:
            client = await self._client("")
            broker = self._rng.choice(brokers_of(client))
        except ERRORS as error:
            return failed(op.value, repr(error))
        try:
            answer: Any = await client.send(broker, make(*acl_values(*op.value)))
        except UNSENT as error:
            return failed(op.value, repr(error))
        except ERRORS as error:
            return unknown(op.value, repr(error))
        code = next(filter(None, codes(answer)), 0)
        return unknown(op.value, for_code(code).__name__) if code else ok(op.value)

    async def _reached(self, op: Op) -> Completion:
        """Return the brokers that show a rule which was added after the others.

        A value of `all` fails unless every broker that is known does.
        """
        mark = f"User:{self._prefix}-mark-{op.process}-{next(self._marks)}"
        rule = ("ALLOW", mark, "READ", "TOPIC", "LITERAL", f"{self._prefix}-mark")
        try:
            client = await self._client("")
            brokers = brokers_of(client)
            answer: Any = await client.send(
                self._rng.choice(brokers), CreateAclsRequest(*acl_values(*rule))
            )
            if any(codes(answer)):
                return failed(None, "the mark was not acknowledged")
        except ERRORS as error:
            return failed(None, repr(error))
        found = await asyncio.gather(*(_shows(client, one, mark) for one in brokers))
        shown = [broker for broker, is_shown in zip(brokers, found, strict=True) if is_shown]
        with contextlib.suppress(*ERRORS):
            await client.send(self._rng.choice(brokers), DeleteAclsRequest(*acl_values(*rule)))
        if op.value == "all" and len(shown) < len(self._environment.brokers):
            return failed("all", f"only {shown} show it")
        return ok(shown)


async def connected(entrance: Entrance) -> AIOKafkaClient:
    """Return a client that knows the brokers. Raises one of ERRORS."""
    client = AIOKafkaClient(
        **entrance.aiokafka(),
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        metadata_max_age_ms=METADATA_AGE_MS,
    )
    try:
        await client.bootstrap()
    except BaseException:
        await client.close()
        raise
    return client


def brokers_of(client: AIOKafkaClient) -> list[int]:
    """Return the ids of the brokers that are known. NodeNotReadyError if none is."""
    found = sorted(broker.nodeId for broker in client.cluster.brokers())
    if not found:
        raise NodeNotReadyError("no broker is known")
    return found


async def _shows(client: AIOKafkaClient, broker: int, principal: str) -> bool:
    """Whether a broker lists a rule of the principal in time."""
    anything: Any = None
    request = DescribeAclsRequest(ANY, anything, ANY, principal, anything, ANY, ANY)
    with contextlib.suppress(*ERRORS):
        async with asyncio.timeout(READ_S):
            while True:
                answer: Any = await client.send(broker, request)
                if answer.resources:
                    return True
                await asyncio.sleep(PAUSE_S)
    return False


def codes(answer: Any) -> Iterator[int]:
    """Return the error codes of an answer to CreateAcls or DeleteAcls."""
    if hasattr(answer, "creation_responses"):
        yield from (one[0] for one in answer.creation_responses)
        return
    for code, _, matching in answer.filter_responses:
        yield code
        yield from (one[0] for one in matching)


def request_for(operation: str, kind: str, name: str, prefix: str) -> Request[Any]:
    """Return a request that needs the right, and shows by its answer whether it is there."""
    if kind == "GROUP":
        commits = [(f"{prefix}-{TOPICS[0]}", [(0, 1, "")])]
        return OffsetCommitRequest(name, -1, "", -1, commits)
    match operation:
        case "WRITE":
            return ProduceRequest(None, 1, REQUEST_TIMEOUT_MS, [(name, [(0, _batch())])])
        case "READ":
            return FetchRequest(0, 0, FETCH_BYTES, 0, [(name, [(0, 0, FETCH_BYTES)])])
        case _:
            return MetadataRequest([name], allow_auto_topic_creation=False)


def _batch() -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, FETCH_BYTES)
    builder.append(0, 0, None, b"value", [])
    return bytes(builder.build())


def access_of(environment: Environment) -> AccessControl:
    """Return what changes users. ClusterError if the cluster has none that can be changed."""
    access = environment.access
    if access is None:
        raise ClusterError("acl: nobody logs in to this cluster; name a --security with SASL")
    return access


# --- what is done ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Administration(Generator):
    """Changes of some rules, and now and then a look which brokers have them."""

    rules: tuple[Rule, ...]
    present: frozenset[Rule] = frozenset()

    def next_op(self, context: Context) -> Next:
        if not context.free:
            return PENDING, self
        if not self.rules or context.random.random() < REACHED_CHANCE:
            return filled(Todo("reached"), context), self
        rule = context.random.choice(self.rules)
        f = "remove" if rule in self.present else "add"
        return filled(Todo(f, list(rule)), context), self

    def updated(self, context: Context, event: Op) -> Generator:
        if event.f not in ("add", "remove") or event.type not in (OpType.OK, OpType.INFO):
            return self
        rule: Any = tuple(event.value)
        if event.type is OpType.INFO:
            return replace(self, rules=tuple(one for one in self.rules if one != rule))
        present = self.present | {rule} if event.f == "add" else self.present - {rule}
        return replace(self, present=present)


def _any_use(context: Context, prefix: str) -> Todo:
    draw = context.random.choice
    operation = draw(("WRITE", "READ", "DESCRIBE", "COMMIT"))
    user = f"User:{prefix}-{draw(USERS)}"
    if operation == "COMMIT":
        return Todo("use", [None, user, "READ", "GROUP", f"{prefix}-{GROUP}"])
    return Todo("use", [None, user, operation, "TOPIC", f"{prefix}-{draw(TOPICS)}"])


async def _prepare(environment: Environment, options: WorkloadOptions) -> None:
    """Create the topics and users. Raises ClusterError."""
    access = access_of(environment)
    for name in TOPICS:
        await create_topic(environment, replace(options, topic=f"{options.topic}-{name}", keys=1))
    for user in USERS:
        await access.set_password(f"{options.topic}-{user}")


def _client(
    options: WorkloadOptions, environment: Environment, process: int, rng: random.Random
) -> Client:
    return AclClient(environment, options, rng)


def acl(options: WorkloadOptions) -> Workload:
    """Two administrators, each with rules of its own; everybody else uses what may be allowed."""
    rules = rules_of(options.topic)
    administrators = min(ADMINISTRATORS, options.concurrency - 1)
    parts: list[int | Generator] = []
    for number in range(administrators):
        parts += [1, Administration(tuple(rules[number::administrators]))]
    uses = Endless(partial(_any_use, prefix=options.topic))
    everywhere = UntilOk(Cycle(once("reached", "all")))
    return Workload(
        "acl",
        partial(_client, options),
        reserve(*parts, uses),
        {"acl": check_acl, "availability": check_availability},
        final=phases(reserve(1, everywhere, NOTHING), Limit(FINAL_USES, uses)),
        prepare=partial(_prepare, options=options),
    )
