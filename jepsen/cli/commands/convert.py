"""`jepsen convert`: a history in another form, for other programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jepsen.cli._histories import history_of, source_of
from jepsen.cli._output import tell
from jepsen.errors import InputError
from jepsen.history import HistoryError
from jepsen.history.formats import Format, to_json, write_edn
from jepsen.history.parquet import available, write_parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jepsen.history import Op


def convert(
    file: Annotated[str, typer.Argument(metavar="FILE", help="History to convert.")],
    target: Annotated[
        str, typer.Argument(metavar="NEW", help="File to write: *.edn, *.jsonl or *.parquet.")
    ],
    form: Annotated[
        Format, typer.Option("--format", metavar="auto|json|edn|log", help="Format of the file.")
    ] = Format.AUTO,
) -> None:
    """Writes a history as EDN, JSON lines or Parquet.

    Jepsen's tools read EDN. Lines are numbered again, from 0. Parquet has the operations of
    clients without those of the nemesis. An existing file is not overwritten.
    """
    path = Path(target)
    writer = _WRITERS.get(path.suffix)
    if writer is None:
        raise InputError(f"{target}: name it *{', *'.join(_WRITERS)}")
    if path.exists():
        raise InputError(f"{target}: exists already: choose another name")
    try:
        lines, _ = history_of(source_of(file), form)
        writer(path, [replace(op, index=index) for index, op in enumerate(lines)])
        tell(f"{target}: {len(lines):,} lines of a history")
    except HistoryError as error:
        raise InputError(f"{file}: {error}") from None
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror}") from None


def _edn(path: Path, history: Sequence[Op]) -> None:
    path.write_text(write_edn(history), encoding="utf-8")


def _json_lines(path: Path, history: Sequence[Op]) -> None:
    path.write_text("".join(f"{to_json(op)}\n" for op in history), encoding="utf-8")


def _parquet(path: Path, history: Sequence[Op]) -> None:
    if not available():
        raise InputError(f"{path}: Parquet needs pyarrow: pip install '.[parquet]' in a checkout")
    write_parquet(path, path.stem, history)


_WRITERS: dict[str, Callable[[Path, Sequence[Op]], None]] = {
    ".edn": _edn,
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}
