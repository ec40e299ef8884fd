"""The verdict on a history of logs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from jepsen.checkers.kafka import _anomalies as anomalies
from jepsen.checkers.kafka._anomalies import offset_regressions
from jepsen.checkers.kafka.log import Logs
from jepsen.checkers.transactions import Edge, Graph, find_cycles, order_edges
from jepsen.checkers.transactions.consistency import PROCESS, REALTIME
from jepsen.checkers.verdict import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jepsen.history import Op

ALLOWED = frozenset({"int-send-skip"})
"""Kafka lets the sends of transactions interleave."""
ALLOWED_SUBSCRIBED = frozenset({"poll-skip", "nonmonotonic-poll"})
"""A rebalance moves consumers about."""
SUBSCRIBED = ("subscribe", "drain")
"""The operations of members of a group alone."""
KINDS = ("wr",)
"""The edges of the data that no cycle is made of."""
ORDERS = (PROCESS, REALTIME)
WRONG = ("G1c", "G1c-process", "G1c-realtime")
"""Cycles that are anomalies."""
FINDERS = (
    anomalies.duplicates,
    anomalies.inconsistent_offsets,
    anomalies.spurious_zero_offsets,
    anomalies.aborted_reads,
    anomalies.unexpected,
    anomalies.precommitted_reads,
    anomalies.lost_writes,
    anomalies.torn_transactions,
    anomalies.unseen,
    anomalies.internal_polls,
    anomalies.internal_sends,
    anomalies.external_polls,
    anomalies.external_sends,
)


def check_kafka(history: Sequence[Op], *, ww_deps: bool = False) -> Verdict:
    """Return all anomalies of logs. Raises HistoryError.

    A cycle of reads, and of what one process or real time orders, is an anomaly. `ww_deps`: also
    looks for cycles with the order of writes, which only informs. Unknown if nothing was sent or
    nothing polled with success.
    """
    logs = Logs(history)
    found = [anomaly for finder in FINDERS for anomaly in finder(logs)]
    found += offset_regressions(logs.calls)
    graph = _graph(logs, ww_deps=ww_deps)
    found += find_cycles(graph, KINDS, ORDERS, WRONG)
    reported = {one.name for one in found}
    of_writes = find_cycles(graph, ("ww", *KINDS), ORDERS, WRONG) if ww_deps else []
    allowed = _allowed(logs)
    return judge(
        [one for one in found if one.name not in allowed],
        notes=[
            *(one for one in found if one.name in allowed),
            *(one for one in of_writes if one.name not in reported),
        ],
        why_unknown=_why_unknown(logs),
        sent=len(logs.writers),
        polled=sum(map(len, logs.seen.values())),
        keys=len(logs.orders),
    )


def _allowed(logs: Logs) -> frozenset[str]:
    subscribed = any(call.operation.invoke.f in SUBSCRIBED for call in logs.calls)
    allowed: Iterable[str] = ALLOWED
    if subscribed:
        allowed = (*allowed, *ALLOWED_SUBSCRIBED)
    return frozenset(allowed)


def _why_unknown(logs: Logs) -> str:
    if not any(call.ok and call.sends for call in logs.calls):
        return "no send has succeeded"
    return "" if logs.seen else "no poll has returned anything"


def _graph(logs: Logs, *, ww_deps: bool) -> Graph:
    graph = Graph()
    mine = [call for call in logs.calls if (call.sends or call.polls) and logs.committed(call)]
    for reader in mine:
        for record in reader.polls if reader.ok else ():
            writer = logs.writers.get((record.key, record.value))
            if writer is not None and logs.committed(writer):
                why = (record.key, record.value)
                graph.add(Edge(writer.index, reader.index, "wr", why))
    if ww_deps:
        _add_writes(graph, logs)
    # In the order of invocations, as a process' own order needs it.
    mine.sort(key=lambda call: call.operation.invoke.index)
    vertices = {call.operation.invoke.index: call.index for call in mine}
    for edge in order_edges([call.operation for call in mine], vertices, ORDERS):
        graph.add(edge)
    return graph


def _add_writes(graph: Graph, logs: Logs) -> None:
    for key, order in logs.orders.items():
        values = order.some_values(0, len(order.values))
        for before, after in pairwise(values):
            one, other = logs.writers.get((key, before)), logs.writers.get((key, after))
            if one is not None and other is not None:
                graph.add(Edge(one.index, other.index, "ww", (key, before, after)))
