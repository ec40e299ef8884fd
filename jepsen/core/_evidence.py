"""Evidence: a run is valid only if its history shows that something was tested.

A run may have no anomaly because nothing was wrong, or because nothing was tried: a requested
fault never struck, clients got no answer, the final reads failed, or the run ended early. Each of
these makes the verdict unknown, with the reason and the remedy.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.checkers.registry import CHECKERS
from jepsen.checkers.verdict import Anomaly, Verdict, merge_valid
from jepsen.core.spec import workload_of
from jepsen.generator.core import NEMESIS, NOTHING, SECOND_NS
from jepsen.history import OpType
from jepsen.nemesis.faults import kind_struck, kind_tried
from jepsen.nemesis.plan import HEAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jepsen.checkers.verdict import Valid
    from jepsen.core.spec import RunSpec
    from jepsen.history import Op

PROPERTIES = "simulator-properties"
"""Name of the checker of what the simulator has seen of nodes, beside those of histories."""
FAULTS, RATE, ENDING, CLIENTS = "faults", "rate", "ending", "clients"
"""Names of the verdicts that are unknown for want of evidence."""


class Ending(NamedTuple):
    """End of a run."""

    broken: tuple[Anomaly, ...] = ()
    """What was seen of the nodes themselves and is never allowed, whatever clients saw."""
    interrupted_s: float | None = None
    """When the test was interrupted, in seconds of the test; None: it was not."""
    checkers: tuple[str, ...] = ()
    """Those that a scenario of the simulator notes its history for, by name."""

    def to_json(self) -> dict[str, Any]:
        """Return the form that `from_json` reads."""
        broken = [{"name": one.name, "detail": dict(one.detail)} for one in self.broken]
        checkers = list(self.checkers)
        return {"broken": broken, "interrupted_s": self.interrupted_s, "checkers": checkers}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Ending:
        """KeyError, TypeError for anything else."""
        at_s = document["interrupted_s"]
        broken = tuple(Anomaly(one["name"], one["detail"]) for one in document["broken"])
        checkers = tuple(map(str, document["checkers"]))
        return cls(broken, None if at_s is None else float(at_s), checkers)


def judge(spec: RunSpec, history: Sequence[Op], ending: Ending | None = None) -> dict[str, Verdict]:
    """By checker; with what the history does not prove (`jepsen.core._evidence`).

    A scenario of the simulator has seen to that itself, and named its checkers at its end.
    """
    if spec.is_scenario:
        names = () if ending is None else ending.checkers
        return {name: CHECKERS[name](history) for name in names}
    workload = workload_of(spec)
    found = {name: checker(history) for name, checker in workload.checkers.items()}
    return found | unproven(spec, history, ends=workload.final is not NOTHING)


def judge_steps(ending: Ending | None) -> Verdict:
    """Return the verdict of the simulator's properties, which it checks after every step.

    The anomalies have the names of the properties that did not hold, or say that a node ended.
    """
    if ending is None:
        return Verdict("unknown", why_unknown="the run never said how it ended")
    return Verdict(not ending.broken, ending.broken)


def overall(verdicts: Mapping[str, Verdict]) -> Valid:
    """Return the verdict on a run: the worst of its checkers."""
    return merge_valid(verdict.valid for verdict in verdicts.values())


def faults_struck(asked: Sequence[str], history: Sequence[Op]) -> dict[str, int]:
    """Count the faults that struck, by kind; requested kinds are present with 0."""
    struck = Counter(kind for op in history if (kind := kind_struck(op)))
    return {**dict.fromkeys(asked, 0), **struck}


def format_faults(counts: Mapping[str, int]) -> str:
    """`partition 2, kill 0`."""
    return ", ".join(f"{kind} {count}" for kind, count in counts.items())


def unproven(spec: RunSpec, history: Sequence[Op], *, ends: bool) -> dict[str, Verdict]:
    """Return an unknown verdict, with its reason, for each lack of evidence.

    `ends`: whether the workload has final reads.
    """
    reasons = {
        FAULTS: _spared(spec, history),
        RATE: _too_little(spec, history),
        CLIENTS: _unanswered(history),
        ENDING: _unread(history) if ends else "",
    }
    return {name: Verdict("unknown", why_unknown=why) for name, why in reasons.items() if why}


def cut_short(spec: RunSpec, history: Sequence[Op], ending: Ending | None) -> dict[str, Verdict]:
    """Return an unknown verdict if the run did not end. `ending`: None if it was not recorded."""
    if ending is None:
        last_s = history[-1].time / SECOND_NS if history else 0.0
        why = (
            f"the run never came to an end: its history stops after {last_s:.0f} of "
            f"{spec.time_limit_s:g} s; run it again"
        )
    elif ending.interrupted_s is not None:
        why = interruption(spec, history, ending.interrupted_s)
    else:
        return {}
    return {"interrupted": Verdict("unknown", why_unknown=why)}


def interruption(spec: RunSpec, history: Sequence[Op], at_s: float) -> str:
    """Describe an interruption: its time and the faults until then."""
    struck = sum(faults_struck((), history).values())
    faults = f"{struck} {'fault' if struck == 1 else 'faults'} struck"
    return f"interrupted after {at_s:.0f} of {spec.time_limit_s:g} s, {faults}"


def _spared(spec: RunSpec, history: Sequence[Op]) -> str:
    """Describe the requested faults that never struck, with remedies."""
    counts = faults_struck(spec.nemesis, history)
    return "; ".join(_why_spared(kind, history) for kind in spec.nemesis if not counts[kind])


def _why_spared(kind: str, history: Sequence[Op]) -> str:
    tries = [op for op in history if kind_tried(op) == kind]
    failed = [op.error for op in tries if op.error is not None]
    if failed:
        return (
            f"no {kind} struck: {len(failed)} of {len(tries)} attempts failed, last: {failed[-1]}"
        )
    if tries:
        return (
            f"no {kind} struck: of {len(tries)} attempts none found a node it could strike: "
            "give a longer --time-limit or a longer --interval"
        )
    return f"no {kind} struck: give a longer --time-limit or a shorter --interval"


def _too_little(spec: RunSpec, history: Sequence[Op]) -> str:
    """Describe a lack of successful operations; empty if there were enough."""
    within = [op for op in history if op.by_client and op.time <= spec.time_limit_s * SECOND_NS]
    seconds = max((op.time for op in within), default=0) / SECOND_NS
    count = sum(op.type is OpType.OK for op in within)
    if not count:
        return f"no operation succeeded in {seconds:.1f} s: does the cluster serve its clients?"
    if count >= spec.rate_min * seconds:
        return ""
    return (
        f"{count} operations succeeded in {seconds:.1f} s, "
        f"which is less than --min-rate {spec.rate_min:g} a second"
    )


def _unanswered(history: Sequence[Op]) -> str:
    """Name the functions that were tried and never answered."""
    answered: dict[str, bool] = {}
    errors: dict[str, str] = {}
    for op in history:
        if not op.by_client or op.type is OpType.INVOKE:
            continue
        # A failure without an error is an answer: what was found did not allow it.
        found = op.type is OpType.OK or (op.type is OpType.FAIL and op.error is None)
        answered[op.f] = answered.get(op.f, False) or found
        if op.error is not None:
            errors[op.f] = op.error
    return "; ".join(
        f"no {f} was ever answered, last: {errors.get(f, 'nothing')}"
        for f, found in sorted(answered.items())
        if not found
    )


def _unread(history: Sequence[Op]) -> str:
    """Why the last operations, with everything healed, show nothing; empty if they do.

    A history without an end says nothing of that (`cut_short`).
    """
    heals = [op for op in history if (op.process, op.f) == (NEMESIS, HEAL)]
    if not heals or heals[-1].type is OpType.INVOKE:
        return ""
    last: dict[str, str] = {}
    done: set[str] = set()
    for op in history[heals[-1].index + 1 :]:
        if op.by_client:
            if op.type is OpType.OK:
                done.add(op.f)
            last[op.f] = op.error or last.get(op.f, "it has not ended")
    missing = [f"no last {f} succeeded: {why}" for f, why in last.items() if f not in done]
    if not last:
        missing = ["nothing was read when all was healed"]
    return "; ".join(missing + [f"healing failed: {why}" for why in _errors(heals) if missing])


def _errors(heals: Sequence[Op]) -> Iterator[str]:
    if heals[-1].error is not None:
        yield heals[-1].error
