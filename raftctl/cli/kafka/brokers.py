"""`raftctl brokers`: who is registered, what their log directories hold (rows C2, C14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._options import CommandGroup
from raftctl.cli.kafka.admin import Cluster, check, check_broker, message_class, send
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

_UNREGISTER = ("UnregisterBrokerRequest", "UnregisterBrokerResponse")

app = CommandGroup("Lists brokers and log directories; forgets brokers.")


@app.command(name="list")
def list_brokers(
    cluster: Cluster,
) -> None:
    """Lists the registered brokers; a fenced one serves no client."""
    with cluster.open() as client:
        brokers = client.describe_cluster()["brokers"]
    found = [
        {
            "broker_id": one["broker_id"],
            "address": f"{one['host']}:{one['port']}",
            "rack": one["rack"],
            "fenced": bool(one.get("is_fenced")),
        }
        for one in sorted(brokers, key=lambda one: one["broker_id"])
    ]
    cluster.show_rows(("BROKER", "ADDRESS", "RACK", "FENCED"), found)


@app.command(name="log-dirs")
def log_dirs(
    cluster: Cluster,
    broker: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="A broker's id; may be repeated. Default: all."),
    ] = None,
) -> None:
    """Shows the log directories of brokers. Of each: replicas, bytes used and free, failures."""
    with cluster.open() as client:
        for one in broker or ():
            check_broker(client, one)
        found = list(_directories(client.describe_log_dirs(brokers=broker)))
    columns = ("BROKER", "DIRECTORY", "ERROR", "REPLICAS", "BYTES", "FREE")
    cluster.show_rows(columns, found)


@app.command()
def unregister(
    broker: Annotated[int, typer.Argument(metavar="ID", help="A broker that does not run.")],
    cluster: Cluster,
    force: Annotated[
        bool, typer.Option("--force", help="Also one that runs: it ends, and its leaders move.")
    ] = False,
) -> None:
    """Forgets a broker that is gone for good. Move its replicas away first, then stop it."""
    with cluster.open() as client:
        known = {one["broker_id"]: one for one in client.describe_cluster()["brokers"]}
        if broker in known and not known[broker].get("is_fenced") and not force:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"broker {broker} runs: stop it first, or give --force"
            )
        request, _response = map(message_class, _UNREGISTER)
        check(send(client, request(broker_id=broker)))
    cluster.show({"unregistered": broker}, f"unregistered broker {broker}")


def _directories(answers: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    for answer in answers:
        for one in answer["log_dirs"]:
            replicas = [replica for topic in one["topics"] for replica in topic["partitions"]]
            failed = one["error_code"] != ErrorCode.NONE
            yield {
                "broker_id": answer["broker"],
                "directory": one["log_dir"],
                "error": ErrorCode(one["error_code"]).name if failed else None,
                "replicas": len(replicas),
                "bytes": sum(replica["partition_size"] for replica in replicas),
                "free": one.get("usable_bytes"),
            }
