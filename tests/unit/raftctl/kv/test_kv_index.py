"""Pages of keys, indexed or looked for, are what sorting all keys gives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftctl.kv import KeyIndex
from raftctl.kv import _index as kv_index
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from raftctl.metadata.records import KvRecord

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.req("Q10")

KEYS = st.text("ab/", min_size=1, max_size=3)
CHANGES = st.lists(st.tuples(KEYS, st.booleans()), max_size=12)


class Images:
    """A follower of records that a test makes, with its index."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        follower: Any = self
        self.index = KeyIndex(follower)

    def publish(self, changes: list[tuple[str, bool]]) -> None:
        """Keys that are set (True) or removed."""
        delta = MetadataDelta(self.image)
        for key, is_set in changes:
            delta.replay(KvRecord(key, b"" if is_set else None), self.image.offset + 1)
        self.image = delta.apply(self.image.offset + 1, 1, 0)
        self.index.publish(delta, self.image)

    def expected(self, prefix: str, after: str, limit: int) -> list[str]:
        keys = sorted(self.image.kv)
        return [key for key in keys if key > after and key.startswith(prefix)][:limit]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, slice_steps: Callable[[int], None]) -> None:
    monkeypatch.setattr(kv_index, "SCAN_MAX", 2)
    monkeypatch.setattr(kv_index, "STEP_KEYS", 2)
    slice_steps(1)


@given(
    st.lists(st.tuples(CHANGES, st.text("ab/", max_size=2), st.text("ab/", max_size=2)), max_size=6)
)
def test_pages_are_those_of_all_keys_sorted(
    steps: list[tuple[list[tuple[str, bool]], str, str]],
) -> None:
    async def follow() -> None:
        images = Images()
        for changes, prefix, after in steps:
            images.publish(changes)
            for limit in (1, 4, 100):
                keys, image = await images.index.page(prefix, after, limit)
                assert image is images.image
                assert keys == images.expected(prefix, after, limit)

    asyncio.run(follow())


@given(st.lists(CHANGES, min_size=1, max_size=8))
def test_keys_that_change_meanwhile_are_not_missed(batches: list[list[tuple[str, bool]]]) -> None:
    async def change(images: Images) -> None:
        for changes in batches:
            images.publish(changes)
            await asyncio.sleep(0)

    async def ask(images: Images) -> None:
        keys, image = await images.index.page("", "", 100)
        assert keys == sorted(image.kv)

    async def both() -> None:
        images = Images()
        images.publish([(f"k{number}", True) for number in range(9)])
        await asyncio.gather(ask(images), change(images), ask(images))
        await ask(images)

    asyncio.run(both())


async def test_an_index_that_nobody_uses_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_index, "CHANGES_MAX", 5)
    images = Images()
    images.publish([(f"k{number}", True) for number in range(4)])
    assert images.index._changes is None, "nobody has asked"
    await images.index.page("", "", 2)
    assert images.index._keys is not None
    for _ in range(6):
        images.publish([("k0", True)])
    assert (images.index._keys, images.index._changes) == (None, None)
    assert (await images.index.page("k", "k1", 5))[0] == ["k2", "k3"]


async def test_where_too_much_changes_all_keys_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kv_index, "CHANGES_MAX", 0)
    images = Images()
    images.publish([(f"k{number}", True) for number in range(6)])
    asking = asyncio.ensure_future(images.index.page("", "k1", 3))
    await asyncio.sleep(0)
    images.publish([("k2", False)])
    keys, image = await asking
    assert keys == [key for key in sorted(image.kv) if key > "k1"][:3]
