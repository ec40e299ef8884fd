"""Bugs planted into sessions, locks and watches of keys and values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from raftctl.controller._config import KV_BYTES_MAX
from raftctl.controller.kv import KvCoordination
from raftctl.controller.kv import _kv_coordination as kv_coordination
from raftctl.kv import KvApi, KvEventLog
from raftctl.kv._events import KvChunk
from raftctl.metadata.records import KvRecord
from raftctl.metadata.requests.kv import NO_TOKEN
from tests.mutants.mutant import Patch, node_mutant

if TYPE_CHECKING:
    from raftctl.controller._result import ControllerResult
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.image.coordination import Coordination, KvSession
    from raftctl.metadata.records import Record
    from raftctl.metadata.requests.kv import KvGuardedWriteRequest

_guarded_write = kv_coordination.guarded_write
_closing_records = kv_coordination.closing_records
_decode = KvEventLog._decode


def _claim_without_grace(control: KvCoordination, image: MetadataImage, now_ms: int) -> None:
    control._sessions.clear()
    for session_id in image.coordination.sessions:
        control._sessions.open(session_id, 1, now_ms)


def _never_fenced(
    image: MetadataImage, request: KvGuardedWriteRequest, kv_bytes_max: int = KV_BYTES_MAX
) -> ControllerResult:
    return _guarded_write(image, replace(request, lock=None, token=NO_TOKEN), kv_bytes_max)


def _keep_keys(coordination: Coordination, session: KvSession) -> list[Record]:
    records = _closing_records(coordination, session)
    return [record for record in records if not isinstance(record, KvRecord)]


def _only_newest(log: KvEventLog, offset: int) -> KvChunk:
    chunk = _decode(log, offset)
    newest = {event.key: event for event in chunk.events}
    return KvChunk(tuple(newest.values()), chunk.next_offset)


async def _everybody_holds_it(api: KvApi, lock: str, token: int, wait_s: float) -> int:
    return token


LOCKS = (
    node_mutant(
        "lock_is_given_to_who_waits",
        "whoever waits for a lock is told at once that it is held",
        ("one_holds_a_lock",),
        Patch(KvApi, "_turn", _everybody_holds_it),
        scenario="locks_stay_safe",
    ),
    node_mutant(
        "sessions_expire_at_failover",
        "a new active controller gives sessions no time to be heard of",
        ("session_that_is_kept_stays", "one_holds_a_lock"),
        Patch(KvCoordination, "claim", _claim_without_grace),
        scenario="locks_stay_safe",
    ),
    node_mutant(
        "fence_is_not_checked",
        "a guarded write does not look who holds the lock",
        ("stale_token_is_refused",),
        Patch(kv_coordination, "guarded_write", _never_fenced),
        scenario="locks_stay_safe",
    ),
    node_mutant(
        "ephemeral_keys_stay",
        "a session is closed and its keys are left",
        ("ephemeral_key_goes_with_its_session", "controller_is_sound"),
        Patch(kv_coordination, "closing_records", _keep_keys),
        scenario="locks_stay_safe",
    ),
    node_mutant(
        "watch_tells_the_newest_only",
        "a watch that has fallen behind tells the last change of each key",
        ("watch_misses_nothing",),
        Patch(KvEventLog, "_decode", _only_newest),
        scenario="locks_stay_safe",
    ),
)
