"""The metadata as a tree: what only an image with sessions shows."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftctl.cli.offline.metadata import Directory, File, image_tree
from raftctl.ids import uuid_text
from raftctl.metadata.records import KvLockRecord, KvSessionRecord
from tests.unit.raftctl.metadata.test_delta import applied

SESSION = UUID(int=1)


@pytest.mark.req("A1", "Q10")
def test_sessions_and_locks_are_shown() -> None:
    image = applied(KvSessionRecord(SESSION, 1_000), KvLockRecord("a/b", SESSION, b"me"))
    tree = image_tree(image)
    sessions, locks = tree.child("sessions"), tree.child("locks")
    assert isinstance(sessions, Directory)
    assert isinstance(locks, Directory)
    (name,) = sessions.names()
    assert name == uuid_text(SESSION)
    assert sessions.child(name) == File(image.coordination.sessions[SESSION])
    assert list(locks.names()) == ["a%2Fb"]
    queue = locks.child("a%2Fb")
    assert isinstance(queue, Directory)
    assert list(queue.names()) == ["1"]
    place = queue.child("1")
    assert isinstance(place, Directory)
    assert place.child("value") == File(b"me")
