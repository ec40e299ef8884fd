"""Short slices of `make fuzz` with the modes of logins, and that they see what is wrong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from broker.authentication import Authenticator
from broker.server._connection import Connection
from raftctl.security.sasl import SaslError
from raftctl.security.sasl._plain import PlainServer
from tests.fuzz.logins.run import Failed, fuzz, growth
from tests.fuzz.logins.sockets import fuzz_sockets

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.logins.run import Mode

pytestmark = pytest.mark.req("N3", "S2", "S3")


@pytest.mark.parametrize("mode", ["before", "during"])
def test_a_slice(mode: Mode) -> None:
    outcome = fuzz(mode, 3_000, 7, lambda _: None)
    assert outcome.frames >= 3_000
    last = outcome.held[-1]
    assert (last.connections, last.tasks) == (0, 1)
    assert {name.partition(":")[0] for name in outcome.ends} == {"OPEN", "SEALED", "NAMED"}
    assert outcome.ends["OPEN: ended by the broker"] > 200
    assert (outcome.ends["OPEN: logged in"] > 50) is (mode == "during")


async def test_a_slice_through_sockets() -> None:
    run, looks = await fuzz_sockets(300, 7)
    assert run.frames > 300
    assert growth(looks[-1:] * 2) == ""
    assert (looks[-1].connections, looks[-1].descriptors) == (0, looks[0].descriptors)


def test_one_connection_is_repeated_by_its_number() -> None:
    first, again = (fuzz("before", 1, 3, lambda _: None, only=40) for _ in range(2))
    assert first.frames == again.frames > 0
    assert first.ends == again.ends


def _serve_all(whole: Callable[..., Any]) -> Callable[..., Any]:
    def serve(self: Authenticator, frame: Any, context: Any) -> Any:
        if frame.startswith(b"\0\x03"):
            return self._serve(frame, context)
        return whole(self, frame, context)

    return serve


def _name_user(whole: Callable[..., bytes]) -> Callable[..., bytes]:
    def evaluate(self: PlainServer, response: bytes, now_ms: int) -> bytes:
        user = response.split(b"\0")[1].decode() if response.count(b"\0") == 2 else ""
        if user and user not in self._passwords:
            raise SaslError("no such user", "Authentication failed: unknown user")
        return whole(self, response, now_ms)

    return evaluate


def _log_token(whole: Callable[..., bytes]) -> Callable[..., bytes]:
    def evaluate(self: PlainServer, response: bytes, now_ms: int) -> bytes:
        try:
            return whole(self, response, now_ms)
        except SaslError as error:
            raise SaslError(f"{error}: {response!r}", error.answer) from error

    return evaluate


def _be_silent(whole: Callable[..., None]) -> Callable[..., None]:
    def report(self: Connection, reason: str) -> None:
        if "before authentication" not in reason:
            whole(self, reason)

    return report


@pytest.mark.parametrize(
    ("mode", "owner", "name", "edit", "found"),
    [
        ("before", Authenticator, "serve", _serve_all, "a crash"),
        ("during", PlainServer, "evaluate", _name_user, "before a login: an error with"),
        ("during", PlainServer, "evaluate", _log_token, "of a secret"),
        ("before", Connection, "_report", _be_silent, "0 lines on one end"),
    ],
    ids=["serves", "names users", "logs secrets", "is silent"],
)
def test_what_is_wrong_is_found(
    monkeypatch: pytest.MonkeyPatch,
    mode: Mode,
    owner: type,
    name: str,
    edit: Callable[[Any], Any],
    found: str,
) -> None:
    monkeypatch.setattr(owner, name, edit(getattr(owner, name)))
    with pytest.raises(Failed, match=found) as failed:
        fuzz(mode, 5_000, 7, lambda _: None)
    assert re.search(rf"make fuzz MODE={mode} SEED=7 ONLY=\d+", str(failed.value))
