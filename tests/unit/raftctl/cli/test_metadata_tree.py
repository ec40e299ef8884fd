"""The metadata as a tree: what only an image with sessions shows."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftctl.cli.offline._record_json import HIDDEN, record_json
from raftctl.cli.offline.metadata import Directory, File, image_tree
from raftctl.ids import uuid_text
from raftctl.metadata.records import (
    BROKER_RESOURCE,
    ConfigRecord,
    KvLockRecord,
    KvSessionRecord,
)
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


@pytest.mark.req("S2")
def test_passwords_of_stores_are_hidden() -> None:
    prefix, word = "listener.name.outside.ssl.keystore.", "wonderland"
    secret = ConfigRecord(BROKER_RESOURCE, "1", f"{prefix}password", word)
    open_one = ConfigRecord(BROKER_RESOURCE, "1", f"{prefix}location", "/etc/node.p12")
    found: object = image_tree(applied(secret, open_one))
    for name in ("configs", "brokers", "1"):
        assert isinstance(found, Directory)
        found = found.child(name)
    assert isinstance(found, Directory)
    assert found.child(f"{prefix}password") == File(HIDDEN)
    assert found.child(f"{prefix}location") == File("/etc/node.p12")
    assert word not in str(record_json(secret))
    assert record_json(open_one)["value"] == "/etc/node.p12"
