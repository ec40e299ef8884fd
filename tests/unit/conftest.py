"""The option `--fast`, which `make test-unit` takes: without the slow files. Slices by steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from raftctl.runtime import _slices

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SLOW = frozenset(
    {
        # They start Spark, other processes or compilers.
        "test_admin_commands.py",
        "test_client.py",
        "test_collector.py",
        "test_command_line.py",
        "compiled/test_lines.py",
        "compiled/test_registers.py",
        "test_completion.py",
        "test_control.py",
        "test_launcher.py",
        "test_local_faults.py",
        "spark/logs/test_blocks.py",
        "test_nodes.py",
        "test_real_clients.py",
        "spark/test_check.py",
        "spark/test_package.py",
        "spark/test_preflight.py",
        "spark/test_series.py",
        "spark/live/test_checkpoints.py",
        "test_test_command.py",
        "test_verifiable.py",
        "test_fork_server.py",
        "test_wrong_input.py",
        "server/test_consumer_groups.py",
        "server/test_connection.py",
        "quotas/test_rates.py",
        "server/test_connection_limits.py",
        "server/test_quotas.py",
        "server/test_groups.py",
        "clients/test_console.py",
        "cli/test_security_commands.py",
        "cli/test_main.py",
        "spark/test_generate.py",
        "rpc/test_rpc.py",
        "rpc/test_frames.py",
        "kv/test_kv_http.py",
        "controller_channel/test_node_client.py",
        # They try very many inputs.
        "controller/test_kv_coordination.py",
        "log/test_transactions.py",
        "log/test_compaction.py",
        "replication/test_fetcher.py",
        "test_partition_change_cache.py",
        "test_checker_cases.py",
        "test_checker_edits.py",
        "test_codec.py",
        "test_consumer_group_model.py",
        "test_determinism.py",
        "test_difference.py",
        "test_following.py",
        "test_forged_requests.py",
        "test_group_model.py",
        "test_kv_index.py",
        "test_kv_model.py",
        "test_large_requests.py",
        "test_list_append_cases.py",
        "test_many_groups.py",
        "test_migration_model.py",
        "test_oracle.py",
        "test_progress.py",
        "test_properties.py",
        "test_snapshot_invariants.py",
        "test_state_hashes.py",
    }
)
"""Files that took more than a second or two, found by `--durations=0`, as the end of their path."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--fast`."""
    parser.addoption("--fast", action="store_true", help="leave out the slow files of tests/unit")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves a slow file out with `--fast`; None has pytest decide."""
    if not config.getoption("--fast", default=False):
        return None
    path = collection_path.as_posix()
    return True if any(path.endswith(f"/{name}") for name in SLOW) else None


@pytest.fixture(autouse=True)
def slice_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets after how many steps a slice is over: by time, a test would depend on the machine."""

    def set_steps(steps: int) -> None:
        def begin(_slice_s: float) -> Callable[[], bool]:
            left = steps

            def is_over() -> bool:
                nonlocal left
                left -= 1
                return left <= 0

            return is_over

        monkeypatch.setattr(_slices, "_begin_slice", begin)

    set_steps(1_000)
    return set_steps
