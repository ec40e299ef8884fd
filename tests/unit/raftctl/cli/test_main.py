"""Exit statuses, one-line errors, storage commands, the light start."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import raftctl
from raftctl.cli import _output as output
from raftctl.cli import app
from raftctl.cli._output import table
from raftctl.cli.files import parse_overrides, read_config_file
from raftctl.cli.kafka import admin
from raftctl.cli.main import plain_start, run
from raftctl.cli.offline.storage import random_uuid_text
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.ids import parse_uuid

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """
process.roles=controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=CONTROLLER://:9093
log.dirs=data-a,data-b
"""


@pytest.fixture
def properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "node.properties"
    path.write_text(TEXT)
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["start", "--config", "f"], ("f", [])),
        (["start", "-o", "a=1", "--config", "f", "--override", "b=2"], ("f", ["a=1", "b=2"])),
        (["start"], None),
        (["start", "--help"], None),
        (["start", "--config"], None),
        (["start", "--config", "f", "--config", "g"], None),
        (["start", "--config", "f", "--what", "g"], None),
        (["start", "-o", "a=1"], None),
        (["up", "--config", "f"], None),
    ],
)
def test_plain_start(arguments: list[str], expected: tuple[str, list[str]] | None) -> None:
    assert plain_start(arguments) == expected


def test_a_command_imports_nothing_for_others() -> None:
    """Each `raftctl topics list` of a script would pay for the node, the logs and the shell."""
    script = (
        "import sys; from raftctl.cli.main import run\n"
        "assert run(['topics', '--help']) == run(['status', '--help']) == 0\n"
        "import raftctl.localcluster.status, raftctl.localcluster.cluster\n"
        "heavy = ('aiohttp', 'asyncio', 'structlog', 'raftctl.config', 'raftctl.metadata')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "[]", result.stderr


def test_the_command_line_of_a_node_is_light() -> None:
    """Libraries that only other commands need cost each node memory and time."""
    script = (
        "import sys; from raftctl.cli.main import run\n"
        "assert run(['start', '--config', '/nowhere']) == 2\n"
        "print([m for m in ('typer', 'rich', 'confluent_kafka', 'psutil') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stdout == "[]\n"
    assert result.stderr.startswith("raftctl: --config /nowhere: cannot be read: No such file")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ConfigError("node.id: bad"), 2, "raftctl: node.id: bad\n"),
        (
            KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "it is there"),
            1,
            "raftctl: TOPIC_ALREADY_EXISTS: it is there\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
@pytest.mark.req("A2")
def test_errors_become_statuses(
    error: BaseException,
    status: int,
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(admin, "admin_client", fail)
    assert run(["topics", "list", "--bootstrap-server", "127.0.0.1:1"]) == status
    assert capsys.readouterr().err == line


@pytest.mark.parametrize("arguments", [["frob"], ["up", "--frob"], ["version", "--output", "xml"]])
def test_bad_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "Error" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["raftctl"] == raftctl.__version__
    assert run(["version"]) == 0
    told = capsys.readouterr().out
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == told
    assert raftctl.__version__ in told


def test_overrides() -> None:
    assert parse_overrides(["a=1", "b = x=y"]) == {"a": "1", "b": " x=y"}
    with pytest.raises(ConfigError, match="-o nonsense: write key=value"):
        parse_overrides(["nonsense"])


def test_directories_become_absolute(properties: str, tmp_path: Path) -> None:
    config = read_config_file(properties, ["metadata.log.dir=meta"])
    assert config.log_dirs == (str(tmp_path / "data-a"), str(tmp_path / "data-b"))
    assert config.metadata_directory == str(tmp_path / "meta")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "node.properties"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read: not UTF-8"):
        read_config_file(str(path))


def test_random_uuid_is_a_cluster_id() -> None:
    for _ in range(200):
        text = random_uuid_text()
        assert parse_uuid(text)
        assert not text.startswith("-")


def test_format_and_info(
    properties: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_id = random_uuid_text()
    formatting = ["storage", "format", "--config", properties, "--cluster-id"]
    assert run(["storage", "info", "--config", properties]) == 1
    capsys.readouterr()
    assert run([*formatting, cluster_id, "--output", "json"]) == 0
    formatted = json.loads(capsys.readouterr().out)["formatted"]
    assert formatted == [str(tmp_path / "data-a"), str(tmp_path / "data-b")]
    assert run(["storage", "info", "--config", properties, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["cluster_id"], one["node_id"]) for one in found] == [(cluster_id, 1)] * 2
    assert found[0]["directory_id"] != found[1]["directory_id"]
    assert run([*formatting, cluster_id]) == 2
    assert "is formatted already" in capsys.readouterr().err
    assert run([*formatting, cluster_id, "--ignore-formatted"]) == 0


def test_format_leaves_another_clusters_directory_alone(
    properties: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formatting = ["storage", "format", "--config", properties, "--cluster-id"]
    assert run([*formatting, "short"]) == 2
    assert "raftctl storage random-uuid makes one" in capsys.readouterr().err
    assert not (tmp_path / "data-a").exists()
    assert run([*formatting, random_uuid_text()]) == 0
    before = (tmp_path / "data-a" / "meta.properties").read_text()
    assert run([*formatting, random_uuid_text(), "--ignore-formatted"]) == 2
    assert "log.dirs" in capsys.readouterr().err
    assert (tmp_path / "data-a" / "meta.properties").read_text() == before


def test_table_aligns_numbers_right() -> None:
    text = table(("NAME", "N"), [("a", 5), ("long", 1_000), ("x", None)])
    assert text == "NAME     N\na        5\nlong  1000\nx        -\n"
    assert table(("N",), [(5,), (1_000,)]) == "   N\n   5\n1000\n"
    assert table(("A", "B"), []) == "nothing to show\n"
    assert table(("A", "B"), [], "no such thing") == "no such thing\n"
    assert table(("A", "B"), [(True, False)]) == "A    B\nyes  no\n"


@pytest.mark.req("A1")
def test_help_shows_each_command_once_by_topic_in_a_whole_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    sections = [name for names in app.SECTIONS.values() for name in names]
    assert sorted(sections) == sorted([*app.GROUPS, *app.COMMANDS])
    for group in ([], *([name] for name in app.GROUPS)):
        assert run([*group, "--help"]) == 0
        told = capsys.readouterr().out
        assert "[OPTIONS] COMMAND [ARGS]..." in told
        assert not [line for line in told.splitlines()[1:] if line.endswith("...")], told
        assert max(map(len, told.splitlines())) <= 80


def test_a_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    names, rows = ("NAME", "AGE", "SIZE"), [("a", 5, 123), ("b", 66, None)]
    whole = "NAME  AGE  SIZE\na       5   123\nb      66     -\n"
    for columns, expected in [
        (15, whole),
        (14, "NAME  SIZE\na      123\nb        -\n"),
        (9, "NAME  a\nSIZE  123\n\nNAME  b\nSIZE  -\n"),
    ]:
        monkeypatch.setattr(output, "_terminal_width", lambda width=columns: width)
        assert table(names, rows, optional=("AGE",)) == expected
    monkeypatch.setattr(output, "_terminal_width", lambda: None)
    assert table(names, rows, optional=("AGE",)) == whole, "a program gets everything"


def test_topics_say_when_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--bootstrap-server", "--bootstrap-servers"):
        assert run(["topics", "list", option, "127.0.0.1:1", "--timeout", "0.2"]) == 1
        assert "BROKER_NOT_AVAILABLE" in capsys.readouterr().err
