"""The way from a client to the controllers: asks one after the other, repeats only what is safe.

A write that is repeated after somebody else's undoes that one. So a write is asked again only when
it was certainly not done: no connection could be opened, or a controller said so. Otherwise the
caller gets an `OutcomeUnknownError`.
"""

from __future__ import annotations

import asyncio
import base64
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp

from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.runtime.connector import LoopConnector

if TYPE_CHECKING:
    import random
    import ssl
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from aiohttp.client_proto import ResponseHandler

    from raftctl.http_security import HttpSecurity

PATH = "/api/v1/kv"
BACKOFF_S = 0.02
BACKOFF_S_MAX = 0.5
ATTEMPT_TIMEOUT_S = 2.0
"""Of what may be repeated: after that another controller is asked."""
PIECE_BYTES = 256 * 1024
ASK_AGAIN = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
)
"""Answers which say that nothing was done."""


class OutcomeUnknownError(KafkaError):
    """A write may have been done or not, or may be done yet; a get shows it."""

    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, f"{why}; nobody knows whether it was done")


class RefusedError(KafkaError):
    """A controller has refused a request, and done nothing."""

    def __init__(self, code: ErrorCode, message: str, document: Mapping[str, Any]) -> None:
        super().__init__(code, message)
        self.version: int = document.get("version", -1)
        """Of a write: what was found, or the token of the lock's holder."""
        self.start_offset: int = document.get("start_offset", -1)
        """Of a watch: the offset at which the log starts."""


class Transport:
    """Calls of one client; keeps to the controller that answered last."""

    def __init__(
        self,
        controllers: Sequence[str],
        timeout_s: float,
        rng: random.Random,
        security: HttpSecurity,
    ) -> None:
        """ConfigError if a password would be sent to another machine without TLS."""
        for address in controllers:
            security.check(address)
        self._controllers = list(controllers)
        self._current = 0
        self._rng = rng
        self.timeout_s = timeout_s
        self._http = aiohttp.ClientSession(
            connector=LoopConnector(
                limit=0,
                connect=None if security.tls is None else partial(_connect, security.tls),
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=security.headers,
        )

    async def close(self) -> None:
        """End all connections."""
        await self._http.close()

    async def get(self, path: str, *, wait_s: float = 0.0, **query: Any) -> dict[str, Any]:
        """Read; repeated until an answer comes or the time is over. Raises KafkaError."""
        given = {name: str(value) for name, value in query.items() if value is not None}
        return await self._call("GET", path, given, repeat=True, wait_s=wait_s)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        repeat: bool,
        wait_s: float = 0.0,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Ask for a change. `repeat`: twice is as good as once. Raises KafkaError.

        `wait_s` is how long the controller itself may wait before it answers.
        """
        given = {name: value for name, value in body.items() if value is not None}
        return await self._call("POST", path, given, repeat, wait_s, timeout_s)

    async def _call(
        self,
        method: str,
        path: str,
        given: Mapping[str, Any],
        repeat: bool,
        wait_s: float,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        whole_s = (self.timeout_s if timeout_s is None else timeout_s) + wait_s
        deadline = loop.time() + whole_s
        backoff_s = BACKOFF_S
        why = "no controller answered in time"
        doubt: str | None = None
        while (left_s := deadline - loop.time()) > 0:
            attempt_s = min(left_s, ATTEMPT_TIMEOUT_S + wait_s) if repeat else left_s
            try:
                return await self._attempt(method, path, given, attempt_s)
            except RefusedError as error:
                if error.code not in ASK_AGAIN:
                    raise
                why = error.message
            except aiohttp.ClientConnectorError as error:
                why = str(error)
            except (OutcomeUnknownError, aiohttp.ClientError, TimeoutError, ValueError) as error:
                why = str(error) or "no answer in time"
                doubt = why
                if not repeat:
                    raise OutcomeUnknownError(why) from error
            self.ask_another()
            await asyncio.sleep(self._rng.uniform(0.5, 1) * backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)
        if doubt is not None and method == "POST":
            raise OutcomeUnknownError(f"not within {whole_s:g} s: {doubt}")
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"not within {whole_s:g} s: {why}")

    async def _attempt(
        self, method: str, path: str, given: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        with_it: Any = {"params": given}
        if method == "POST":
            body = json.dumps(given).encode()
            data = body if len(body) <= PIECE_BYTES else _pieces(body)
            with_it = {"data": data, "headers": {"Content-Type": "application/json"}}
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with self._http.request(method, self.url(path), timeout=timeout, **with_it) as answer:
            document: dict[str, Any] = await answer.json()
            if answer.status == 200:
                return document
        raise refusal(document)

    def url(self, path: str) -> str:
        """Return the URL of the controller that is asked now."""
        return f"http://{self._controllers[self._current]}{PATH}{path}"

    def ask_another(self) -> None:
        """Direct the next call to the next controller."""
        self._current = (self._current + 1) % len(self._controllers)

    @property
    def http(self) -> aiohttp.ClientSession:
        """HTTP session, for streams."""
        return self._http


async def _connect(
    tls: ssl.SSLContext, make_protocol: Callable[[], ResponseHandler], host: str, port: int
) -> ResponseHandler:
    loop = asyncio.get_running_loop()
    name = host.strip("[]")
    _, protocol = await loop.create_connection(
        make_protocol, name, port, ssl=tls, server_hostname=name
    )
    return protocol


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    """A large body must not be sent in one go: nothing else would run meanwhile."""
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]


def refusal(document: Mapping[str, Any]) -> KafkaError:
    """Return the error in an answer; one that is not known leaves open what was done."""
    name, message = str(document.get("error")), str(document.get("message", ""))
    if document.get("done") == "unknown":
        return OutcomeUnknownError(message)
    code = ErrorCode.__members__.get(name, ErrorCode.UNKNOWN_SERVER_ERROR)
    if code is ErrorCode.UNKNOWN_SERVER_ERROR:
        return OutcomeUnknownError(f"{name} {message}")
    return RefusedError(code, message, document)


def value_of(document: Mapping[str, Any]) -> bytes:
    """Return the value of an answer."""
    if "value_base64" in document:
        return base64.b64decode(document["value_base64"])
    return str(document["value"]).encode()


def parse_addresses(controllers: str | Sequence[str]) -> list[str]:
    """`host:port,...` as a list; ConfigError for what is no address."""
    named = controllers.split(",") if isinstance(controllers, str) else list(controllers)
    addresses = [address.strip() for address in named if address.strip()]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not (host and port.isdigit() and 0 < int(port) < 65_536):
            raise ConfigError(f"controllers: {address} is no host:port")
    if not addresses:
        raise ConfigError("controllers: name at least one host:port")
    return addresses
