"""What `--network namespaces` decides: which packets arrive and when; names and addresses."""

from __future__ import annotations

import random
import shutil
import socket
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

import pytest

from jepsen.cli.main import run
from jepsen.environments import Quality
from jepsen.environments.local import namespaces
from jepsen.environments.local._network import Network, RelayNetwork
from jepsen.environments.local.environment import network_of
from jepsen.environments.local.namespaces import (
    QUEUE_BYTES,
    RANGE,
    Delivery,
    PacketRouter,
    Topology,
    free_network,
    owner,
)

if TYPE_CHECKING:
    from pathlib import Path

A, B, C = "broker-1", "broker-2", "controller-101"
TOPOLOGY = Topology(4_194_304, IPv4Network("198.18.7.0/24"), (C, A, B))
HIGHEST_OF_NAMES = 15
"""Bytes that Linux takes for a device's name (IFNAMSIZ without its end)."""


@pytest.fixture
def router() -> PacketRouter:
    return PacketRouter(TOPOLOGY.addresses, random.Random(1))


def packet(source: str, destination: str, size: int = 100) -> bytes:
    """An IPv4 packet of which all but version and addresses is zero."""
    ends = [socket.inet_aton(TOPOLOGY.addresses.get(one, one)) for one in (source, destination)]
    return (b"\x45".ljust(12, b"\0") + b"".join(ends)).ljust(size, b"\0")


@pytest.mark.req("J2")
def test_what_is_sent_over_a_cut_link_is_lost_and_the_way_back_is_open(
    router: PacketRouter,
) -> None:
    router.set_blocked([(A, B)])
    assert router.links == {(A, B)}
    assert router.delivery(packet(A, B), 5.0) is None
    assert router.delivery(packet(B, A), 5.0) == Delivery(A, 5.0)
    router.set_blocked([])
    assert router.delivery(packet(A, B), 5.0) == Delivery(B, 5.0)
    assert not router.links


@pytest.mark.req("J2")
def test_packets_of_a_slow_link_are_late_lost_or_wait_for_each_other(
    router: PacketRouter,
) -> None:
    router.set_quality({(A, B): Quality(delay_ms=250), (A, C): Quality(loss=0.25)})
    assert router.delivery(packet(A, B), 5.0) == Delivery(B, 5.25)
    lost = sum(router.delivery(packet(A, C), 5.0) is None for _ in range(10_000))
    assert 2300 < lost < 2700
    router.set_quality({(A, B): Quality(delay_ms=250, bytes_per_s=1000)})
    assert router.links == {(A, B)}
    arrivals = [router.delivery(packet(A, B), 5.0) for _ in range(3)]
    assert [one and round(one.at_s, 6) for one in arrivals] == [5.35, 5.45, 5.55]
    assert router.delivery(packet(A, B), 9.0) == Delivery(B, 9.35)


@pytest.mark.req("J2")
def test_a_link_of_few_bytes_a_second_keeps_no_more_waiting_than_its_queue_holds(
    router: PacketRouter,
) -> None:
    router.set_quality({(A, B): Quality(bytes_per_s=1000)})
    sent = [router.delivery(packet(A, B, 1000), 5.0) for _ in range(100)]
    assert sum(one is not None for one in sent) == QUEUE_BYTES // 1000
    assert router.delivery(packet(A, B, 1000), 15.0) is not None


@pytest.mark.parametrize(
    "foreign",
    [b"", b"\x45", b"\x60".ljust(40, b"\0"), packet(A, "8.8.8.8"), packet("198.18.7.1", A)],
)
def test_what_is_no_packet_between_nodes_goes_nowhere(router: PacketRouter, foreign: bytes) -> None:
    assert router.delivery(foreign, 5.0) is None


@pytest.mark.req("J2")
def test_the_network_of_a_run_is_named_after_its_process() -> None:
    assert TOPOLOGY.addresses == {C: "198.18.7.2", A: "198.18.7.3", B: "198.18.7.4"}
    lines = [line for batch in TOPOLOGY.building() for line in batch.lines]
    assert lines[:4] == [f"netns add jepsen-4194304-{one}" for one in ("hub", C, A, B)]
    assert "address add 198.18.7.1/24 dev jepsen4194304" in lines
    assert f"link add name {A} type veth peer name eth0 netns jepsen-4194304-{A}" in lines
    assert "address add 198.18.7.3/24 dev eth0" in lines
    assert len(f"{TOPOLOGY.device}t") <= HIGHEST_OF_NAMES
    assert owner(TOPOLOGY.namespace(A)) == 4_194_304
    assert owner("jepsen-of-somebody") is None


@pytest.mark.req("J2")
def test_only_links_that_change_are_routed_anew() -> None:
    batches = TOPOLOGY.rerouting([(A, B), (A, C)], [(A, B), (B, A)])
    assert [(batch.namespace, list(batch.lines)) for batch in batches] == [
        (TOPOLOGY.namespace(A), ["route delete 198.18.7.2/32 dev detour0 src 198.18.7.3"]),
        (TOPOLOGY.namespace(B), ["route replace 198.18.7.3/32 dev detour0 src 198.18.7.4"]),
    ]


def test_networks_in_use_are_left_alone_and_processes_begin_with_different_ones() -> None:
    assert free_network(7, [{"dst": "default"}, {"dst": "0.0.0.0/1"}, {}]) == IPv4Network(
        "198.18.7.0/24"
    )
    used = [{"dst": "198.18.7.9"}, {"dst": "198.18.8.0/23"}]
    assert free_network(7, used) == IPv4Network("198.18.10.0/24")
    assert free_network(511, [{"dst": "198.19.255.0/24"}]) == IPv4Network("198.18.0.0/24")
    assert free_network(7, [{"dst": str(RANGE)}]) is None


def test_without_its_means_a_test_is_refused_with_all_that_is_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tjepsen\nCapEff:\t00000000a80425fb\n")  # root of a container
    monkeypatch.setattr(namespaces, "STATUS", status)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(namespaces, "TUN", tmp_path / "tun")
    store = tmp_path / "store"
    for command in (["test", "register"], ["test-all"]):
        assert run([*command, "--network", "namespaces", "--store", str(store)]) == 254
        told = capsys.readouterr().err
        assert told.startswith("jepsen: --network namespaces: it needs root with CAP_NET_ADMIN and")
        assert "the program ip (package iproute2)" in told
        assert "modprobe tun" in told
        assert "--network relays" in told
        assert not store.exists()


def test_links_are_relayed_only_if_they_are_to_be_cut() -> None:
    assert isinstance(network_of("relays", cut=True), RelayNetwork)
    assert type(network_of("relays", cut=False)) is Network
