"""From histories in text to tables in Parquet, in memory that does not grow with the history."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from jepsen.errors import InputError
from jepsen.history import HistoryError, ended_operations
from jepsen.history.formats import Format, detect, json_lines, read_text
from jepsen.history.table import OPERATIONS, batch_of, row_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jepsen.history import Op

BATCH_ROWS = 20_000
FILE_ROWS = 500_000
"""A file is what one task reads."""


def stage(files: Sequence[str], failures: str, folder: Path) -> None:
    """Writes the operations of text files below the folder. Raises InputError, naming the file.

    `failures` as for `jepsen check`: `auto`, `observe` or `ignore`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = (row for file in files for row in rows_of(file, failures))
    number = 0
    while True:
        first = list(islice(rows, BATCH_ROWS))
        if number and not first:
            return
        with pq.ParquetWriter(folder / f"part-{number:05}.parquet", OPERATIONS) as writer:
            if first:
                writer.write_batch(batch_of(first))
            for _ in range(FILE_ROWS // BATCH_ROWS - 1):
                more = list(islice(rows, BATCH_ROWS))
                if not more:
                    return
                writer.write_batch(batch_of(more))
        number += 1


def rows_of(file: str, failures: str) -> Iterator[tuple[object, ...]]:
    """The rows of `OPERATIONS` of a history in text. Raises InputError, naming the file."""
    with readable(file):
        form, ops = operations_in(file)
        lenient = failures == "ignore" or (failures == "auto" and form is Format.EDN)
        for operation in ended_operations(ops):
            yield row_of(file, lenient, operation)


@contextmanager
def readable(file: str) -> Iterator[None]:
    """Raises InputError, naming the file, where it turns out to be no history."""
    try:
        yield
    except UnicodeDecodeError:
        raise InputError(f"{file}: not a history: it is not text") from None
    except ValueError as error:
        raise InputError(f"{file}: {error}") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None


def history_file(path: Path) -> Path:
    """The history of a run if the path is a run folder, else the path itself."""
    return path / "history.jsonl" if path.is_dir() else path


def operations_in(file: str) -> tuple[Format, Iterator[Op]]:
    """JSON lines are read while they are used; the other forms are small. See `readable`."""
    path = history_file(Path(file))
    with path.open(encoding="utf-8", newline="\n") as opened:
        first = opened.readline()
    if first.startswith("{") and _is_json_lines(first):
        return Format.JSON_LINES, _json_lines(path)
    text = path.read_text(encoding="utf-8")
    form = detect(text)
    return form, iter(read_text(text, form))


def _is_json_lines(first: str) -> bool:
    try:
        return detect(first) is Format.JSON_LINES
    except HistoryError:
        return False


def _json_lines(path: Path) -> Iterator[Op]:
    with path.open(encoding="utf-8", newline="\n") as file:
        yield from json_lines(file)
