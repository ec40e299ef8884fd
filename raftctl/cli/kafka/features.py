"""`raftctl features`: over the Kafka protocol (row C11), as kafka-features.sh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._output import BootstrapOption, Output, OutputOption, show, table
from raftctl.cli.kafka.admin import TIMEOUT_S, TimeoutOption, open_admin
from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

app = typer.Typer(
    help="Shows and changes feature levels, as metadata.version.", no_args_is_help=True
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""KIP-584's kinds of change."""
FeatureOption = Annotated[
    list[str],
    typer.Option("--feature", metavar="NAME=LEVEL", help="Feature and level; may be repeated."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Checks the request; changes nothing.")
]


@app.command()
def describe(
    bootstrap_server: BootstrapOption,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Shows the levels that brokers support, and those in force."""
    with open_admin(bootstrap_server, timeout) as client:
        features = client.describe_features()
    found = [_described(name, levels) for name, levels in sorted(features.items())]
    rows = [list(one.values()) for one in found]
    show(output, found, table(("FEATURE", "LOWEST", "HIGHEST", "IN-FORCE"), rows))


def _described(name: str, levels: Mapping[str, Any]) -> dict[str, Any]:
    lowest, highest = levels.get("supported", (None, None))
    _, level = levels.get("finalized", (None, 0))
    return {"feature": name, "lowest": lowest, "highest": highest, "level": level}


@app.command()
def upgrade(
    bootstrap_server: BootstrapOption,
    feature: FeatureOption,
    dry_run: DryRunOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Raises levels. The metadata may then hold what older nodes cannot read."""
    _update(bootstrap_server, feature, UPGRADE, dry_run, timeout, output)


@app.command()
def downgrade(
    bootstrap_server: BootstrapOption,
    feature: FeatureOption,
    unsafe: Annotated[
        bool,
        typer.Option(
            "--unsafe",
            help="Also if metadata would be lost; raftctl's own controller still refuses.",
        ),
    ] = False,
    dry_run: DryRunOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Lowers levels. Refused if the metadata holds what the lower level does not know."""
    kind = UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE
    _update(bootstrap_server, feature, kind, dry_run, timeout, output)


def _update(
    bootstrap: str, features: list[str], kind: int, dry_run: bool, timeout_s: float, output: Output
) -> None:
    levels = dict(map(parse_feature, features))
    if len(levels) < len(features):
        raise ConfigError("--feature names a feature twice")
    updates = {name: (kind, level) for name, level in levels.items()}
    with open_admin(bootstrap, timeout_s) as client:
        client.update_features(updates, validate_only=dry_run, timeout_ms=int(timeout_s * 1000))
    done = "would be" if dry_run else "is"
    lines = [f"{name} {done} {level}\n" for name, level in levels.items()]
    show(output, {"features": levels, "dry_run": dry_run}, "".join(lines))


def parse_feature(text: str) -> tuple[str, int]:
    """A feature and its level, written NAME=LEVEL; ConfigError if it is something else."""
    name, _, level = text.partition("=")
    if not name or not level.isdecimal():
        raise ConfigError(f"--feature {text!r}: write NAME=LEVEL; the level 0 is none at all")
    return name, int(level)
