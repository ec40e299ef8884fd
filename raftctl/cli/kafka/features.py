"""`raftctl features`: over the Kafka protocol (row C11), as kafka-features.sh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._options import CommandGroup, DryRunOption
from raftctl.cli.kafka.admin import Cluster
from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

app = CommandGroup("Shows and changes feature levels, as metadata.version.")

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""KIP-584's kinds of change."""
FeatureOption = Annotated[
    list[str],
    typer.Option("--feature", metavar="NAME=LEVEL", help="Feature and level; may be repeated."),
]


@app.command()
def describe(
    cluster: Cluster,
) -> None:
    """Shows the levels that brokers support, and those in force."""
    with cluster.open() as client:
        features = client.describe_features()
    found = [_described(name, levels) for name, levels in sorted(features.items())]
    cluster.show_rows(("FEATURE", "LOWEST", "HIGHEST", "IN-FORCE"), found)


def _described(name: str, levels: Mapping[str, Any]) -> dict[str, Any]:
    lowest, highest = levels.get("supported", (None, None))
    _, level = levels.get("finalized", (None, 0))
    return {"feature": name, "lowest": lowest, "highest": highest, "level": level}


@app.command()
def upgrade(
    cluster: Cluster,
    feature: FeatureOption,
    dry_run: DryRunOption = False,
) -> None:
    """Raises levels. The metadata may then hold what older nodes cannot read."""
    _update(cluster, feature, UPGRADE, dry_run)


@app.command()
def downgrade(
    cluster: Cluster,
    feature: FeatureOption,
    unsafe: Annotated[
        bool,
        typer.Option(
            "--unsafe",
            help="Also if metadata would be lost; raftctl's own controller still refuses.",
        ),
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Lowers levels. Refused if the metadata holds what the lower level does not know."""
    kind = UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE
    _update(cluster, feature, kind, dry_run)


def _update(cluster: Cluster, features: list[str], kind: int, dry_run: bool) -> None:
    levels = dict(map(parse_feature, features))
    if len(levels) < len(features):
        raise ConfigError("--feature names a feature twice: give one level for each")
    updates = {name: (kind, level) for name, level in levels.items()}
    with cluster.open() as client:
        timeout_ms = int(cluster.timeout * 1000)
        client.update_features(updates, validate_only=dry_run, timeout_ms=timeout_ms)
    done = "would be" if dry_run else "is"
    lines = [f"{name} {done} {level}\n" for name, level in levels.items()]
    cluster.show({"features": levels, "dry_run": dry_run}, "".join(lines))


def parse_feature(text: str) -> tuple[str, int]:
    """A feature and its level, written NAME=LEVEL; ConfigError if it is something else."""
    name, _, level = text.partition("=")
    if not name or not level.isdecimal():
        raise ConfigError(f"--feature {text!r}: write NAME=LEVEL; the level 0 is none at all")
    return name, int(level)
