"""`LocalCluster`: creates, starts, stops, kills and restarts the nodes of one directory.

`RollingRestart` restarts the nodes of a running cluster one after the other, so that clients can
go on (row A5). A node goes down only while others can do everything that it does: a controller
leads and the other voters have all that it has committed, every broker is active, every replica is
in sync.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.http_security import HttpSecurity
from raftctl.localcluster.layout import (
    BROKER_LISTENER,
    HOST,
    ClusterLayout,
    LocalNode,
    check_size,
    initial_controllers,
    layout_from_json,
    layout_to_json,
    make_layout,
    node_values,
)
from raftctl.localcluster.ports import free_ports, is_free, serves
from raftctl.localcluster.processes import (
    ProcessRef,
    load_process,
    lock_holder,
    locked_last_by,
    postponed_signals,
    save_process,
    start_node,
    wait_gone,
)
from raftctl.localcluster.status import ClusterStatus, ask_controllers

if TYPE_CHECKING:
    from collections.abc import Iterable
    from ssl import SSLContext

    from raftctl.config import NodeConfig

    FormatStorage = Callable[[NodeConfig, str, str | None], object]
    """Formats the directories of a node for a cluster id; and the first voters, if it is one."""


Launcher = Callable[[Path, Path], ProcessRef]
"""Starts the node of a properties file and appends what it writes to a log file."""

DEFAULT_NODES = 3
"""Of each role, in a new cluster."""
KAFKA_PLUGINS = ("kafka", "memory")
"""Brokers that answer Kafka's clients once they are active."""

GRACE_S = 60.0
"""From SIGTERM to SIGKILL: a broker waits up to 10 s for the controller, then syncs each log."""

_POLL_S = 0.05
_PROBE_S = 0.5
"""A broker that listens but is not ready answers as soon as it is."""
_KILL_WAIT_S = 5.0
_SERVE_S = 1.0
"""For a broker that is restarted to accept a connection."""
_PROGRESS_S = 1.0


class NodeTlsKeys(Protocol):
    """TLS of the nodes of a new cluster."""

    @property
    def context(self) -> SSLContext:
        """Return the context with which controllers are asked."""

    def keys(self, node: LocalNode, layout: ClusterLayout) -> Mapping[str, str]:
        """Return the configuration of one node, besides that of all."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Cluster that the user asks for; None: as it is, or the default for a new one."""

    controllers: int | None = None
    brokers: int | None = None
    first_port: int | None = None
    """Brokers, then controllers, then the brokers' HTTP listen from here on; None: any free
    ports."""
    overrides: Mapping[str, str] | None = None
    hosts: Sequence[str] = ()
    """Where the controllers, then the brokers listen; empty: all on loopback."""
    tls: NodeTlsKeys | None = None
    """None: connections between nodes are not encrypted."""


class LocalCluster:
    """The nodes of one directory. Methods block; none is safe to call from two threads at once,
    except that `kill`, `start` and `status` may be called while others wait.
    """

    def __init__(
        self, directory: Path, layout: ClusterLayout, launch: Launcher = start_node
    ) -> None:
        self.directory = directory
        self.layout = layout
        self._launch = launch
        self._tls: NodeTlsKeys | None = None

    @classmethod
    def load(cls, directory: Path, launch: Launcher = start_node) -> LocalCluster:
        """Return the cluster kept in the directory; ConfigError if there is none."""
        path = _layout_path(directory)
        try:
            return cls(directory, layout_from_json(json.loads(path.read_text())), launch)
        except FileNotFoundError:
            raise ConfigError(f"--dir {directory}: no cluster here; raftctl up makes one") from None
        except (ConfigError, ValueError) as error:
            raise ConfigError(f"{path}: {error}") from None

    @classmethod
    def open(
        cls,
        directory: Path,
        spec: ClusterSpec,
        new_cluster_id: Callable[[], str],
        format_storage: FormatStorage,
        launch: Launcher = start_node,
    ) -> LocalCluster:
        """Load the cluster of the directory, or create one in an empty or new directory.

        `new_cluster_id` makes directory ids, too, by which the log knows the first voters.
        ConfigError, with nothing changed, if the directory holds something else, or a cluster
        other than asked for, or if a port asked for is in use.
        """
        if _layout_path(directory).exists():
            cluster = cls.load(directory, launch)
            _check_same(cluster.layout, spec, directory)
            return cluster
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise ConfigError(f"--dir {directory}: neither empty nor a cluster's: choose another")
        cluster = cls(directory, _new_layout(spec, new_cluster_id()), launch)
        cluster._tls = spec.tls
        cluster._create(format_storage, new_cluster_id)
        return cluster

    def _create(self, format_storage: FormatStorage, new_id: Callable[[], str]) -> None:
        # Those who only look at a cluster need no configuration.
        from raftctl.config import make_config, warn_on_stderr, write_properties

        values = {node: self._values(node) for node in self.layout.nodes}
        warned: list[str] = []
        configs = {node: make_config(of_node, warned.append) for node, of_node in values.items()}
        for sentence in dict.fromkeys(warned):
            warn_on_stderr(sentence)
        voters = initial_controllers(self.layout, new_id)
        for node, config in configs.items():
            self._path(node).mkdir(parents=True)
            path = self._properties_path(node)
            path.touch(mode=0o600)  # overrides may hold passwords
            path.write_text(write_properties(values[node]))
            first = voters if config.is_controller else None
            format_storage(config, self.layout.cluster_id, first)
        # Last, since its presence says that the directory is complete.
        _layout_path(self.directory).write_text(json.dumps(layout_to_json(self.layout), indent=2))

    def start_all(self) -> list[LocalNode]:
        """Start every node that does not run and return them, controllers first.

        ConfigError, with nothing started, if a port of one is in use.
        """
        down = [node for node in self.layout.nodes if not self.is_running(node)]
        for node in down:
            self._check_port(node)
        for node in down:
            self.start(node)
        return down

    def start(self, node: LocalNode) -> None:
        """Start one node; it must not run."""
        with postponed_signals():
            process = self._launch(self._properties_path(node), self.log_path(node))
            save_process(self._process_path(node), process)

    def kill(self, node: LocalNode) -> None:
        """Kill the node as a crash would (SIGKILL) and wait until it is gone."""
        self._end([node], signal.SIGKILL, _KILL_WAIT_S)

    def kill_all(self, spare: Sequence[LocalNode] = ()) -> None:
        """Kill every node but those to spare."""
        nodes = [node for node in self.layout.nodes if node not in spare]
        self._end(nodes, signal.SIGKILL, _KILL_WAIT_S)

    def stop(self, node: LocalNode, grace_s: float = GRACE_S) -> bool:
        """Stop one node (SIGTERM); true if it took too long and was killed."""
        return bool(self._stop([node], grace_s))

    def stop_all(
        self, grace_s: float = GRACE_S, nodes: Sequence[LocalNode] | None = None
    ) -> list[LocalNode]:
        """Stop the nodes, all if none are named: brokers, then controllers (SIGTERM).

        Kills and returns those that take too long.
        """
        wanted = self.layout.nodes if nodes is None else nodes
        stubborn: list[LocalNode] = []
        for group in (self.layout.brokers, self.layout.controllers):
            stubborn += self._stop([node for node in group if node in wanted], grace_s)
        return stubborn

    def is_running(self, node: LocalNode) -> bool:
        """Return whether a process of the node runs, started here or by hand."""
        process = self.process(node)
        return process is not None and process.is_alive()

    def process(self, node: LocalNode) -> ProcessRef | None:
        """Return the node's process: started here, or by hand if that one is gone; else the last
        known.
        """
        saved = load_process(self._process_path(node))
        if saved is not None and saved.is_alive():
            return saved
        return lock_holder(self._data_path(node)) or saved

    def why_down(self, node: LocalNode) -> str:
        """Return the reason in its log why a node does not run, and the path of the log."""
        saved, last = load_process(self._process_path(node)), locked_last_by(self._data_path(node))
        if last is not None and (
            # One that was started here and ended before it could lock left its reason in the log.
            saved is None or (saved.pid != last.pid and last.at_s > saved.started)
        ):
            return f"process {last.pid}, started by hand, has ended"
        log = self.log_path(node)
        return f"{end_reason(log)} ({log})"

    def stopped(self) -> dict[str, str]:
        """Return the nodes that do not run, and why."""
        return {
            node.name: self.why_down(node)
            for node in self.layout.nodes
            if not self.is_running(node)
        }

    def status(self, timeout_s: float = 1.0) -> ClusterStatus:
        """Return what the controllers report now."""
        context = None if self._tls is None else self._tls.context
        addresses = [node.address for node in self.layout.controllers]
        return ask_controllers(addresses, timeout_s, HttpSecurity(context))

    def is_healthy(self, timeout_s: float = 1.0) -> bool:
        """Return whether every broker serves and is active, and every replica is in sync.

        Brokers are asked first: controllers take one that was killed for active until its session
        ends, or it has registered again, before which it answers nobody.
        """
        if not all(self.serves(broker, timeout_s) for broker in self.layout.brokers):
            return False
        status = self.status(timeout_s)
        return (
            status.leader is not None
            and status.leader["under_replicated_partitions"] == 0
            and status.leader["offline_partitions"] == 0
            and {broker.node_id for broker in self.layout.brokers} <= set(status.active_brokers)
        )

    def wait_ready(self, timeout_s: float, progress: Callable[[str], None]) -> ClusterStatus:
        """Wait until there is an active controller and every broker is unfenced and serves.

        `progress` gets a sentence whenever the state changes. ConfigError if a node stops, or
        nothing more happens until the timeout.
        """
        deadline = time.monotonic() + timeout_s
        wanted = [broker.node_id for broker in self.layout.brokers]
        reported = ""
        silent = list(self.layout.brokers)
        while True:
            # Asked first: after a crash the controllers know brokers from before it as unfenced.
            silent = [broker for broker in silent if not self.serves(broker, _PROBE_S)]
            status = self.status()
            active = [one for one in status.active_brokers if one in wanted]
            sentence = _progress_sentence(status, len(active), len(wanted))
            if sentence != reported:
                progress(sentence)
                reported = sentence
            if not silent and len(active) == len(wanted):
                return status
            self.check_none_stopped()
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"not ready after {timeout_s:g} s ({reported}): see {self.log_hint}"
                )
            time.sleep(_POLL_S)

    @property
    def log_hint(self) -> str:
        """Path pattern of the nodes' logs."""
        return str(self.directory / "*" / "node.log")

    def log_path(self, node: LocalNode) -> Path:
        """Return the path of the node's log."""
        return self._path(node) / "node.log"

    def check_none_stopped(self) -> None:
        """ConfigError, with the reason, if a node's process is gone."""
        for name, why in self.stopped().items():
            raise ConfigError(f"{name} does not run: {why}")

    def serves(self, broker: LocalNode, timeout_s: float) -> bool:
        """Return whether the broker answers Kafka's clients; one of another plug-in need not."""
        # Here, since other commands pay for what this module imports.
        from raftctl.config.addresses import parse_protocols

        keys = dict(self.layout.overrides)
        protocols = parse_protocols(keys.get("listener.security.protocol.map", ""))
        encrypted = protocols.get(BROKER_LISTENER, "").endswith("SSL")
        return keys.get("broker.plugin", "kafka") not in KAFKA_PLUGINS or serves(
            broker.host, broker.port, timeout_s, encrypted=encrypted
        )

    def _check_port(self, node: LocalNode) -> None:
        for port in node.ports if node.host == HOST else ():
            if not is_free(port):
                raise ConfigError(
                    f"listeners: port {port} of {node.name} is in use: stop the program that "
                    "listens there, or choose another --dir or --port"
                )

    def _stop(self, nodes: Sequence[LocalNode], grace_s: float) -> list[LocalNode]:
        late = self._end(nodes, signal.SIGTERM, grace_s)
        self._end(late, signal.SIGKILL, _KILL_WAIT_S)
        return late

    def _end(
        self, nodes: Sequence[LocalNode], number: signal.Signals, timeout_s: float
    ) -> list[LocalNode]:
        """Signals the nodes, waits, and returns those that still run."""
        processes = {node: self.process(node) for node in nodes}
        known = [process for process in processes.values() if process is not None]
        for process in known:
            process.send(number)
        late = wait_gone(known, timeout_s)
        return [node for node, process in processes.items() if process in late]

    def _values(self, node: LocalNode) -> dict[str, str]:
        values = node_values(self.layout, node, str(self._data_path(node).absolute()))
        return values if self._tls is None else {**values, **self._tls.keys(node, self.layout)}

    def _data_path(self, node: LocalNode) -> Path:
        return self._path(node) / "data"

    def _path(self, node: LocalNode) -> Path:
        return self.directory / node.name

    def _properties_path(self, node: LocalNode) -> Path:
        return self._path(node) / "node.properties"

    def _process_path(self, node: LocalNode) -> Path:
        return self._path(node) / "process.json"


def _layout_path(directory: Path) -> Path:
    return directory / "cluster.json"


def _new_layout(spec: ClusterSpec, cluster_id: str) -> ClusterLayout:
    controllers = DEFAULT_NODES if spec.controllers is None else spec.controllers
    brokers = DEFAULT_NODES if spec.brokers is None else spec.brokers
    check_size(controllers, brokers)
    nodes = controllers + brokers
    count = nodes + brokers
    if spec.first_port is None:
        ports = free_ports(count)
    else:
        ports = list(range(spec.first_port, spec.first_port + count))
    layout = make_layout(
        cluster_id,
        ports[brokers:nodes],
        ports[:brokers],
        spec.overrides or {},
        spec.hosts,
        ports[nodes:],
    )
    for port in (port for node in layout.nodes for port in node.ports):
        if not is_free(port):
            raise ConfigError(f"--port {spec.first_port}: {port} is in use: choose another")
    return layout


def _check_same(layout: ClusterLayout, spec: ClusterSpec, directory: Path) -> None:
    """Refuses to take a cluster for another one."""
    asked = {
        "--controllers": (spec.controllers, len(layout.controllers)),
        "--brokers": (spec.brokers, len(layout.brokers)),
        "--port": (spec.first_port, layout.brokers[0].port),
    }
    for option, (wanted, there) in asked.items():
        if wanted is not None and wanted != there:
            raise ConfigError(
                f"{option} {wanted}: the cluster in {directory} has {there}: leave the option out "
                "or choose another --dir"
            )
    if spec.overrides and dict(layout.overrides) != dict(spec.overrides):
        raise ConfigError(
            f"-o: the cluster in {directory} was made with other keys: choose another --dir, or "
            f"change {directory}/*/node.properties, then raftctl restart --rolling"
        )


def _progress_sentence(status: ClusterStatus, active: int, wanted: int) -> str:
    if status.leader is None:
        answering = sum(answer is not None for answer in status.answers.values())
        return f"{answering} of {len(status.answers)} controllers answer, no leader yet"
    return f"controller {status.leader['node_id']} leads, {active} of {wanted} brokers are active"


_TAIL_BYTES = 64 * 1024
_SENTENCE_MAX = 300
_SAID_BY_COMMANDS = "raftctl: "


def end_reason(log: Path) -> str:
    """Return the end of a node by its log: one line, also if the log gives no reason."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError as error:
        return f"its log cannot be read: {error.strerror}"
    return _reason_in(lines)[:_SENTENCE_MAX]


def _reason_in(lines: list[str]) -> str:
    """The reason in the last lines of a node's log, which ends with the node.

    A node that fails writes an error, or lines that are no JSON, such as a traceback; one that is
    killed writes nothing more.
    """
    if not lines:
        return "it wrote nothing"
    last = _event(lines[-1])
    if last is None:
        return lines[-1].removeprefix(_SAID_BY_COMMANDS)
    if last.get("event") == "node_stopped":
        return f"stopped as asked at {last.get('timestamp')}"
    failed = next(
        (one for one in reversed(_last_run(lines)) if one["event"] == "node_failed"), None
    )
    if failed is not None:
        lines = str(failed.get("exception") or "").strip().splitlines()
        return lines[-1] if lines else "it failed"
    return f"killed: its log ends with {last.get('event')} at {last.get('timestamp')}"


def _last_run(lines: list[str]) -> list[dict[str, Any]]:
    """The events since the node started last."""
    events = [event for line in lines if (event := _event(line)) is not None]
    starts = [at for at, event in enumerate(events) if event["event"] == "log_recovered"]
    return events[starts[-1] :] if starts else events


def _event(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


# --- rolling restarts -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Restarted:
    """One node that went down and is in full service again."""

    node: LocalNode
    seconds: float
    """From the signal to the moment when the next node may go."""
    killed: bool
    """Whether it did not stop by itself in time."""


@dataclass(frozen=True, slots=True)
class RollingRestart:
    """Restart of the nodes of a cluster, one by one."""

    cluster: LocalCluster
    grace_s: float
    """How long a node may take to stop before it is killed."""
    timeout_s: float
    """How long to wait before each node, and after the last, until all is in sync."""
    progress: Callable[[str], None]

    def run(self, nodes: Sequence[LocalNode]) -> list[Restarted]:
        """Restarts the nodes: controllers, the active one last, then brokers.

        KafkaError if the cluster is not in sync before a node's turn, or does not come back: the
        nodes not yet restarted then go on as they are.
        """
        done = []
        self._check_all_run()
        status = self._wait_in_sync("the first node")
        waiting = list(nodes)
        while waiting:
            node = next_node(waiting, status)
            waiting.remove(node)
            began_s = time.monotonic()
            killed = self._restart(node)
            status = self._wait_in_sync(node.name)
            done.append(Restarted(node, time.monotonic() - began_s, killed))
            late = f", killed after {self.grace_s:g} s" if killed else ""
            self.progress(f"{node.name} restarted in {done[-1].seconds:.1f} s{late}")
        return done

    def _restart(self, node: LocalNode) -> bool:
        # Interrupted in between, the cluster would be left without the node.
        with postponed_signals():
            killed = self.cluster.stop(node, self.grace_s)
            self.cluster.start(node)
        return killed

    def _wait_in_sync(self, what: str) -> ClusterStatus:
        deadline_s = time.monotonic() + self.timeout_s
        say_at_s = time.monotonic() + _PROGRESS_S
        while True:
            status = self.cluster.status()
            lacking = what_lacks(self.cluster.layout, status, self._lives_ms())
            lacking = lacking or self._silent_broker()
            if not lacking:
                return status
            self._check_all_run()
            now_s = time.monotonic()
            if now_s > deadline_s:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{what}: not in sync after {self.timeout_s:g} s: {lacking}; no further node "
                    f"was restarted: see {self.cluster.log_hint}, or give a longer --timeout",
                )
            if now_s >= say_at_s:
                self.progress(f"{what}: waiting: {lacking}")
                say_at_s = now_s + _PROGRESS_S
            time.sleep(_POLL_S)

    def _check_all_run(self) -> None:
        for name, why in self.cluster.stopped().items():
            of_broker = self.cluster.layout.node(name).role == "broker"
            code = ErrorCode.BROKER_NOT_AVAILABLE if of_broker else ErrorCode.REPLICA_NOT_AVAILABLE
            remedy = f"raftctl up --dir {self.cluster.directory} starts it"
            raise KafkaError(code, f"{name} does not run: {why}: {remedy}")

    def _lives_ms(self) -> dict[int, float]:
        now_s = time.time()
        processes = {one.node_id: self.cluster.process(one) for one in self.cluster.layout.nodes}
        return {
            node_id: (now_s - process.started) * 1000
            for node_id, process in processes.items()
            if process is not None
        }

    def _silent_broker(self) -> str:
        """Controllers take a broker that was killed for active until its session ends."""
        for broker in self.cluster.layout.brokers:
            if not self.cluster.serves(broker, _SERVE_S):
                return f"{broker.name} does not serve"
        return ""


def next_node(waiting: Iterable[LocalNode], status: ClusterStatus) -> LocalNode:
    """Return the next waiting node: controllers first, the active one last of these.

    So the leader of the quorum moves once, not again with each controller that is restarted.
    """
    leader_id = status.leader["node_id"] if status.leader else None
    return min(
        waiting,
        key=lambda one: (one.role != "controller", one.node_id == leader_id, one.node_id),
    )


def what_lacks(layout: ClusterLayout, status: ClusterStatus, lives_ms: Mapping[int, float]) -> str:
    """Why no node may go down now; empty if one may. `lives_ms`: how long each node has run."""
    leader = status.leader
    if leader is None:
        return "no controller leads"
    fetched_ms = {one["node_id"]: one["last_fetch_age_ms"] for one in leader["voters"]}
    for controller in layout.controllers:
        answer = status.answers.get(controller.address)
        if answer is None:
            return f"{controller.name} does not answer"
        behind = leader["high_watermark"] - answer["log_end_offset"]
        if behind > 0:
            return f"{controller.name} is {behind} records behind"
        # What its disk and the leader remember of its former life says nothing of this one.
        age_ms = 0 if answer is leader else fetched_ms.get(controller.node_id)
        if age_ms is None or age_ms >= lives_ms.get(controller.node_id, 0):
            return f"{controller.name} does not follow yet"
    return _unserved(layout, leader)


def _unserved(layout: ClusterLayout, leader: dict[str, Any]) -> str:
    serving = {
        one["broker_id"]
        for one in leader["brokers"]
        if not one["fenced"] and not one["in_controlled_shutdown"]
    }
    for broker in layout.brokers:
        if broker.node_id not in serving:
            return f"{broker.name} is not active yet"
    for what in ("offline", "under-replicated"):
        count = leader[f"{what.replace('-', '_')}_partitions"]
        if count:
            return f"{count} {what} partitions"
    return ""
