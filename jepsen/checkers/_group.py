"""Consumer groups: in one generation a partition has one owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jepsen.checkers.verdict import Anomaly, Verdict, judge
from jepsen.history import OpType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jepsen.history import Op


def check_group(history: Sequence[Op]) -> Verdict:
    """`owned-twice`: two members were given one partition in the same generation.

    Of polls it is judged what stands beside the records: `["member", member id, generation,
    [partition, ...]]`, without more than the word where a member has nothing. Unknown if nobody had
    anything.
    """
    owners: dict[tuple[Any, Any], tuple[str, int]] = {}
    found = []
    for index, member_id, generation, keys in _memberships(history):
        for key in keys:
            owner, first = owners.setdefault((generation, key), (member_id, index))
            if owner != member_id:
                detail = {"key": key, "generation": generation, "members": [owner, member_id]}
                found.append(Anomaly("owned-twice", detail, (first, index)))
    generations = {generation for generation, _ in owners}
    members = {member_id for member_id, _ in owners.values()}
    unknown = "" if owners else "no member had a partition"
    return judge(found, why_unknown=unknown, generations=len(generations), members=len(members))


def _memberships(history: Sequence[Op]) -> Iterator[tuple[int, str, int, list[Any]]]:
    for op in history:
        if op.by_client and op.f == "poll" and op.type is OpType.OK:
            for micro in op.value or ():
                if micro[0] == "member" and len(micro) > 1:
                    yield op.index, micro[1], micro[2], micro[3]
