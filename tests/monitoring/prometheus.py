"""A real Prometheus that scrapes nodes and evaluates expressions and rules."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from raftctl.localcluster.ports import free_ports
from tests.debian_programs import program
from tests.integration.clusters import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_ANSWER_S = 20
_STOP_S = 20


class Prometheus:
    """The HTTP API of a Prometheus that runs."""

    def __init__(self, url: str) -> None:
        self._url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression has now; ValueError with the reason if it is wrong."""
        answer = self._get("query", {"query": expression})
        result = answer["result"]
        if answer["resultType"] == "scalar":
            return [{"metric": {}, "value": result}]
        assert isinstance(result, list)
        return result

    def expressions_of_alerts(self) -> dict[tuple[str, str], str]:
        """Group and name of each alert to its expression."""
        groups = self._get("rules", {"type": "alert"})["groups"]
        return {
            (group["name"], rule["name"]): rule["query"]
            for group in groups
            for rule in group["rules"]
        }

    def firing(self) -> set[tuple[str, str]]:
        """Group and name of the alerts that fire."""
        groups = self._get("rules", {"type": "alert"})["groups"]
        return {
            (group["name"], rule["name"])
            for group in groups
            for rule in group["rules"]
            if rule["state"] == "firing"
        }

    def summaries(self) -> list[str]:
        """The summaries of all alerts that fire or are about to."""
        alerts = self._get("alerts", {})["alerts"]
        return [alert["annotations"]["summary"] for alert in alerts]

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            self._get("query", {"query": "1"})
        except (OSError, ValueError):
            return False
        return True

    def _get(self, what: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        url = f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=_ANSWER_S) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise ValueError(f"{parameters}: {error.read().decode()}") from None
        data = answer["data"]
        assert isinstance(data, dict)
        return data


@contextlib.contextmanager
def running_prometheus(
    folder: Path, targets: Mapping[str, Mapping[str, str]], rules: Mapping[str, str]
) -> Iterator[Prometheus]:
    """Prometheus with nodes as targets, `host:port` to labels, and files of rules, name to text.

    It scrapes and evaluates each second.
    """
    folder.mkdir()
    for name, text in rules.items():
        (folder / name).write_text(text)
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": sorted(rules),
        "scrape_configs": [
            {
                "job_name": "raftctl",
                "static_configs": [
                    {"targets": [address], "labels": dict(labels)}
                    for address, labels in targets.items()
                ],
            }
        ],
    }
    path = folder / "prometheus.yml"
    path.write_text(json.dumps(config))
    [port] = free_ports(1)
    command = [
        str(program("prometheus")),
        f"--config.file={path}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    prometheus = Prometheus(f"http://127.0.0.1:{port}")
    try:
        wait_until(prometheus.is_ready, lambda: (folder / "log").read_text())
        yield prometheus
    finally:
        process.terminate()
        process.wait(_STOP_S)
