"""`python -m tests.bench.security.main` for a moment: few rules, and ours alone by TLS."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.bench.security.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.req("S4")
@pytest.mark.timeout(300)
def test_few_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out" / "figures.json"
    main(["--only", "authorizer", "--rules", "5000", "--turns", "1", "--output", str(file)])
    figures = json.loads(file.read_text())["figures"]
    printed = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in printed] == [*figures]
    assert all(figure["median"] > 0 for figure in figures.values())
    # Time depends on the machine; memory does not.
    memory = {name: one["median"] for name, one in figures.items() if name.startswith("memory")}
    assert len(memory) == 3
    assert max(memory.values()) <= 250


@pytest.mark.req("S7")
@pytest.mark.timeout(300)
def test_every_protocol_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    small = ["--megabytes", "1", "--warmup-megabytes", "1", "--turns", "1"]
    parts = ["produce_acks_all", "connections"]
    main(["--only", *parts, "--peer", "none", *small, "--output", str(file)])
    document = json.loads(file.read_text())
    assert document["settings"]["warmup_megabytes"] == 1
    figures = document["figures"]
    for protocol in ("PLAINTEXT", "SSL", "SASL_SSL"):
        for name in (*parts, "produce_acks_all_cpu", "connections_cpu", "connections_client_cpu"):
            assert figures[f"{name}_raftctl_{protocol}"]["median"] > 0, (name, protocol)
    assert figures["connections_raftctl_SSL_to_plaintext"]["median"] < 1
