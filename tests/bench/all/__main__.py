"""`make bench-all`: runs the parts that fit an hour, and writes the JSON and the page.

    python -m tests.bench.all --only puts brokers
    python -m tests.bench.all --from out/bench-all.json

`--keep` begins with the figures that are in the JSON already, and replaces those of the parts that
run: so a part that failed, or one that does not fit the hour, is added to the others.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.all import page
from tests.bench.all.goals import State
from tests.bench.all.parts import PARTS, figures_of
from tests.bench.figures import report
from tests.bench.kafka.session import end_with_clusters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.all.parts import Part

ROOT = Path(__file__).resolve().parents[3]
END_S = 60.0
"""Given to a part that is ended, so that it ends its clusters."""
OK, LATE = "ok", "out of time"


def main(words: Sequence[str]) -> None:
    """Runs the parts named, or all of the hour; the exit status says if one failed."""
    given = _parse(words)
    end_with_clusters()
    if given.source is not None:
        page.write(json.loads(given.source.read_text(encoding="utf-8")), given.page)
        return
    names = given.only or [name for name, part in PARTS.items() if part.within_hour]
    document = _begun(given.output if given.keep else None)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        sys.stdout.write(f"== {name}: {PARTS[name].about}, at most {PARTS[name].budget_s} s\n")
        sys.stdout.flush()
        ran, figures = run(PARTS[name], quick=given.quick)
        sys.stdout.write(f"{name}: {ran['ended']} after {ran['seconds']} s\n")
        document["parts"][name] = ran
        document["figures"] |= figures
        outcomes = page.outcomes(document["figures"])
        document["goals"] = [one.document() for one in outcomes]
        # At once, since an hour of work may fail in the end.
        given.output.write_text(json.dumps(document, indent=2), encoding="utf-8")
        page.write(document, given.page)
    sys.stdout.write("".join(f"{one}\n" for one in outcomes if one.state is not State.ABSENT))
    failed = [name for name in names if document["parts"][name]["ended"] != OK]
    if failed:
        sys.exit("could not be measured in whole: " + ", ".join(failed))


def run(part: Part, *, quick: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs a part in a process of its own; what became of it, and its figures."""
    with tempfile.TemporaryDirectory(prefix="raftctl-bench-all-") as directory:
        output = Path(directory) / "figures.json"
        command = [sys.executable, "-m", *part.words(str(output), quick=quick)]
        began = time.monotonic()
        ended = _ended(command, part.budget_s)
        ran = {
            "about": part.about,
            "command": " ".join(command[1:-2]),
            "budget_s": part.budget_s,
            "seconds": round(time.monotonic() - began),
            "ended": ended,
        }
        if not output.exists():
            return ran, {}
        found = json.loads(output.read_text(encoding="utf-8"))
    return {**ran, "warmth": found.get("warmth", {})}, figures_of(part, found)


def _ended(command: Sequence[str], budget_s: float) -> str:
    """How it ended; by then it has, with all its clusters."""
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            status = process.wait(budget_s)
        except subprocess.TimeoutExpired:
            return LATE
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.kill()
    return OK if status == 0 else f"exit status {status}"


def _begun(kept: Path | None) -> dict[str, Any]:
    if kept is not None and kept.exists():
        found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    asked = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return {**report({}), "commit": commit.stdout.strip() or "unknown", "parts": {}, "goals": []}


def _parse(words: Sequence[str]) -> argparse.Namespace:
    listed = [
        f"  {name:12} {part.budget_s:6} s  {part.about}{'' if part.within_hour else ' (if named)'}"
        for name, part in PARTS.items()
    ]
    parser = argparse.ArgumentParser(
        prog="tests.bench.all",
        description=__doc__,
        epilog="\n".join(["parts, with their time budgets:", *listed]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=list(PARTS), metavar="PART")
    parser.add_argument("--quick", action="store_true", help="a moment of each, ours alone")
    parser.add_argument("--keep", action="store_true", help="figures that are in the JSON already")
    parser.add_argument("--output", type=Path, default=Path("out/bench-all.json"))
    parser.add_argument("--page", type=Path, default=Path("out/figures"), metavar="FOLDER")
    parser.add_argument("--from", type=Path, dest="source", help="write the page of this JSON only")
    return parser.parse_args(words)


if __name__ == "__main__":
    main(sys.argv[1:])
