"""Reads a node's configuration from its file and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from raftctl.config import NodeConfig


def read_config_file(path: str, overrides: Iterable[str] = ()) -> NodeConfig:
    """The node's configuration with absolute directories; ConfigError names the file or key."""
    from raftctl.config import load_config, warn_on_stderr

    given = parse_overrides(overrides)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"--config {path}: cannot be read: {reason}") from None
    config = load_config(text, given)
    # The node needs it anyway; a file that cannot be used ends before.
    from raftctl.runtime.real import RealFileSystem

    secrets = [key for key in config.written_secrets if key not in given]
    if secrets and RealFileSystem().is_readable_by_all(path):
        warn_on_stderr(
            f"--config {path}: all users may read it, and {secrets[0]} is a secret: chmod 600, or "
            "640 with the node's group"
        )
    metadata = config.metadata_log_dir
    return config.model_copy(
        update={
            "log_dirs": tuple(map(_absolute, config.log_dirs)),
            "metadata_log_dir": metadata and _absolute(metadata),
        }
    )


def parse_overrides(items: Iterable[str], option: str = "-o") -> dict[str, str]:
    """`key=value` items as a mapping; ConfigError, naming the option, for one without `=`."""
    overrides = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{option} {item}: write key=value")
        overrides[key.strip()] = value
    return overrides


def client_settings(items: list[str] | None) -> dict[str, str]:
    """The settings that `--command-property` gives to a client; see `parse_overrides`."""
    return parse_overrides(items or (), option="--command-property")


def _absolute(directory: str) -> str:
    return str(Path(directory).absolute())
