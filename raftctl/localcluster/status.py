"""What the controllers of a cluster say, asked over HTTP; works while some of them are down."""

from __future__ import annotations

import http.client
import json
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raftctl.errors import ErrorCode, KafkaError
from raftctl.http_security import NO_SECURITY, HttpSecurity

if TYPE_CHECKING:
    from collections.abc import Sequence

_LIMIT_BYTES = 64 << 20
STATUS_PATH = "/api/v1/status"
_REFUSED = (401, 403, 421)
"""What a controller answers to whom it does not let in."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The answers of the controllers, and the one to believe."""

    answers: dict[str, dict[str, Any] | None]
    """By address, in the order asked; None: no answer."""
    refusals: tuple[KafkaError, ...] = ()
    """Of those that answer, and do not let this client in; in the order asked."""

    @property
    def best(self) -> dict[str, Any] | None:
        """The active controller's answer, else that of the highest epoch and offset."""
        known = [answer for answer in self.answers.values() if answer is not None]
        return max(known, key=_credibility, default=None)

    @property
    def leader(self) -> dict[str, Any] | None:
        """The active controller's answer; None if no controller claims to be it."""
        best = self.best
        return best if best is not None and best.get("role") == "leader" else None

    @property
    def active_brokers(self) -> list[int]:
        """The brokers registered and unfenced, as the active controller sees it."""
        brokers = self.leader["brokers"] if self.leader else []
        return [broker["broker_id"] for broker in brokers if not broker["fenced"]]


def _credibility(answer: dict[str, Any]) -> tuple[int, bool, int]:
    return answer["epoch"], answer["role"] == "leader", answer.get("metadata_offset") or -1


def ask_controllers(
    addresses: Sequence[str], timeout_s: float = 1.0, security: HttpSecurity = NO_SECURITY
) -> ClusterStatus:
    """Ask all controllers (`host:port`) at once."""

    def ask(address: str) -> dict[str, Any] | KafkaError | None:
        try:
            return ask_controller(address, timeout_s, security)
        except KafkaError as error:
            return error

    with ThreadPoolExecutor(max_workers=max(1, len(addresses))) as pool:
        found = list(pool.map(ask, addresses))
    answers = [None if isinstance(one, KafkaError) else one for one in found]
    refusals = tuple(one for one in found if isinstance(one, KafkaError))
    return ClusterStatus(dict(zip(addresses, answers, strict=True)), refusals)


def ask_controller(
    address: str, timeout_s: float = 1.0, security: HttpSecurity = NO_SECURITY
) -> dict[str, Any] | None:
    """Return one controller's status; None if it does not answer in time or not with a status.

    KafkaError if it does not let this client in.
    """
    connection = security.connection(address, timeout_s)
    try:
        connection.request("GET", STATUS_PATH, headers=security.headers)
        response = connection.getresponse()
        document = json.loads(response.read(_LIMIT_BYTES))
    except ssl.SSLError as error:
        why = f"{address}: its TLS cannot be used: {error.reason or error}"
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, why) from None
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if response.status in _REFUSED and isinstance(document, dict):
        name, why = str(document.get("error")), str(document.get("message", ""))
        code = ErrorCode.__members__.get(name, ErrorCode.UNKNOWN_SERVER_ERROR)
        raise KafkaError(code, f"{address}: {why}")
    is_status = isinstance(document, dict) and {"epoch", "role", "brokers"} <= document.keys()
    return document if response.status == 200 and is_status else None
