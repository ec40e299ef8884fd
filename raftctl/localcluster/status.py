"""What the controllers of a cluster say, asked over HTTP; works while some of them are down."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ssl import SSLContext

_LIMIT_BYTES = 64 << 20
STATUS_PATH = "/api/v1/status"


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The answers of the controllers, and the one to believe."""

    answers: dict[str, dict[str, Any] | None]
    """By address, in the order asked; None: no answer."""

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
    addresses: Sequence[str], timeout_s: float = 1.0, tls: SSLContext | None = None
) -> ClusterStatus:
    """Ask all controllers (`host:port`) at once. `tls`: where they speak it."""
    with ThreadPoolExecutor(max_workers=max(1, len(addresses))) as pool:
        answers = pool.map(lambda address: ask_controller(address, timeout_s, tls), addresses)
        return ClusterStatus(dict(zip(addresses, answers, strict=True)))


def ask_controller(
    address: str, timeout_s: float = 1.0, tls: SSLContext | None = None
) -> dict[str, Any] | None:
    """Return one controller's status; None if it does not answer in time or not with a status."""
    host, _, port = address.rpartition(":")
    name, number = host.strip("[]"), int(port)
    connection = (
        http.client.HTTPConnection(name, number, timeout=timeout_s)
        if tls is None
        else http.client.HTTPSConnection(name, number, timeout=timeout_s, context=tls)
    )
    try:
        connection.request("GET", STATUS_PATH)
        response = connection.getresponse()
        document = json.loads(response.read(_LIMIT_BYTES))
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    is_status = isinstance(document, dict) and {"epoch", "role", "brokers"} <= document.keys()
    return document if response.status == 200 and is_status else None
