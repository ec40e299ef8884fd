"""Bad input of operators and of clients: refused in one line, and nothing else is hurt."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import pytest

from raftctl.localcluster.ports import free_ports
from raftctl.localcluster.processes import wait_gone
from tests.integration.clusters import processes_of, running_cluster, wait_until
from tests.integration.commands import raftctl
from tests.integration.kafka_clients import CLIENTS, Record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster
    from tests.integration.commands import CommandResult

# --- operators ------------------------------------------------------------------------------------


class NodeFiles:
    """One node's configuration file and formatted directory, and commands on them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "node.properties"
        self.data = directory / "data"
        broker_port, controller_port = free_ports(2)
        self.port = broker_port
        self.values = {
            "process.roles": "controller,broker",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": (
                f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{controller_port}"
            ),
            "log.dirs": str(self.data),
        }
        self.write()

    def write(self, **changed: str) -> None:
        """Writes the file with other values; `node_id` stands for `node.id`."""
        values = self.values | {key.replace("_", "."): value for key, value in changed.items()}
        self.config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))

    def format(self, cluster_id: str | None = None) -> CommandResult:
        """Formats the directory, by default for a new cluster."""
        chosen = cluster_id or raftctl("storage", "random-uuid").stdout.strip()
        return raftctl("storage", "format", "--config", str(self.config), "--cluster-id", chosen)

    def start(self, *more: str) -> CommandResult:
        """Runs the node, which is expected to end by itself."""
        return raftctl("start", "--config", str(self.config), *more, timeout_s=30)

    def tree(self) -> dict[str, bytes | None]:
        """Every path and what it holds, to be compared."""
        return {
            str(path.relative_to(self.directory)): path.read_bytes() if path.is_file() else None
            for path in sorted(self.directory.rglob("*"))
        }


@pytest.fixture
def node(tmp_path: Path) -> NodeFiles:
    return NodeFiles(tmp_path)


def assert_refused(result: CommandResult, *words: str) -> None:
    """Exit status 2 and one line on stderr that has all the words."""
    assert result.status == 2, result
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("raftctl: ")
    for word in words:
        assert word in line


BAD_VALUES = {
    "misspelt": ("node_idd", "1", "node.idd: no such key; did you mean node.id?"),
    "unheard of": ("make_coffee", "1", "make.coffee: no such key; docs/reference/config"),
    "below its bound": (
        "num_partitions",
        "0",
        "num.partitions=0 is out of bounds: must be at least 1",
    ),
    "above its bound": ("node_id", "99999999999", "node.id=99999999999 is out of bounds: must be"),
    "no number": ("num_partitions", "many", "num.partitions=many is not a whole number"),
    "no flag": ("delete_topic_enable", "si", "delete.topic.enable: 'si' is neither true nor false"),
    "no voter": ("controller_quorum_voters", "1@localhost", "controller.quorum.voters: "),
    "voter without id": ("controller_quorum_voters", "127.0.0.1:9093", "write id@host:port"),
    "voters that repeat": (
        "controller_quorum_voters",
        "1@127.0.0.1:9093,1@127.0.0.1:9094",
        "controller.quorum.voters: ",
    ),
    "no listener": ("listeners", "127.0.0.1", "listeners: "),
    "no role": ("process_roles", "leader", "process.roles"),
    "no plug-in": ("broker_plugin", "pulsar", "broker.plugin: no plug-in 'pulsar'; installed: "),
}


@pytest.mark.req("A2")
@pytest.mark.parametrize("what", BAD_VALUES)
def test_a_bad_value_is_refused_and_nothing_changes(node: NodeFiles, what: str) -> None:
    key, value, words = BAD_VALUES[what]
    node.write(**{key: value})
    before = node.tree()
    assert_refused(node.start(), words)
    assert node.tree() == before


@pytest.mark.req("A2")
def test_a_directory_that_is_not_formatted_is_refused(node: NodeFiles) -> None:
    before = node.tree()
    assert_refused(node.start(), "log.dirs", "raftctl storage format")
    assert node.tree() == before


@pytest.mark.req("A2")
def test_a_directory_of_another_node_is_refused(node: NodeFiles) -> None:
    assert node.format().status == 0
    voters = node.values["controller.quorum.voters"].replace("1@", "2@")
    node.write(node_id="2", controller_quorum_voters=voters)
    before = node.tree()
    assert_refused(node.start(), "node.id", "belongs to node 1, not 2", str(node.data))
    assert_refused(node.format(), "node.id", "belongs to node 1, not 2")
    assert node.tree() == before


@pytest.mark.req("A2")
def test_a_directory_of_another_cluster_is_refused(node: NodeFiles) -> None:
    assert node.format().status == 0
    before = node.tree()
    assert_refused(node.format(), "log.dirs", "belongs to cluster", str(node.data))
    assert node.tree() == before
    other = NodeFiles(_made(node.directory / "other"))
    assert other.format().status == 0
    both = f"{node.data},{other.data}"
    node.write(log_dirs=both)
    before = node.tree()
    assert_refused(node.start(), "log.dirs", "belongs to cluster", str(other.data))
    assert node.tree() == before


@pytest.mark.req("A2")
@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
def test_a_port_in_use_is_refused(node: NodeFiles, listener: str) -> None:
    assert node.format().status == 0
    names = node.values["listeners"].split(",")
    port = int(next(one for one in names if one.startswith(listener)).rpartition(":")[2])
    before = node.tree()
    with socket.create_server(("127.0.0.1", port)):
        assert_refused(node.start(), "listeners", str(port), "in use")
    assert node.tree() == before


@pytest.mark.req("A2")
def test_a_key_of_apache_kafka_without_effect_gets_one_warning(node: NodeFiles) -> None:
    # A bad value beside it, so that the node does not run.
    node.write(num_io_threads="8", num_partitions="0")
    told = node.start()
    assert told.status == 2
    warning, complaint = told.stderr.splitlines()
    assert warning.startswith("warning: num.io.threads has no effect: ")
    assert complaint.startswith("raftctl: num.partitions=0 ")


@pytest.mark.req("A2")
def test_up_refuses_a_port_in_use_and_a_strange_directory(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    target = tmp_path / "cluster"
    with socket.create_server(("127.0.0.1", port)):
        taken = raftctl("up", "--dir", str(target), "--port", str(port))
    assert_refused(taken, "--port", str(port), "in use")
    assert not target.exists()
    (tmp_path / "letter.txt").write_text("dear")
    assert_refused(raftctl("up", "--dir", str(tmp_path)), "--dir", "neither empty nor a cluster's")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
    misspelt = raftctl("up", "--dir", str(target), "-o", "num.partitons=3")
    assert_refused(misspelt, "num.partitons: no such key; did you mean num.partitions?")
    assert not target.exists()
    assert processes_of(tmp_path) == []


@pytest.mark.req("A2")
def test_up_refuses_when_a_node_lost_its_port(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "cluster", 1, 1) as cluster:
        references = [cluster.process(node) for node in cluster.layout.nodes]
    assert wait_gone([one for one in references if one is not None], 10) == []
    port = cluster.layout.brokers[0].port
    with socket.create_server(("127.0.0.1", port)):
        told = raftctl("up", "--dir", str(tmp_path / "cluster"))
    assert_refused(told, "listeners", str(port), "broker-1", "in use")
    assert processes_of(tmp_path) == []


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


# --- clients --------------------------------------------------------------------------------------

API_VERSIONS_V0 = struct.pack(">hhih", 18, 0, 77, -1)
TOO_LARGE = struct.pack(">i", 2**31 - 1) + b"x" * 100


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


BROKEN = {
    "negative length": struct.pack(">i", -1),
    "larger than allowed": TOO_LARGE,
    "no header": framed(b""),
    "half a header": framed(b"\x00\x12\x00"),
    "unknown request": framed(struct.pack(">hhih", 9_999, 0, 1, -1)),
    "version too high": framed(struct.pack(">hhih", 3, 99, 1, -1) + b"\x00"),
    "version too low": framed(struct.pack(">hhih", 1, 0, 1, -1) + b"\x00" * 20),
    "body cut short": framed(struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 5) + b"\x00"),
    "body that promises too much": framed(
        struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 2**31 - 1)
    ),
    "client id that is no text": framed(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe"),
    "another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.fixture
def neighbour(cluster: LocalCluster) -> Iterator[socket.socket]:
    """A well-behaved connection to the same broker."""
    with connect(cluster) as connection:
        yield connection


def connect(cluster: LocalCluster) -> socket.socket:
    return socket.create_connection(("127.0.0.1", cluster.layout.brokers[0].port), timeout=10)


def ask_versions(connection: socket.socket) -> int:
    """Asks for the versions and returns the correlation id of the answer."""
    connection.sendall(framed(API_VERSIONS_V0))
    (length,) = struct.unpack(">i", receive(connection, 4))
    correlation_id, error = struct.unpack_from(">ih", receive(connection, length))
    assert error == 0
    return int(correlation_id)


def receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return data


def is_closed(connection: socket.socket) -> bool:
    """Whether the broker closes the connection without an answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def closings(cluster: LocalCluster) -> int:
    """How many lines in the broker's log tell of a connection it closed."""
    log = cluster.log_path(cluster.layout.brokers[0])
    return log.read_text().count('"connection_closed"')


@pytest.mark.req("N3")
@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_request_closes_its_own_connection_only(
    cluster: LocalCluster, neighbour: socket.socket, what: str
) -> None:
    before = closings(cluster)
    assert ask_versions(neighbour) == 77
    with connect(cluster) as broken:
        assert ask_versions(broken) == 77
        broken.sendall(BROKEN[what])
        assert is_closed(broken)
    assert ask_versions(neighbour) == 77
    wait_until(lambda: closings(cluster) == before + 1, "one line in the log")


@pytest.mark.req("N3")
def test_a_connection_closed_within_a_request_hurts_nobody(
    cluster: LocalCluster, neighbour: socket.socket
) -> None:
    with connect(cluster) as broken:
        broken.sendall(framed(API_VERSIONS_V0)[:-2])
    assert ask_versions(neighbour) == 77


@pytest.mark.req("N3")
def test_clients_go_on_after_all_that(cluster: LocalCluster) -> None:
    client = CLIENTS[0]
    records = [Record(b"%d" % number) for number in range(100)]
    offsets = client.write(cluster.layout.bootstrap, "unhurt", records)
    assert offsets == list(range(100))
    assert client.read(cluster.layout.bootstrap, "unhurt")[0].records == records


@pytest.mark.req("A2")
@pytest.mark.parametrize("command", [("topics", "list"), ("quotas", "describe")])
def test_no_broker_answers(command: tuple[str, ...], unused_tcp_port: int) -> None:
    """The one asks with librdkafka, the other with kafka-python."""
    server = ("--bootstrap-server", f"127.0.0.1:{unused_tcp_port}", "--timeout", "0.5")
    told = raftctl(*command, *server)
    assert (told.status, told.stdout) == (1, "")
    assert told.stderr.startswith("raftctl: BROKER_NOT_AVAILABLE: ")
    assert "--bootstrap-server" in told.stderr
    assert told.stderr.count("\n") == 1
