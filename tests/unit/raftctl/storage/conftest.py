"""What the tests of the storage share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from raftctl.storage.log import _segment as segment
from tests.unit.raftctl.storage.logs import SECTOR_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package", autouse=True)
def _small_sectors() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "SECTOR_BYTES", SECTOR_BYTES)
        yield
