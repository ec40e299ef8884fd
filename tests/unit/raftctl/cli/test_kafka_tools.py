"""Command lines that are written for Apache Kafka's tools."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from typer.main import get_command

from raftctl.cli._kafka_tools import ACTIONS, ARGUMENTS, FLAGS, REFUSED, TOOLS, VALUES, translate
from raftctl.cli.app import make_app
from raftctl.cli.main import BAD_INPUT, run
from raftctl.errors import ConfigError

pytestmark = pytest.mark.req("A1")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("topics create --topic x --partitions 3", "topics create x --partitions 3"),
        ("topics describe --topic=x", "topics describe x"),
        ("kafka-topics.sh list", "topics list"),
        ("consumer-groups delete --group a --group b", "groups delete a b"),
        ("groups reset-offsets --group g --topic t", "groups reset-offsets g --topic t"),
        ("kafka-console-consumer --topic t", "console consume --topic t"),
        ("partitions list --topic t", "partitions list --topic t"),
        ("kafka-topics.sh --create --topic t --partitions 3", "topics create t --partitions 3"),
        ("topics --bootstrap-server h:1 --list", "topics list --bootstrap-server h:1"),
        (
            "consumer-groups --group g --reset-offsets --topic t --to-earliest --execute",
            "groups reset-offsets g --topic t --to earliest",
        ),
        ("groups reset-offsets g --to-offset 5", "groups reset-offsets g --to offset=5"),
        ("groups reset-offsets g --shift-by=-5", "groups reset-offsets g --to shift=-5"),
        (
            "kafka-configs.sh --describe --topic t --all",
            "configs describe --entity-type topic --entity-name t --all",
        ),
        ("configs describe --broker=1", "configs describe --entity-type broker --entity-name 1"),
        ("kafka-acls.sh --list", "acls list"),
        ("kafka-log-dirs.sh --describe --broker-list 1", "brokers log-dirs --broker 1"),
        (
            "kafka-metadata-quorum.sh --bootstrap-controller h:1 describe",
            "quorum describe --controllers h:1",
        ),
        (
            "metadata-quorum describe --bootstrap-controller h:1",
            "quorum describe --controllers h:1",
        ),
        ("quorum add-controller --config f", "quorum add-voter --config f"),
        ("topics --help", "topics --help"),
        ("topics create --list", "topics create --list"),
        (
            "kafka-features.sh --bootstrap-server h:1 describe",
            "features describe --bootstrap-server h:1",
        ),
        ("kafka-storage.sh format -t ID -c FILE", "storage format --cluster-id ID --config FILE"),
        ("kafka-dump-log.sh --files a.log --print-data-log", "log dump a.log --records"),
        ("consumer-perf-test --topic t --messages 9", "bench consume --topic t --num-records 9"),
        ("configs alter --add-config a=b", "configs alter --add-config a=b"),
        ("topics delete -- --topic", "topics delete -- --topic"),
        ("status", "status"),
        ("", ""),
    ],
)
def test_they_are_understood(theirs: str, ours: str) -> None:
    assert translate(theirs.split()) == ours.split()


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        ("topics --list --zookeeper h:1", "--zookeeper: write --bootstrap-server"),
        ("topics --describe --unavailable-partitions", "raftctl partitions list --unavail"),
        ("topics alter t --config a=b", "raftctl configs alter --topic TOPIC --set KEY=VALUE"),
        ("groups describe --all-groups", "raftctl groups list shows all"),
        ("elect-leaders --topic t --partition 0", "write --partition TOPIC:NUMBER"),
        ("quorum describe --bootstrap-server h:1", "write --controllers"),
    ],
)
def test_what_has_no_counterpart_is_answered_with_the_remedy(
    theirs: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError):
        translate(theirs.split())
    assert run(theirs.split()) == BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_no_option_or_command_of_ours_is_hidden() -> None:
    root = get_command(make_app())
    assert isinstance(root, typer.core.TyperGroup)
    assert not set(TOOLS) & set(root.commands)
    for group, actions in ACTIONS.items():
        found = root.commands[group]
        assert isinstance(found, typer.core.TyperGroup)
        assert set(actions.values()) <= set(found.commands)
    for (group, name), option in ARGUMENTS.items():
        (command,) = commands_of(root, (group, name))
        assert option not in options_of(command)
        assert any(one.param_type_name == "argument" for one in command.params)
    for table in (FLAGS, VALUES, REFUSED):
        for path, theirs in table.items():
            for command in commands_of(root, path):
                assert not set(theirs) & options_of(command)


def commands_of(command: Any, path: tuple[str, ...]) -> list[Any]:
    """The command, or all of the group, that the path leads to."""
    for name in path:
        command = command.commands[name]
    children = getattr(command, "commands", None)
    if children is None:
        return [command]
    return [one for child in children.values() for one in commands_of(child, ())]


def options_of(command: Any) -> set[str]:
    return {name for one in command.params for name in one.opts}
