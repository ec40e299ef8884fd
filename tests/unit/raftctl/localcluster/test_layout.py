"""The layout of a local cluster and the files it is kept in."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from raftctl.cli.main import run
from raftctl.config import NodeConfig, make_config, parse_properties
from raftctl.errors import ConfigError
from raftctl.localcluster.cluster import ClusterSpec, LocalCluster
from raftctl.localcluster.layout import (
    initial_controllers,
    layout_from_json,
    layout_to_json,
    make_layout,
    node_values,
)
from raftctl.localcluster.ports import free_ports, is_free

if TYPE_CHECKING:
    from pathlib import Path

LAYOUT = make_layout("id", [7101, 7102, 7103], [7001, 7002], {"num.partitions": "4"})


def make(directory: Path, spec: ClusterSpec, formatted: list[int] | None = None) -> LocalCluster:
    done: list[int] = [] if formatted is None else formatted

    def note(config: NodeConfig, cluster_id: str, first: str | None) -> None:
        assert cluster_id == "the-id"
        assert (first is not None) == config.is_controller
        done.append(config.node_id)

    return LocalCluster.open(directory, spec, lambda: "the-id", note)


def test_every_node_gets_a_valid_configuration() -> None:
    for node in LAYOUT.nodes:
        config = make_config(node_values(LAYOUT, node, "/data"))
        assert config.node_id == node.node_id
        assert config.is_controller is (node.role == "controller")
        servers = config.controller_quorum_bootstrap_servers
        assert [server.port for server in servers] == [7101, 7102, 7103]
        assert not config.controller_quorum_voters, "the log names them"
        assert config.num_partitions == 4
        assert config.broker_session_timeout_ms == 1_500
    assert LAYOUT.bootstrap == "127.0.0.1:7001,127.0.0.1:7002"


def test_layout_reads_back() -> None:
    assert layout_from_json(layout_to_json(LAYOUT)) == LAYOUT


def test_nodes_listen_at_the_addresses_that_they_are_given_controllers_first() -> None:
    layout = make_layout("id", [7101], [7001, 7002], {}, ["198.18.0.2", "198.18.0.3", "198.18.0.4"])
    assert layout.bootstrap == "198.18.0.3:7001,198.18.0.4:7002"
    values = node_values(layout, layout.node("broker-1"), "/data")
    assert values["listeners"] == "PLAINTEXT://198.18.0.3:7001"
    assert values["controller.quorum.bootstrap.servers"] == "198.18.0.2:7101"
    assert layout_from_json(layout_to_json(layout)) == layout


def test_brokers_serve_http_on_ports_of_their_own() -> None:
    layout = make_layout("id", [7101], [7001, 7002], {}, http_ports=[7201, 7202])
    assert [node.http_address for node in layout.nodes] == [
        "127.0.0.1:7101",
        "127.0.0.1:7201",
        "127.0.0.1:7202",
    ]
    config = make_config(node_values(layout, layout.node("broker-2"), "/data"))
    assert str(config.http_listener) == "HTTP://127.0.0.1:7202"
    assert make_config(node_values(layout, layout.nodes[0], "/data")).http_listener is None
    assert layout_from_json(layout_to_json(layout)) == layout


@pytest.mark.parametrize(
    ("overrides", "http_port"),
    [
        ({"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL"}, None),
        ({"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL,HTTP:SSL"}, 7201),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, 7201),
        ({"http.listener": ""}, None),
    ],
)
def test_no_open_listener_stands_beside_protected_ones(
    overrides: dict[str, str], http_port: int | None
) -> None:
    layout = make_layout("id", [7101], [7001], overrides, http_ports=[7201])
    assert layout.brokers[0].http_port == http_port
    assert ("http.listener" in node_values(layout, layout.brokers[0], "/data")) is (
        http_port is not None or "http.listener" in overrides
    )


@pytest.mark.req("Q7")
def test_voters_are_known_by_the_directories_that_the_formatting_names() -> None:
    ids = iter(("one", "two", "three"))
    text = initial_controllers(LAYOUT, lambda: next(ids))
    named = "101@127.0.0.1:7101:one,102@127.0.0.1:7102:two,103@127.0.0.1:7103:three"
    assert text == named


@pytest.mark.req("Q7")
def test_a_cluster_of_configured_voters_goes_on_as_it_is() -> None:
    made_before = {**layout_to_json(LAYOUT), "version": 1}
    layout = layout_from_json(made_before)
    values = node_values(layout, layout.node(101), "/data")
    voters = "101@127.0.0.1:7101,102@127.0.0.1:7102,103@127.0.0.1:7103"
    assert values["controller.quorum.voters"] == voters
    assert "controller.quorum.bootstrap.servers" not in values
    assert initial_controllers(layout, lambda: "none") is None
    assert layout_to_json(layout) == made_before
    chosen = make_layout("id", [7101], [7001], {"controller.quorum.voters": "101@127.0.0.1:7101"})
    assert not chosen.dynamic, "as asked for"
    assert node_values(chosen, chosen.nodes[0], "/data")["controller.quorum.voters"] == (
        "101@127.0.0.1:7101"
    )


@pytest.mark.parametrize("document", [None, [], {}, {"nodes": 3}, {"version": 3}])
def test_foreign_documents_are_refused(document: object) -> None:
    with pytest.raises(ConfigError, match="not the layout"):
        layout_from_json(document)


def test_nodes_are_found_by_name_and_id() -> None:
    assert LAYOUT.node("broker-2") == LAYOUT.node(2) == LAYOUT.brokers[1]
    with pytest.raises(ConfigError, match="no node broker-9; there are controller-101"):
        LAYOUT.node("broker-9")


@pytest.mark.parametrize(("controllers", "brokers"), [(0, 1), (1, 0), (10, 1), (1, 101)])
def test_size_is_bounded(controllers: int, brokers: int) -> None:
    with pytest.raises(ConfigError, match="must be 1 to"):
        make_layout("id", list(range(controllers)), list(range(brokers)), {})


@pytest.mark.parametrize(("controllers", "brokers"), [(3, -1), (3, -2), (-1, 3), (None, -1)])
def test_no_negative_size_makes_another_cluster(
    controllers: int | None, brokers: int, tmp_path: Path
) -> None:
    spec = ClusterSpec(controllers, brokers)
    with pytest.raises(ConfigError, match="must be 1 to"):
        make(tmp_path / "c", spec)
    assert not (tmp_path / "c").exists()


def test_free_ports_are_different_and_usable() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    with socket.create_server(("127.0.0.1", ports[0])):
        assert not is_free(ports[0])
    assert is_free(ports[0])


def test_a_new_cluster_is_kept_and_found_again(tmp_path: Path) -> None:
    formatted: list[int] = []
    directory = tmp_path / "cluster"
    cluster = make(directory, ClusterSpec(1, 2), formatted)
    assert len({port for node in cluster.layout.nodes for port in node.ports}) == 5
    assert formatted == [101, 1, 2]
    again = make(directory, ClusterSpec())
    assert again.layout == cluster.layout == LocalCluster.load(directory).layout
    values = parse_properties((directory / "broker-1" / "node.properties").read_text())
    assert values["log.dirs"] == str(directory / "broker-1" / "data")
    assert not cluster.is_running(cluster.layout.nodes[0])


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (ClusterSpec(controllers=3), "--controllers 3: the cluster in .* has 1"),
        (ClusterSpec(brokers=1), "--brokers 1: the cluster in .* has 2"),
        (ClusterSpec(first_port=9092), "--port 9092: the cluster in .* has"),
        (ClusterSpec(overrides={"num.partitions": "2"}), "-o: the cluster in .* other keys"),
    ],
)
def test_another_layout_is_refused(tmp_path: Path, spec: ClusterSpec, complaint: str) -> None:
    make(tmp_path, ClusterSpec(1, 2))
    with pytest.raises(ConfigError, match=complaint):
        make(tmp_path, spec)


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="neither empty nor a cluster's"):
        make(tmp_path, ClusterSpec())
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("override", [{"num.partition": "1"}, {"num.partitions": "0"}])
def test_a_bad_override_changes_nothing(tmp_path: Path, override: dict[str, str]) -> None:
    directory = tmp_path / "cluster"
    with pytest.raises(ConfigError, match=r"num\.partition"):
        make(directory, ClusterSpec(overrides=override))
    assert not directory.exists()


def test_a_key_without_effect_is_warned_about_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, ClusterSpec(overrides={"num.io.threads": "8"}))
    assert capsys.readouterr().err.count("num.io.threads") == 1


def test_a_port_in_use_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_ports(1)[0]
    directory = tmp_path / "cluster"
    with socket.create_server(("127.0.0.1", port)):
        assert run(["up", "--dir", str(directory), "--port", str(port)]) == 2
    assert capsys.readouterr().err == (
        f"raftctl: --port {port}: {port} is in use: choose another\n"
    )
    assert not directory.exists()


def test_starting_needs_the_ports(tmp_path: Path) -> None:
    cluster = make(tmp_path, ClusterSpec(1, 1))
    broker = cluster.layout.brokers[0]
    with (
        socket.create_server(("127.0.0.1", broker.port)),
        pytest.raises(ConfigError, match=f"listeners: port {broker.port} of broker-1 is in use"),
    ):
        cluster.start_all()
    assert not any(cluster.is_running(node) for node in cluster.layout.nodes)


def test_commands_need_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["down", "--dir", str(tmp_path)]) == 2
    assert "no cluster here; raftctl up makes one" in capsys.readouterr().err
    (tmp_path / "cluster.json").write_text("[]")
    assert run(["status", "--dir", str(tmp_path)]) == 2
    assert "not the layout of a local cluster" in capsys.readouterr().err
