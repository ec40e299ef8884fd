"""A matrix of tests: which there are, what came of each, and how that is shown and kept.

<store>/test-all/<time>/matrix.json  all tests with what came of them so far; read back to go on
<store>/test-all/<time>/matrix.md    the same for people
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.checkers.verdict import WORDS
from jepsen.core.spec import RunSpec, can_suffer
from jepsen.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from jepsen.checkers.verdict import Valid

MINUTE_S = 60
IMPOSSIBLE = "-"
"""Where a workload has nothing that such a fault could break."""
NOT_RUN = "not run"
CRASHED = "crashed"
JSON_NAME = "matrix.json"
MARKDOWN_NAME = "matrix.md"


class CellOutcome(NamedTuple):
    """Outcome of one run."""

    valid: Valid | None
    """None: the harness or the cluster failed, so that there was nothing to judge."""
    folder: str
    found: tuple[str, ...] = ()
    """Why it is not valid, in a few words each."""
    seconds: float = 0.0
    faults: str = ""
    """How often each kind struck, `kill 3, pause 0`."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A test of the matrix."""

    spec: RunSpec
    outcome: CellOutcome | None = None
    """None: not run yet."""

    @property
    def word(self) -> str:
        """Outcome in a word, for people."""
        if self.outcome is None:
            return NOT_RUN
        return CRASHED if self.outcome.valid is None else WORDS[self.outcome.valid]

    @property
    def nemesis(self) -> str:
        """The column of the matrix."""
        return ",".join(self.spec.nemesis) or self.spec.without_nemesis

    @property
    def judged(self) -> bool:
        """True if there is a verdict."""
        return self.outcome is not None and self.outcome.valid is not None

    def again(self) -> Cell:
        """To be run once more; on a topic of its own, since records of the first may be there."""
        topic, _, attempt = self.spec.topic.partition(".")
        return Cell(replace(self.spec, topic=f"{topic}.{int(attempt or 1) + 1}"))

    def to_json(self) -> dict[str, Any]:
        """Return the form that `from_json` reads, with the verdict first."""
        ran = {} if self.outcome is None else self.outcome._asdict()
        nemesis = list(self.spec.nemesis)
        named = {"workload": self.spec.workload, "nemesis": nemesis, "verdict": self.word}
        return {**named, **ran, "spec": self.spec.to_json()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Cell:
        """KeyError, TypeError or InputError for anything else."""
        spec = RunSpec.from_json(document["spec"])
        if document["verdict"] == NOT_RUN:
            return cls(spec)
        ran = {name: document[name] for name in CellOutcome._fields if name in document}
        return cls(spec, CellOutcome(**{**ran, "found": tuple(ran["found"])}))


def matrix(
    template: RunSpec, workloads: Sequence[str], nemeses: Sequence[Sequence[str]]
) -> Iterator[Cell]:
    """Return a test for each pair, those without faults first; topics are of one run each."""
    columns = list(dict.fromkeys([(), *map(tuple, nemeses)]))
    pairs = [(n, w) for n in columns for w in dict.fromkeys(workloads) if _meet(w, n)]
    for number, (nemesis, workload) in enumerate(pairs):
        topic = f"{template.topic or f'jepsen-{template.seed}'}-{number}"
        yield Cell(replace(template, workload=workload, nemesis=nemesis, topic=topic))


def _meet(workload: str, nemesis: Sequence[str]) -> bool:
    if ":" in workload:
        # A scenario has faults of its own.
        return not nemesis
    return all(can_suffer(workload, fault) for fault in nemesis)


def table(cells: Sequence[Cell]) -> list[list[str]]:
    """Return the matrix in words: a row a workload, a column a nemesis, with a head for each."""
    words: dict[tuple[str, str], list[str]] = {}
    for one in cells:
        words.setdefault((one.spec.workload, one.nemesis), []).append(one.word)
    columns = list(dict.fromkeys(one.nemesis for one in cells))
    rows = list(dict.fromkeys(one.spec.workload for one in cells))
    return [
        ["", *columns],
        *([row, *(_together(words.get((row, column), ())) for column in columns)] for row in rows),
    ]


def _together(words: Sequence[str]) -> str:
    """The verdicts of all seeds of one test: one as it is, of several their numbers."""
    if len(words) <= 1:
        return words[0] if words else IMPOSSIBLE
    return ", ".join(f"{count} {word}" for word, count in Counter(words).items())


def text(cells: Sequence[Cell]) -> list[str]:
    """Return the matrix in columns as wide as they need."""
    lines = table(cells)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def summary(cells: Sequence[Cell]) -> str:
    """Return the number of tests of each verdict, in a sentence."""
    words = [one.word for one in cells]
    kinds = [*WORDS.values(), CRASHED, NOT_RUN]
    counted = [f"{words.count(kind)} {kind}" for kind in kinds if kind in words]
    seconds = sum(one.outcome.seconds for one in cells if one.outcome is not None)
    ran = f"{seconds / MINUTE_S:.0f} minutes" if seconds >= 2 * MINUTE_S else f"{seconds:.0f} s"
    return f"{len(cells)} tests: {', '.join(counted)}, {ran} of running"


def progress(cells: Sequence[Cell], number: int, jobs: int = 1) -> str:
    """Which test begins, and how long the rest takes if it is as what has run; `jobs` at a time."""
    begins = f"{cells[number].spec.name}: {number + 1} of {len(cells)}"
    took = [one.outcome.seconds for one in cells if one.outcome is not None]
    if not took:
        return begins
    left_s = (len(cells) - len(took)) * sum(took) / len(took) / jobs
    left = f"{left_s / 60:.0f} minutes" if left_s >= 2 * MINUTE_S else f"{left_s:.0f} s"
    return f"{begins}, about {left} to go"


def markdown(command: str, cells: Sequence[Cell]) -> str:
    """Return the matrix as a page, with the findings."""
    head, *rows = table(cells)
    lines = [
        "# Verdicts",
        "",
        f"    {command}",
        "",
        f"{summary(cells)}.",
        "",
        f"| {' | '.join(['workload', *head[1:]])} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    lines += _faults(cells)
    for one in cells:
        if one.outcome is not None and one.outcome.valid is not True:
            lines += ["", f"## {one.spec.name}: {one.word}", ""]
            lines += [f"`{one.outcome.folder}`", ""] * bool(one.outcome.folder)
            lines += [f"* {reason}" for reason in one.outcome.found]
    return "\n".join(lines) + "\n"


def _faults(cells: Sequence[Cell]) -> Iterator[str]:
    """How often what struck, where something was to."""
    struck = [(one.spec.name, one.outcome.faults) for one in cells if one.outcome is not None]
    if any(faults for _, faults in struck):
        yield from ("", "Faults that struck:", "")
        yield from (f"* {name}: {faults}" for name, faults in struck if faults)


def write(folder: Path, command: str, cells: Sequence[Cell]) -> None:
    """Keep the matrix as it stands; a file is whole at any time."""
    document = {"command": command, "tests": [one.to_json() for one in cells]}
    pages = {
        JSON_NAME: json.dumps(document, indent=2, ensure_ascii=False) + "\n",
        MARKDOWN_NAME: markdown(command, cells),
    }
    for name, page in pages.items():
        new = folder / f".{name}.new"
        new.write_text(page, encoding="utf-8")
        new.replace(folder / name)


def read(folder: Path) -> tuple[str, list[Cell]]:
    """Return the command and the tests of a matrix that was begun; InputError."""
    path = folder / JSON_NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return document["command"], [Cell.from_json(one) for one in document["tests"]]
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}: name a folder such as store/test-all/latest"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a matrix of tests: {error!r}") from None
