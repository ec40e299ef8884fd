"""`jepsen test` on a secured local cluster, whose certificates, passwords and rules change.

Real processes, TLS between all of them, and unmodified clients that log in (rows S2, S3, S4, S7).
"""

from __future__ import annotations

import json
import tempfile
from itertools import count
from typing import TYPE_CHECKING

import pytest

from jepsen.cli.main import run as jepsen
from jepsen.core.spec import SECURITY_FAULTS
from jepsen.environments.local import security
from jepsen.history import OpType
from jepsen.store import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

MARK = "password-of-this-test-"


def texts(folder: Path) -> dict[str, bytes]:
    """What is in each file below a folder."""
    return {str(one): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


@pytest.mark.req("J2", "S2", "S3", "S4", "S7")
@pytest.mark.parametrize("client", ["librdkafka", "aiokafka"])
def test_a_secured_cluster_is_tested_while_its_security_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    numbers = count()
    monkeypatch.setattr(security, "token_urlsafe", lambda _: f"{MARK}{next(numbers)}")
    keys = tmp_path / "keys"
    keys.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(keys))
    words = ["test", "queue-txn", "--security", "SASL_SSL", "--client", client]
    words += ["--nemesis", ",".join(SECURITY_FAULTS), "--time-limit", "12", "--interval", "1"]
    words += ["--controllers", "1", "--brokers", "2", "--replication", "2"]
    assert jepsen([*words, "--store", str(tmp_path / "store")]) == 0
    folder = RunFolder.open(tmp_path / "store" / "latest")
    results = json.loads((folder.path / "results.json").read_text())
    assert set(results["faults"]) == set(SECURITY_FAULTS)
    assert all(results["faults"].values())
    refused = [op for op in folder.history() if op.by_client and op.type is OpType.FAIL]
    assert any("AUTHORIZATION" in (op.error or "").upper() for op in refused)
    # More than once: the operator's, the client's first one, and each change draws a salt too.
    assert next(numbers) > 4
    found = texts(tmp_path / "store")
    assert [name for name, text in found.items() if MARK.encode() in text] == []
    assert [name for name, text in found.items() if b"PRIVATE KEY" in text] == []
    assert list(keys.iterdir()) == []
    log = b"".join(text for name, text in found.items() if name.endswith("node.log"))
    assert b"certificates_reloaded" in log
    assert b"certificates_not_reloaded" not in log


@pytest.mark.req("J2", "S4", "S7")
def test_nobody_uses_a_right_that_was_taken_away(tmp_path: Path) -> None:
    words = ["test", "acl", "--security", "SASL_SSL", "--nemesis", "kill,certificates"]
    words += ["--time-limit", "10", "--interval", "2", "--rate", "30"]
    words += ["--controllers", "1", "--brokers", "2", "--replication", "2"]
    assert jepsen([*words, "--store", str(tmp_path / "store")]) == 0
    folder = RunFolder.open(tmp_path / "store" / "latest")
    results = json.loads((folder.path / "results.json").read_text())
    assert results["checkers"]["acl"]["valid"] is True
    assert results["checkers"]["acl"]["statistics"]["certain_uses"] > 20
