"""Writes what operators get from the metrics; with `--check` exit status 1 if a file is stale."""

from __future__ import annotations

import sys

from tests.monitoring import alerts, dashboard, reference, strimzi
from tests.monitoring.definitions import ROOT


def main() -> None:
    """Writes the files, or compares."""
    stale = []
    for name, text in files().items():
        path = ROOT / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv[1:]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"stale: {', '.join(stale)}; run python -m tests.monitoring")


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
