"""`raftctl bench`: measures any Kafka cluster by producing and consuming records.

Options are named as those of Apache Kafka's performance tools where they mean the same. `produce`
follows `kafka-producer-perf-test`: latency runs from the call to the acknowledgement, so it
includes the wait for the batch. `consume` follows `kafka-consumer-perf-test`, but assigns all
partitions without a group, so that only fetching is measured. `end-to-end` follows Kafka's
EndToEndLatency: the next record is sent when the last has arrived. With a throughput, records are
sent at a steady pace instead, so that a stall shows in every record that waits.

Percentiles are exact, from the latency of every record. A record that is refused ends the run,
because a rate of errors is no throughput.
"""

from __future__ import annotations

import random
import secrets
import struct
import threading
import time
from array import array
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from raftctl.cli._options import BootstrapOption, CommandConfigOption, CommandGroup, Printer
from raftctl.cli._output import say_progress
from raftctl.cli.clients._librdkafka import (
    assign_to_end,
    kafka_errors,
    new_client,
    partitions_of,
)
from raftctl.cli.files import client_settings
from raftctl.errors import ConfigError, ErrorCode, KafkaError, client_error

app = CommandGroup("Measures throughput and latency.")

RECORDS_MAX = 1_000_000_000
RECORD_BYTES_MAX = 100 * 1024 * 1024
FETCH_BYTES_MAX = 1_000_000_000
TIMEOUT_MS_MAX = 3_600_000
HEAD = struct.Struct(">8sQ")
"""Which run of `end-to-end` a record belongs to, and its number."""
MEGABYTE = 1e6
PROGRESS_S = 5.0
RATES = "{records} records, {records_per_s} records/s ({megabytes_per_s} MB/s)"
LATENCIES = (
    "{avg_ms} ms avg latency, {max_ms} ms max latency, {p50_ms} ms 50th, {p95_ms} ms 95th, "
    "{p99_ms} ms 99th, {p99_9_ms} ms 99.9th"
)

PropertyOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A setting of librdkafka's client."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Printer):
    """Records of a topic that are written or read."""

    bootstrap_server: BootstrapOption
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="An existing topic.")]
    num_records: Annotated[
        int, typer.Option(min=1, max=RECORDS_MAX, metavar="N", help="Number of records.")
    ]
    command_config: CommandConfigOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceLoad(Load):
    """What `produce` writes."""

    record_size: Annotated[
        int,
        typer.Option(min=1, max=RECORD_BYTES_MAX, metavar="N", help="Bytes of a value."),
    ] = 1024
    throughput: Annotated[
        float, typer.Option(metavar="N", help="Records a second; -1: as fast as possible.")
    ] = -1
    command_property: Annotated[
        list[str] | None,
        typer.Option(
            "--command-property",
            "--producer-props",
            metavar="KEY=VALUE",
            help="A setting of librdkafka's producer, e.g. `acks=1`, `batch.size=65536`.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeLoad(Load):
    """What `consume` reads."""

    from_latest: Annotated[
        bool, typer.Option("--from-latest", help="Begin at the end, not at the start.")
    ] = False
    fetch_size: Annotated[
        int,
        typer.Option(
            min=1, max=FETCH_BYTES_MAX, metavar="N", help="Bytes of a partition in one fetch."
        ),
    ] = 1024 * 1024
    timeout: Annotated[
        int,
        typer.Option(
            min=1, max=TIMEOUT_MS_MAX, metavar="MS", help="Longest time without a record."
        ),
    ] = 10_000
    command_property: PropertyOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToEndLoad(Load):
    """What `end-to-end` sends; each client ignores the settings of the other."""

    record_size: Annotated[
        int,
        typer.Option(min=HEAD.size, max=RECORD_BYTES_MAX, metavar="N", help="Bytes of a value."),
    ] = 100
    producer_acks: Annotated[
        str, typer.Option(metavar="0|1|all", help="Acknowledgements that a write waits for.")
    ] = "all"
    throughput: Annotated[
        float,
        typer.Option(
            metavar="N", help="Records a second; -1: each record once the last has arrived."
        ),
    ] = -1
    command_property: PropertyOption = None


@app.command()
def produce(load: ProduceLoad) -> None:
    """Measures how fast records are written. Values are random letters.

    A megabyte is 10^6 bytes of values. A latency is from the call to the acknowledgement.
    """
    _check_throughput(load.throughput)
    defaults = {
        "queue.buffering.max.kbytes": BUFFER_KIB,
        "message.max.bytes": max(MESSAGE_BYTES_MIN, load.record_size + BATCH_OVERHEAD),
    }
    settings = client_settings(load.command_property)
    producer = new_client(Producer, load.bootstrap_server, defaults, settings, load.command_config)
    partitions_of(producer, load.topic)
    run = _ProduceRun(producer, load)
    seconds = run.write_all()
    report = _rates(load.num_records, load.num_records * load.record_size, seconds)
    _show(load, report | run.latencies.summary(), f"{RATES}, {LATENCIES}")


@app.command()
def consume(load: ConsumeLoad) -> None:
    """Measures how fast records are read. Reads all partitions, without a group.

    A megabyte is 10^6 bytes of values.
    """
    defaults = {
        "group.id": "raftctl-bench",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "max.partition.fetch.bytes": load.fetch_size,
        "fetch.queue.backoff.ms": QUEUE_BACKOFF_MS,
    }
    settings = client_settings(load.command_property)
    consumer = new_client(Consumer, load.bootstrap_server, defaults, settings, load.command_config)
    try:
        partitions = partitions_of(consumer, load.topic)
        began = time.perf_counter()
        if load.from_latest:
            assign_to_end(consumer, load.topic, partitions)
        else:
            consumer.assign([TopicPartition(load.topic, p, OFFSET_BEGINNING) for p in partitions])
        report = _read(consumer, load, began)
    finally:
        consumer.close()
    _show(load, report, RATES)


@app.command(name="end-to-end")
def end_to_end(load: EndToEndLoad) -> None:
    """Measures latency from the producer's call to the consumer."""
    _check_throughput(load.throughput)
    if load.producer_acks not in ("0", "1", "-1", "all"):
        raise ConfigError(f"--producer-acks {load.producer_acks}: must be 0, 1 or all")
    settings = client_settings(load.command_property)
    reading = {"group.id": "raftctl-bench", "enable.auto.commit": False}
    consumer = new_client(Consumer, load.bootstrap_server, reading, settings, load.command_config)
    writing = {"acks": load.producer_acks, "linger.ms": 0}
    producer = new_client(Producer, load.bootstrap_server, writing, settings, load.command_config)
    try:
        partitions = partitions_of(consumer, load.topic)
        assign_to_end(consumer, load.topic, partitions)
        say_progress(f"sends {load.num_records} records through {len(partitions)} partitions")
        run = _EndToEndRun(producer, consumer, load, partitions)
        seconds = run.send_all()
    finally:
        consumer.close()
    report = _rates(load.num_records, load.num_records * load.record_size, seconds)
    _show(load, report | run.latencies.summary(), f"{RATES}, {LATENCIES}")


def _check_throughput(records_per_s: float) -> None:
    if records_per_s <= 0 and records_per_s != -1:
        raise ConfigError(
            f"--throughput {records_per_s:g}: must be above 0 records a second, or -1 for no limit"
        )


def _rates(records: int, size: int, seconds: float) -> dict[str, Any]:
    """Records and megabytes (10^6 bytes of values) of a run."""
    return {
        "records": records,
        "bytes": size,
        "seconds": round(seconds, 4),
        "records_per_s": round(records / seconds, 1),
        "megabytes_per_s": round(size / seconds / MEGABYTE, 3),
    }


def _show(printer: Printer, report: dict[str, Any], form: str) -> None:
    printer.show(report, form.format(**report))


MILLISECONDS = 1000
PERCENTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p99_9_ms": 0.999}


class Latencies:
    """Eight bytes a record; the mean, the greatest and the percentiles of all."""

    def __init__(self) -> None:
        self._seconds = array("d")

    def __len__(self) -> int:
        return len(self._seconds)

    def add(self, seconds: float) -> None:
        """One record's."""
        self._seconds.append(seconds)

    def summary(self) -> dict[str, Any]:
        """Milliseconds by name: `avg_ms`, `max_ms` and the percentiles; None if there are none.

        A percentile is the smallest latency that at least this share of all does not exceed.
        """
        ordered = sorted(self._seconds)
        if not ordered:
            return {"avg_ms": None, "max_ms": None, **dict.fromkeys(PERCENTILES)}
        milliseconds = {
            "avg_ms": sum(ordered) / len(ordered),
            "max_ms": ordered[-1],
            **{name: _at(ordered, share) for name, share in PERCENTILES.items()},
        }
        return {name: round(value * MILLISECONDS, 3) for name, value in milliseconds.items()}


def _at(ordered: list[float], share: float) -> float:
    rank = -int(-share * len(ordered) // 1)
    return ordered[max(0, rank - 1)]


PAYLOADS = 16
"""Different values, in turn: random letters, as the tool of Apache Kafka makes them."""
BUFFER_KIB = 65536
"""What may wait in the client, unless `queue.buffering.max.kbytes` says otherwise."""
BATCH_OVERHEAD = 4096
MESSAGE_BYTES_MIN = 1_000_000
"""librdkafka's default of `message.max.bytes`, which is raised for greater records."""
FULL_WAIT_S = 0.01
SERVE_EVERY = 32
"""Records between two looks at what came of earlier ones."""
FLUSH_TIMEOUT_S = 300.0


class _ProduceRun:
    """One run of one producer."""

    def __init__(self, producer: Producer, load: ProduceLoad) -> None:
        self._producer = producer
        self._load = load
        self._refused: list[Any] = []
        self._reported = 0
        self._report_at_s = PROGRESS_S
        self.latencies = Latencies()

    def write_all(self) -> float:
        """Seconds from the first record given to the last one acknowledged."""
        load, source = self._load, random.Random(0)
        payloads = [_letters(source, load.record_size) for _ in range(PAYLOADS)]
        began = time.perf_counter()
        for number in range(load.num_records):
            if load.throughput > 0:
                self._wait_until(began + number / load.throughput)
            self._give(payloads[number % PAYLOADS])
            if number % SERVE_EVERY == 0:
                self._producer.poll(0)
                self._check(0)
                self._report(time.perf_counter() - began)
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        seconds = time.perf_counter() - began
        self._check(left)
        return seconds

    def _give(self, payload: bytes) -> None:
        while True:
            try:
                self._producer.produce(self._load.topic, payload, on_delivery=self._delivered)
                return
            except BufferError:
                self._producer.poll(FULL_WAIT_S)
            except KafkaException as error:
                raise client_error(error.args[0].code(), error.args[0].str()) from None

    def _wait_until(self, due: float) -> None:
        while (left := due - time.perf_counter()) > 0:
            time.sleep(min(left, PROGRESS_S))
            self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.latencies.add(message.latency())
        else:
            self._refused.append(error)

    def _report(self, elapsed_s: float) -> None:
        if elapsed_s < self._report_at_s:
            return
        acknowledged = len(self.latencies)
        a_second = (acknowledged - self._reported) / (elapsed_s - self._report_at_s + PROGRESS_S)
        megabytes = a_second * self._load.record_size / MEGABYTE
        say_progress(
            f"{acknowledged} records sent, {a_second:.1f} records/s ({megabytes:.2f} MB/s)"
        )
        self._reported, self._report_at_s = acknowledged, elapsed_s + PROGRESS_S

    def _check(self, left: int) -> None:
        if self._refused:
            first = self._refused[0]
            raise client_error(first.code(), f"a record was refused: {first.str()}")
        if left:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{left} records were not acknowledged within {FLUSH_TIMEOUT_S:g} s",
            )


def _letters(source: random.Random, size: int) -> bytes:
    return bytes(source.choices(range(ord("A"), ord("Z") + 1), k=size))


AT_ONCE = 1_000
"""Records that the client hands over at once. With ten times as many they have left the processor's
caches when they are looked at, and the client takes half as long again.
"""
POLL_S = 0.1
QUEUE_BACKOFF_MS = 5
"""How long the client stops fetching when 100,000 records wait in it. Its default, a second, would
be what is measured: the sooner brokers answer, the sooner the client stops."""


def _read(consumer: Consumer, load: ConsumeLoad, began: float) -> dict[str, Any]:
    records, size, first_s = 0, 0, 0.0
    last = reported = began
    while records < load.num_records:
        with kafka_errors():
            messages = consumer.consume(min(AT_ONCE, load.num_records - records), POLL_S)
        now = time.perf_counter()
        for message in messages:
            error = message.error()
            if error is not None:
                raise client_error(error.code(), error.str())
            size += len(message)
        if messages:
            first_s = first_s or now - began
            last = now
            records += len(messages)
        elif (now - last) * 1000 > load.timeout:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"no record for {load.timeout} ms after {records} of {load.num_records}: "
                "lower --num-records or raise --timeout",
            )
        if now - reported > PROGRESS_S:
            say_progress(f"{records} records read, {size / (now - began) / MEGABYTE:.2f} MB/s")
            reported = now
    seconds = last - began
    return _rates(records, size, seconds) | {"seconds_to_first_record": round(first_s, 4)}


ARRIVAL_TIMEOUT_S = 60.0


class _EndToEndRun:
    """One thread gives records, another one receives them."""

    def __init__(
        self, producer: Producer, consumer: Consumer, load: EndToEndLoad, partitions: list[int]
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self._load = load
        self._partitions = partitions
        self._tag = secrets.token_bytes(8)
        self._given: list[float | None] = []
        """When each record was given, by its number; None once it has arrived."""
        self._arrived = threading.Condition()
        self._ending = False
        self._failure: KafkaError | None = None
        self.latencies = Latencies()

    def send_all(self) -> float:
        """Seconds from the first record given to the last one received."""
        receiver = threading.Thread(target=self._receive, daemon=True)
        receiver.start()
        began = time.perf_counter()
        try:
            for number in range(self._load.num_records):
                self._send(number, began)
            self._wait_for(self._load.num_records)
            return time.perf_counter() - began
        finally:
            self._ending = True
            receiver.join()
            self._producer.flush(ARRIVAL_TIMEOUT_S)

    def _send(self, number: int, began: float) -> None:
        if self._load.throughput > 0:
            due = began + number / self._load.throughput
            while (left := due - time.perf_counter()) > 0:
                time.sleep(left)
        else:
            self._wait_for(number)
        filler = b"x" * (self._load.record_size - HEAD.size)
        value = HEAD.pack(self._tag, number) + filler
        self._given.append(time.perf_counter())
        partition = self._partitions[number % len(self._partitions)]
        with kafka_errors():
            self._producer.produce(
                self._load.topic, value, partition=partition, on_delivery=self._delivered
            )
        self._producer.poll(0)
        self._check()

    def _wait_for(self, count: int) -> None:
        deadline = time.monotonic() + ARRIVAL_TIMEOUT_S
        while len(self.latencies) < count:
            with self._arrived:
                self._arrived.wait_for(lambda: len(self.latencies) >= count, POLL_S)
            self._producer.poll(0)
            self._check()
            if time.monotonic() > deadline:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{count - len(self.latencies)} of {count} records have not arrived within "
                    f"{ARRIVAL_TIMEOUT_S:g} s",
                )

    def _receive(self) -> None:
        while not self._ending and self._failure is None:
            message = self._consumer.poll(POLL_S)
            now = time.perf_counter()
            if message is None:
                continue
            error = message.error()
            if error is not None:
                self._failure = client_error(error.code(), error.str())
                return
            self._take(message.value() or b"", now)

    def _take(self, value: bytes, now: float) -> None:
        if len(value) < HEAD.size:
            return
        tag, number = HEAD.unpack_from(value)
        # Others may write to the topic meanwhile, and a retry may write a record twice.
        given = self._given[number] if tag == self._tag else None
        if given is not None:
            self._given[number] = None
            with self._arrived:
                self.latencies.add(now - given)
                self._arrived.notify()

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failure = client_error(error.code(), f"a record was refused: {error.str()}")

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
