"""Answers of a cluster of one controller and two brokers, one of them fenced."""

from __future__ import annotations

from typing import Any

from raftctl.cli.top._scrape import parse
from raftctl.cli.top._view import Answer, Node

CONTROLLER = Node(101, True, "h:9093")
BROKER_1, BROKER_2 = Node(1, False, "h:9095"), Node(2, False, "h:9096")
_OF_ONE = """
kafka_cluster_partition_underreplicated{topic="orders",partition="1"} 1
kafka_cluster_partition_underreplicated{topic="orders",partition="10"} 1
kafka_cluster_partition_underreplicated{topic="orders",partition="2"} 0
kafka_cluster_partition_underreplicated{topic="",partition=""} 3
kafka_cluster_partition_underminisr{topic="orders",partition="10"} 1
kafka_cluster_partition_atminisr{topic="logs",partition="0"} 1
kafka_consumergroup_lag_sum{consumergroup="g",topic="orders"} 40
kafka_consumergroup_lag_sum{consumergroup="g",topic="logs"} 2
kafka_consumergroup_members{consumergroup="g"} 3
kafka_consumergroup_members{consumergroup="idle"} 0
"""
_OF_EACH = """
kafka_server_brokertopicmetrics_bytesin_total{{topic=""}} {count}
kafka_server_brokertopicmetrics_bytesin_total{{topic="orders"}} {count}
kafka_server_brokertopicmetrics_bytesin_total{{topic="(other)"}} {count}
kafka_server_brokertopicmetrics_bytesout_total{{topic=""}} 0
kafka_server_brokertopicmetrics_messagesin_total{{topic="orders"}} {messages}
kafka_network_requestmetrics_requests_total{{request="Produce",version="9"}} {requests}
kafka_network_requestmetrics_requests_total{{request="Fetch",version="12"}} 3
kafka_server_socket_server_metrics_connection_count{{listener="A"}} 4
kafka_server_socket_server_metrics_connection_count{{listener="B"}} 3
kafka_log_log_size{{topic="orders",partition="0"}} 1096
kafka_log_log_size{{topic="logs",partition="0"}} 3000
raftctl_event_loop_lag_ms{{quantile="0.99"}} 1.5
raftctl_event_loop_lag_ms{{quantile="0.999"}} 9
process_resident_memory_bytes 100
"""


def status(**fields: Any) -> dict[str, Any]:
    """What a controller says of the cluster."""
    known = {"in_controlled_shutdown": False, "leaders": 2, "replicas": 3}
    return {
        "cluster_id": "c",
        "node_id": 101,
        "role": "leader",
        "leader_id": 101,
        "epoch": 4,
        "high_watermark": 90,
        "log_end_offset": 90,
        "metadata_offset": 89,
        "topics": 2,
        "partitions": 5,
        "offline_partitions": 0,
        "under_replicated_partitions": 2,
        "voters": [
            _replica(101, 0),
            _replica(102, 7),
            {**_replica(103, 0), "lag": None},
        ],
        "observers": [_replica(1, 0), _replica(2, 5)],
        "brokers": [
            {"broker_id": 1, "fenced": False, **known},
            {"broker_id": 2, "fenced": True, **known},
        ],
        **fields,
    }


def _replica(node_id: int, lag: int) -> dict[str, Any]:
    return {"node_id": node_id, "log_end_offset": 90 - lag, "lag": lag, "last_fetch_age_ms": 3}


def answers(at_s: float, count: int) -> list[Answer]:
    """A round of answers at a time, when each broker has appended so many bytes of orders."""
    of_each = _OF_EACH.format(count=count, messages=count // 100, requests=count // 500)
    return [
        Answer(CONTROLLER, status(), parse("", at_s)),
        Answer(BROKER_1, None, parse(of_each + _OF_ONE, at_s)),
        Answer(BROKER_2, None, parse(of_each, at_s)),
    ]
