"""The lines that the demo writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from raftctl.cli.local.demo import _source as source
from raftctl.cli.local.demo._source import one_file, standard_library
from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def test_the_standard_library_is_large_and_limited() -> None:
    few = standard_library(1_000)
    records = list(few.records())
    assert few.lines == len(records) == 1_000
    assert len({key for key, _ in records}) > 10
    assert all(line for _, line in records)
    assert standard_library().lines > 100_000


def test_lines_of_a_key_stay_in_order() -> None:
    limited = standard_library(20_000)
    texts: dict[bytes, list[bytes]] = {}
    for key, line in limited.records():
        texts.setdefault(key, []).append(line)
    paths = dict(limited.files)
    for key, lines in texts.items():
        assert paths[key].read_bytes().startswith(b"".join(lines))


def test_one_file_has_keys_of_a_thousand_lines(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(2_500)) + b"no end")
    records = list(one_file(path).records())
    assert b"".join(line for _, line in records) == path.read_bytes()
    assert sorted({key for key, _ in records}) == [b"text:0", b"text:1", b"text:2"]


def test_a_long_line_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LINE_BYTES_MAX", 4)
    path = tmp_path / "text"
    path.write_bytes(b"abcdefghij\n")
    assert [line for _, line in one_file(path).records()] == [b"abcd", b"efgh", b"ij\n"]


def test_unusable_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--input .*cannot be read"):
        one_file(tmp_path / "absent")
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigError, match="has no lines"):
        one_file(tmp_path / "empty")
