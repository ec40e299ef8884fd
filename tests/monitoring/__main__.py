"""Writes what operators get from the metrics; with `--check` exit status 1 if a file is stale."""

from __future__ import annotations

from raftctl.cli.reference import write_pages
from tests.monitoring import alerts, dashboard, reference, strimzi
from tests.monitoring.definitions import ROOT


def main() -> None:
    """Writes the files, or compares."""
    write_pages({ROOT / name: text for name, text in files().items()}, "tests.monitoring")


def files() -> dict[str, str]:
    """Path from the checkout to content."""
    return {
        "docs/reference/metrics.md": reference.page(),
        "docs/operate/alerts.yml": alerts.rules(),
        "docs/operate/runbook.md": alerts.runbook(),
        "docs/operate/grafana-dashboard.json": dashboard.text(),
        "docs/operate/strimzi.yml": strimzi.recording_rules(),
    }


if __name__ == "__main__":
    main()
