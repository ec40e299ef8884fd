"""Command lines that are written for Apache Kafka's tools."""

from __future__ import annotations

import pytest
import typer
from typer.main import get_command

from raftctl.cli.app import OPTIONS, TOOLS, make_app, translate

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
        ("topics delete -- --topic", "topics delete -- --topic"),
        ("status", "status"),
        ("", ""),
    ],
)
def test_they_are_understood(theirs: str, ours: str) -> None:
    assert translate(theirs.split()) == ours.split()


def test_no_option_or_command_of_ours_is_hidden() -> None:
    root = get_command(make_app())
    assert isinstance(root, typer.core.TyperGroup)
    assert not set(TOOLS) & set(root.commands)
    for (group, name), option in OPTIONS.items():
        found = root.commands[group]
        assert isinstance(found, typer.core.TyperGroup)
        command = found.commands[name]
        assert option not in {name for one in command.params for name in one.opts}
        assert any(one.param_type_name == "argument" for one in command.params)
