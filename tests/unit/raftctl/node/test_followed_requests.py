"""One request over several nodes: each of its lines of the log has the same id."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from jepsen.simulator.cluster import CONTROLLER_PORT, Observer, SimCluster
from jepsen.simulator.world import World
from raftctl.node import _node as node_module
from raftctl.runtime.connector import LoopConnector
from raftctl.tracing import TraceContext, Tracer
from raftctl.tracing._spans import Span
from tests.simulation.cluster_scenarios import all_brokers_active

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jepsen.simulator.world import SimRuntime
    from raftctl.config import NodeConfig

pytestmark = pytest.mark.req("O2")
LATE_S = 0.6


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=23) as made:
        yield made


def field(line: str, name: str) -> str:
    """The value of a field of a line of the log."""
    found = re.search(rf" {name}='([^']*)'", line)
    assert found is not None, line
    return found[1]


async def create_topic(cluster: SimCluster, replicas: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap, client_id="creator")
    await admin.start()
    await admin.create_topics([NewTopic("orders", 1, replicas)])
    await admin.close()


def test_a_creation_is_followed_from_the_broker_to_the_controller(world: World) -> None:
    cluster = SimCluster(world, controllers=1, brokers=1, broker_overrides={"slow.request.ms": "0"})
    cluster.start_all()
    lines: list[str] = []

    async def operator(runtime: SimRuntime) -> None:
        await Observer(cluster).wait_for(all_brokers_active(cluster))
        world.trace.sink = lines.append
        await create_topic(cluster, 1)

    async def scenario() -> None:
        await world.start("operator", operator).done

    world.run(scenario())
    (slow,) = [one for one in lines if "slow_request " in one and "api='CREATE_TOPICS'" in one]
    (forwarded,) = [one for one in lines if "forwarded_request" in one]
    (asked,) = [one for one in lines if "request_forwarded" in one]
    assert [one.split()[1] for one in (slow, asked, forwarded)] == [
        "broker-1",
        "broker-1",
        "controller-101",
    ]
    request_id = field(slow, "request_id")
    assert request_id.startswith("1.")
    assert field(forwarded, "request_id") == field(asked, "request_id") == request_id
    assert "names=['orders']" in forwarded
    assert "broker_id=1" in forwarded
    assert re.search(r"waited \d+ ms for the active controller", field(slow, "why"))
    others = [one for one in lines if request_id in one and one not in (slow, asked, forwarded)]
    assert not others, "the lines of other requests have other ids"


def test_a_slow_produce_names_the_follower_that_was_late(world: World) -> None:
    cluster = SimCluster(
        world, controllers=1, brokers=2, broker_overrides={"slow.request.ms": "300"}
    )
    cluster.start_all()
    lines: list[str] = []
    late: list[int] = []

    async def operator(runtime: SimRuntime) -> None:
        observer = Observer(cluster)
        await observer.wait_for(all_brokers_active(cluster))
        await create_topic(cluster, 2)
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
        await producer.start()
        await producer.send_and_wait("orders", b"first", timestamp_ms=runtime.wall_ms())
        status = await observer.wait_for(lambda status: bool(status["partitions"]))
        follower = next(one["broker_id"] for one in status["brokers"] if not one["leaders"])
        world.trace.sink = lines.append
        world.pause(f"broker-{follower}")
        sent = asyncio.ensure_future(
            producer.send_and_wait("orders", b"second", timestamp_ms=runtime.wall_ms())
        )
        await asyncio.sleep(LATE_S)
        world.resume(f"broker-{follower}")
        await sent
        await producer.stop()
        late.append(follower)

    async def scenario() -> None:
        await world.start("operator", operator).done

    world.run(scenario())
    (slow,) = [one for one in lines if "slow_request " in one and "api='PRODUCE'" in one]
    why = field(slow, "why")
    found = re.fullmatch(
        rf"waited (\d+) ms for broker {late[0]} to have the records of orders-0", why
    )
    assert found is not None, why
    assert LATE_S * 900 < int(found[1]) < LATE_S * 2_000


class Spans(list[Span]):
    """In place of a collector: all spans of all nodes, all of which are traced."""

    def start(self, config: NodeConfig, runtime: SimRuntime, log: object) -> SimpleNamespace:
        loop = asyncio.get_running_loop()
        node = str(config.node_id)

        def export(span: Span) -> None:
            self.append(span._replace(attributes={**span.attributes, "node": node}))

        async def stop() -> None:
            pass

        tracer = Tracer(1.0, runtime.random, loop.time, runtime.wall_ms, export)
        return SimpleNamespace(tracer=tracer, stop=stop)

    def named(self, name: str) -> Span:
        """The one span of that name."""
        (found,) = [one for one in self if one.name == name]
        return found


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    made = Spans()
    monkeypatch.setattr(node_module, "start_tracing", made.start)
    return made


def test_one_trace_spans_broker_and_controller(world: World, spans: Spans) -> None:
    cluster = SimCluster(world, controllers=1, brokers=1)
    cluster.start_all()

    async def operator(runtime: SimRuntime) -> None:
        await Observer(cluster).wait_for(all_brokers_active(cluster))
        await create_topic(cluster, 1)

    async def scenario() -> None:
        await world.start("operator", operator).done

    world.run(scenario())
    whole = spans.named("CREATE_TOPICS")
    asked = spans.named("ask CreateTopicsRequest")
    served = spans.named("CreateTopicsRequest")
    commit = spans.named("quorum commit")
    remote = [one for one in spans if one.name == "remote" and one.parent == whole.context]
    assert [one.attributes["node"] for one in (whole, asked, served, commit)] == [
        "1",
        "1",
        "101",
        "101",
    ]
    assert (whole.parent, asked.parent) == (None, whole.context)
    assert (served.parent, commit.parent) == (asked.context, served.context)
    assert len({one.context.trace_id for one in (whole, asked, served, commit)}) == 1
    assert len(remote) == 1
    assert whole.began_ns <= asked.began_ns <= asked.ended_ns <= whole.ended_ns
    assert commit.ended_ns == served.ended_ns
    assert whole.attributes["raftctl.request_id"] == served.attributes["raftctl.request_id"]
    assert len({one.context.span_id for one in spans}) == len(spans)


def test_a_request_over_http_continues_the_trace_of_its_client(world: World, spans: Spans) -> None:
    cluster = SimCluster(world, controllers=1, brokers=0)
    cluster.start_all()
    parent = TraceContext(0xA1, 0xB2)

    async def operator(runtime: SimRuntime) -> None:
        (name,) = cluster.controller_names
        async with aiohttp.ClientSession(connector=LoopConnector()) as session:
            for sent in (parent.traceparent, parent.traceparent[:-2] + "00", "nonsense"):
                headers = {"traceparent": sent}
                url = f"http://{name}:{CONTROLLER_PORT}/nowhere"
                async with session.get(url, headers=headers) as answer:
                    await answer.read()

    async def scenario() -> None:
        await asyncio.sleep(1)
        await world.start("operator", operator).done

    world.run(scenario())
    followed, begun = [one for one in spans if one.name.startswith("GET")]
    assert (followed.parent, followed.context.trace_id) == (parent, parent.trace_id)
    assert followed.attributes["http.response.status_code"] == 404
    assert begun.parent is None


def test_requests_over_http_have_an_id_that_is_echoed(world: World) -> None:
    cluster = SimCluster(world, controllers=1, brokers=0)
    cluster.start_all()
    ids: list[str] = []

    async def operator(runtime: SimRuntime) -> None:
        (name,) = cluster.controller_names
        url = f"http://{name}:{CONTROLLER_PORT}"
        async with aiohttp.ClientSession(connector=LoopConnector()) as session:
            for path, given in (
                ("/livez", ""),
                ("/api/v1/status", "from-a-proxy.7"),
                ("/metrics", 'for"ged'),
                ("/nowhere", ""),
            ):
                headers = {"X-Request-Id": given, "Host": "localhost"} if given else {}
                async with session.get(f"{url}{path}", headers=headers) as answer:
                    ids.append(answer.headers["X-Request-Id"])

    async def scenario() -> None:
        await asyncio.sleep(1)
        await world.start("operator", operator).done

    world.run(scenario())
    assert ids[1] == "from-a-proxy.7"
    own = [one.split(".") for one in (ids[0], *ids[2:])]
    assert [(one[0], one[2], one[3]) for one in own] == [
        ("101", "0", "1"),
        ("101", "0", "2"),
        ("101", "0", "3"),
    ]
