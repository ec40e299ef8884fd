"""The option `--fast` of the unit tests, which `make test-unit` takes: without the slow files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SLOW = frozenset(
    {
        # They start Spark, other processes or compilers.
        "test_admin_commands.py",
        "test_client.py",
        "test_clients.py",
        "test_collector.py",
        "test_command_line.py",
        "test_compiled_lines.py",
        "test_compiled_registers.py",
        "test_completion.py",
        "test_control.py",
        "test_launcher.py",
        "test_local_faults.py",
        "test_log_blocks.py",
        "test_nodes.py",
        "test_real_clients.py",
        "test_source.py",
        "test_spark_check.py",
        "test_spark_package.py",
        "test_spark_preflight.py",
        "test_spark_series.py",
        "test_spark_standings.py",
        "test_test_command.py",
        "test_verifiable.py",
        "test_warm.py",
        "test_wrong_input.py",
        # They try very many inputs.
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
"""Names of files that took more than a second or two, found by `--durations=0`. A name without a
folder stays true when tests move."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--fast`."""
    parser.addoption("--fast", action="store_true", help="leave out the slow files of tests/unit")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves a slow file out with `--fast`; None has pytest decide."""
    if config.getoption("--fast", default=False) and collection_path.name in SLOW:
        return True
    return None
