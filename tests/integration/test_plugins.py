"""A broker from outside, as the how-to page shows it, found by entry point and run by a node."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from raftctl.cli.storage import format_storage, random_uuid_text
from raftctl.localcluster.cluster import ClusterSpec, LocalCluster

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/write-a-broker.md"


def _install_example(directory: Path) -> None:
    """Lays the page's code and entry point out as an installed distribution."""
    code, entry = (
        re.search(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
        for kind in ("python", "toml")
    )
    assert code is not None
    assert entry is not None
    (directory / "quiet_broker.py").write_text(code[1])
    metadata = directory / "quiet_broker-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: quiet-broker\nVersion: 1.0\n")
    name, target = re.findall(r'^(\w+) = "(.*)"$', entry[1], re.MULTILINE)[0]
    (metadata / "entry_points.txt").write_text(f"[raftctl.brokers]\n{name} = {target}\n")


@pytest.mark.req("P1", "P2")
def test_the_example_broker_registers_and_sees_its_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    _install_example(packages)
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setenv("PYTHONPATH", str(packages))
    spec = ClusterSpec(1, 1, overrides={"broker.plugin": "quiet"})
    cluster = LocalCluster.open(tmp_path / "cluster", spec, random_uuid_text, format_storage)
    try:
        cluster.start_all()
        _wait_for_active_broker(cluster)
    finally:
        late = cluster.stop_all()
    log = cluster.log_path(cluster.layout.brokers[0]).read_text().splitlines()
    told = [json.loads(line) for line in log if '"event": "leads"' in line]
    assert told[-1]["partitions"] == 0
    assert told[-1]["offset"] > 0
    assert late == []


def _wait_for_active_broker(cluster: LocalCluster) -> None:
    deadline = time.monotonic() + 20
    while cluster.status().active_brokers != [1]:
        assert time.monotonic() < deadline, "the broker did not register"
        time.sleep(0.05)
