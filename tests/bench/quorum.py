"""The quorum beside etcd, as `raftctl bench quorum --peer etcd` measures it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from raftctl.bench.quorum import Plan, measure
from raftctl.cli.offline.storage import format_storage, random_uuid_text

if TYPE_CHECKING:
    from collections.abc import Mapping

FAILOVERS = 50


def run(turns: int) -> Mapping[str, Any]:
    """All figures; etcd's and the ratios only where etcd can be had."""
    found = measure(
        Plan(turns=turns, failovers=FAILOVERS),
        cluster_id=random_uuid_text(),
        format_storage=format_storage,
        say=lambda line: sys.stdout.write(line + "\n"),
    )
    return found.figures
