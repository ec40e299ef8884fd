"""The status of a cluster for people and for programs. Pure: from the controllers' answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raftctl.cli._output import counted, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raftctl.localcluster.status import ClusterStatus

_QUORUM = ("cluster_id", "leader_id", "epoch", "high_watermark", "log_end_offset")
_HEALTH = ("topics", "partitions", "offline_partitions", "under_replicated_partitions")


def status_document(
    addresses: Mapping[str, str], status: ClusterStatus, stopped: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The JSON form. `quorum` and `health` are null when no controller answers.

    `stopped`: the nodes of a local cluster that do not run, and why; None if nobody can tell.
    """
    best = status.best
    return {
        "has_leader": status.leader is not None,
        "quorum": best and {name: best.get(name) for name in _QUORUM},
        "controllers": [
            _controller(name, address, status.answers.get(address))
            for name, address in addresses.items()
        ],
        "voters": best["voters"] if best else [],
        "observers": best["observers"] if best else [],
        "brokers": best["brokers"] if best else [],
        "health": best and {name: best.get(name) for name in _HEALTH},
        "stopped": None if stopped is None else dict(stopped),
    }


def status_text(addresses: Mapping[str, str], status: ClusterStatus) -> str:
    """The form for people: a verdict, then controllers, brokers."""
    best = status.best
    parts = [_verdict(status), "", _controllers_table(addresses, status)]
    if best is not None:
        parts += [_brokers_table(best)]
    return "\n".join(parts)


def _verdict(status: ClusterStatus) -> str:
    best = status.best
    answering = sum(answer is not None for answer in status.answers.values())
    reach = f"{answering}/{len(status.answers)} controllers answer"
    if best is None:
        return f"no leader, {reach}"
    leader = f"leader {best['leader_id']}" if status.leader else "no leader"
    health = (
        f"{counted(best['topics'], 'topic')}, {counted(best['partitions'], 'partition')}, "
        f"{best['offline_partitions']} offline, "
        f"{best['under_replicated_partitions']} under-replicated"
    )
    return f"{leader}, epoch {best['epoch']}, {reach}, {health}"


def _controller(name: str, address: str, answer: dict[str, Any] | None) -> dict[str, Any]:
    told = answer or {}
    keys = ("node_id", "role", "leader_id", "epoch", "high_watermark", "log_end_offset")
    return {"name": name, "address": address, **{key: told.get(key) for key in keys}}


def _controllers_table(addresses: Mapping[str, str], status: ClusterStatus) -> str:
    best = status.best or {}
    replicas = {replica["node_id"]: replica for replica in best.get("voters", ())}
    rows = []
    for name, address in addresses.items():
        answer = status.answers.get(address)
        if answer is None:
            rows.append([name, address, "down", *[None] * 6])
            continue
        seen = replicas.get(answer["node_id"], {})
        rows.append(
            [
                name,
                address,
                answer["role"],
                answer["epoch"],
                answer["high_watermark"],
                answer["log_end_offset"],
                seen.get("lag"),
                seen.get("last_fetch_age_ms"),
                seen.get("last_caught_up_age_ms"),
            ]
        )
    heads = ("CONTROLLER", "ADDRESS", "ROLE", "EPOCH", "HIGH-WATERMARK", "LOG-END", "LAG")
    ages = ("FETCHED-MS-AGO", "CAUGHT-UP-MS-AGO")
    return table((*heads, *ages), rows, optional=ages)


def _brokers_table(best: dict[str, Any]) -> str:
    lags = {replica["node_id"]: replica["lag"] for replica in best["observers"]}
    rows = [
        [
            broker["broker_id"],
            ",".join(broker["endpoints"]),
            _broker_state(broker),
            broker["leaders"],
            broker["replicas"],
            lags.get(broker["broker_id"]),
        ]
        for broker in best["brokers"]
    ]
    return table(("BROKER", "ENDPOINTS", "STATE", "LEADERS", "REPLICAS", "METADATA-LAG"), rows)


def _broker_state(broker: dict[str, Any]) -> str:
    if broker["fenced"]:
        return "fenced"
    return "shutting down" if broker["in_controlled_shutdown"] else "active"
