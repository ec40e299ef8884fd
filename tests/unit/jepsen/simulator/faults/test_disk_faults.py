"""Faults of disks: what fails, what a bit that flips changes, and what a node owes then."""

from __future__ import annotations

import asyncio
import errno
import random
from typing import TYPE_CHECKING

import pytest

from jepsen.nemesis.plan import Fault
from jepsen.simulator.disk import SimDisk
from jepsen.simulator.faults import DiskFaults, PlannedNemesis
from jepsen.simulator.faults._disk_faults import DamageUnnoticed, DirectoryTakesNodeDown, Filling
from jepsen.simulator.faults._plan import DISK_KINDS, ON_DIRECTORIES
from jepsen.simulator.properties._committed import Entry
from jepsen.simulator.properties._invariants import (
    QuorumChange,
    QuorumHistory,
    QuorumView,
    flushed_is_durable,
)
from jepsen.simulator.world import World
from jepsen.simulator.world._world import WorldFailed
from raftctl.runtime.api import read_file, replace_file
from raftctl.storage.log import CorruptLogError

if TYPE_CHECKING:
    from jepsen.simulator.world import SimRuntime
    from raftctl.runtime.api import FileSystem

pytestmark = pytest.mark.req("J1", "Q12")

NAME = "node"
DIRECTORY = "/data/__cluster_metadata-0"
LOG = f"{DIRECTORY}/{0:020}.log"
SOUND = b"sound content"
SECOND = "/second"


class Field:
    """A node that writes at its pace; `reads` says what it does with its log when it starts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.reads = True
        self.names_file = True
        self.second = ""
        """What becomes of the node when its second directory fails."""
        self.starts = 0
        self.refused = 0
        self.served = False
        disks = DiskFaults(
            world,
            "/data",
            start=self.start,
            serves=lambda _: self.served,
            power_off=world.power_off,
            second=SECOND,
            serves_logs=lambda _: self.served,
        )
        self.nemesis = PlannedNemesis(
            world,
            [NAME],
            start=self.start,
            power_off=world.power_off,
            guard=lambda _: True,
            disks=disks,
        )

    def start(self, name: str) -> None:
        self.starts += 1
        self.served = False
        self.world.start(name, self._main)

    async def _main(self, runtime: SimRuntime) -> None:
        files = runtime.files
        if not files.exists(LOG):
            files.make_directories(DIRECTORY)
            replace_file(files, LOG, SOUND)
            files.sync_directory(DIRECTORY)
        if self.reads and read_file(files, LOG) != SOUND:
            raise CorruptLogError(LOG if self.names_file else "/somewhere", 0, "no content")
        self.served = True
        while True:
            replace_file(files, f"{DIRECTORY}/other", b"x")
            if self.second:
                self._use_second(files)
            await asyncio.sleep(0.05)

    def _use_second(self, files: FileSystem) -> None:
        try:
            files.make_directories(SECOND)
            replace_file(files, f"{SECOND}/file", b"x")
        except OSError:
            self.refused += 1
            if self.second == "ends":
                raise

    def run(self, *faults: Fault) -> None:
        async def story() -> None:
            self.start(NAME)
            await asyncio.sleep(0.01)
            await self.nemesis.run(faults)
            await asyncio.sleep(0.2)

        self.world.run(story())
        process = self.world.node(NAME).process
        assert process is not None
        assert process.running
        assert read_file(self.world.node(NAME).disk, LOG) == SOUND


def fault(kind: str, amount: float = 0.0) -> Fault:
    return Fault(kind, 100, 300, (NAME,), amount)


@pytest.mark.parametrize("kind", ["sync_error", "write_error", "disk_full", "disk_fills"])
def test_a_node_whose_disk_fails_ends_and_is_started_when_the_disk_is_well(kind: str) -> None:
    with World(1) as world:
        field = Field(world)
        field.run(fault(kind))
        assert field.starts == 2
        error = world.node(NAME).last_error
        assert isinstance(error, OSError)
        assert world.node(NAME).disk.failed_syncs == (kind == "sync_error")


@pytest.mark.parametrize("kind", ON_DIRECTORIES)
def test_a_directory_fails_alone_and_its_node_is_started_when_the_disk_is_well(kind: str) -> None:
    with World(1) as world:
        field = Field(world)
        field.second = "goes on"
        field.run(fault(kind))
        assert field.starts == 2
        assert field.refused > 1
        assert world.node(NAME).last_error is None


@pytest.mark.parametrize("again", [False, True])
def test_a_write_to_a_disk_that_fills_is_cut_short_and_fails(again: bool) -> None:
    disk = SimDisk(random.Random(0), lambda _: None)
    file = disk.open("/file", create=True)
    disk.room = Filling(5, again=again)
    file.append([b"abc"])
    with pytest.raises(OSError, match="/file") as raised:
        file.append([b"de", b"fgh"])
    assert raised.value.errno == errno.ENOSPC
    assert file.read_at(0, 100) == b"abcde"
    file.write_at(1, b"BC")
    if again:
        file.append([b"f"])
    else:
        with pytest.raises(OSError, match="/file"):
            file.append([b"f"])
    assert file.read_at(0, 100) == (b"aBCdef" if again else b"aBCde")


def test_a_directory_that_nobody_uses_meanwhile_needs_no_restart() -> None:
    with World(1) as world:
        field = Field(world)
        field.run(fault("directory_dies"))
        assert field.starts == 1


def test_a_node_that_ends_with_one_of_its_directories_is_found() -> None:
    with World(1) as world:
        field = Field(world)
        field.second = "ends"
        with pytest.raises(DirectoryTakesNodeDown, match=NAME):
            field.run(fault("directory_full"))


def test_a_directory_fails_only_where_logs_are_served() -> None:
    with World(1) as world:
        field = Field(world)
        field.second = "goes on"
        field.run(Fault("kill", 50, 400, (NAME,)), fault("directory_dies"))
        assert field.refused == 0


def test_an_error_of_the_disk_after_the_fault_is_a_failure_of_the_run() -> None:
    with World(1) as world:
        field = Field(world)
        field.run(fault("disk_full"))
        assert world.node(NAME).forgiven == ()


@pytest.mark.parametrize("where", [0.0, 0.5, 0.999])
def test_a_node_that_names_what_is_damaged_goes_on_when_it_is_restored(where: float) -> None:
    with World(1) as world:
        field = Field(world)
        field.run(fault("bit_flip", where))
        assert field.starts == 3
        assert isinstance(world.node(NAME).last_error, CorruptLogError)


def test_a_node_that_goes_on_with_a_flipped_bit_is_found() -> None:
    with World(1) as world:
        field = Field(world)
        field.reads = False
        with pytest.raises(DamageUnnoticed, match=f"runs on .*{LOG}"):
            field.run(fault("bit_flip", 0.5))


def test_a_node_that_does_not_name_the_damaged_file_is_found() -> None:
    with World(1) as world:
        field = Field(world)
        field.names_file = False
        with pytest.raises((DamageUnnoticed, WorldFailed), match=LOG):
            field.run(fault("bit_flip", 0.5))


def test_what_was_damaged_on_a_disk_says_nothing_of_the_next_one() -> None:
    async def story(world: World, field: Field) -> None:
        field.start(NAME)
        await asyncio.sleep(0.01)
        striking = asyncio.create_task(field.nemesis.run([fault("bit_flip", 0.5)]))
        await asyncio.sleep(0.2)
        disk = world.node(NAME).disk
        same = read_file(disk, LOG)
        assert same != SOUND
        world.kill(NAME)
        world.wipe(NAME)
        disk.make_directories(DIRECTORY)
        replace_file(disk, LOG, same)
        field.start(NAME)
        await striking
        assert read_file(disk, LOG) == same

    with World(1) as world:
        field = Field(world)
        field.reads = False
        world.run(story(world, field))


def test_a_wiped_disk_is_empty() -> None:
    with World(1) as world:
        field = Field(world)
        disk = world.node(NAME).disk
        field.run(fault("wipe"))
        assert field.starts == 2
        assert disk.crashes == 2  # the power was cut, then the disk replaced


def test_one_disk_has_one_fault_at_a_time_and_only_that_of_a_running_node() -> None:
    with World(1) as world:
        field = Field(world)
        second = Fault("disk_full", 150, 10, (NAME,))
        field.run(fault("bit_flip"), second, Fault("kill", 500, 200, (NAME,)), *_during_kill())
        assert field.starts == 4


def _during_kill() -> tuple[Fault, ...]:
    return tuple(Fault(kind, 550, 50, (NAME,)) for kind in DISK_KINDS)


def test_what_is_taken_for_durable_must_be_on_the_disk_once_a_sync_has_failed() -> None:
    disk = {0: Entry(0, 3, 1, 7)}
    history = QuorumHistory(((1, None),), lambda _: disk, lambda _: (0, -1))

    def view(flushed_end: int | None) -> QuorumChange:
        return QuorumChange(
            None, QuorumView(1, 1, 1, False, 0, 9, lambda *_: [], flushed_end=flushed_end)
        )

    assert flushed_is_durable(history, view(None)) is None
    assert flushed_is_durable(history, view(3)) is None
    assert flushed_is_durable(history, view(4)) == "1 takes 4 for durable, its disk ends at 3"


CLOSED = f"{DIRECTORY}/{0:020}.log"
SNAPSHOT = f"{DIRECTORY}/{5:020}-{1:010}.checkpoint"
COMPLETE = (CLOSED, f"{DIRECTORY}/{0:020}.index", SNAPSHOT)
ROTTEN_AT_MS = 100


class Reader:
    """A node with a log of two segments, and what it reads of each file at its pace."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.reads: dict[str, list[bytes]] = {}
        self.rewrites = False

    def nemesis(self) -> PlannedNemesis:
        disks = DiskFaults(
            self.world,
            "/data",
            start=self.start,
            serves=lambda _: True,
            power_off=self.world.power_off,
        )
        return PlannedNemesis(
            self.world,
            [NAME],
            start=self.start,
            power_off=self.world.power_off,
            guard=lambda _: True,
            disks=disks,
        )

    def start(self, name: str) -> None:
        self.world.start(name, self._main)

    async def _main(self, runtime: SimRuntime) -> None:
        files = runtime.files
        files.make_directories(DIRECTORY)
        paths = (*COMPLETE, f"{DIRECTORY}/{5:020}.log", f"{DIRECTORY}/{5:020}.index")
        for path in (*paths, f"{DIRECTORY}/quorum-state"):
            replace_file(files, path, SOUND)
            self.reads[path] = []
        while True:
            for path, reads in self.reads.items():
                reads.append(read_file(files, path))
            await asyncio.sleep(0.01)
            if self.rewrites:
                file = files.open(CLOSED)
                file.write_at(0, SOUND)
                file.close()


@pytest.mark.parametrize("where", [0.1, 0.5, 0.9])
def test_a_bit_rots_in_what_is_complete_under_a_node_that_runs(where: float) -> None:
    with World(1) as world:
        reader = Reader(world)
        reader.start(NAME)
        world.run(reader.nemesis().run((Fault("bit_rot", ROTTEN_AT_MS, 100, (NAME,), where),)))
        world.run(0.1)
        # Each of the three is as likely.
        rotten = sorted(COMPLETE)[int(where * 3)]
        damaged = {path: set(reads) - {SOUND} for path, reads in reader.reads.items()}
        assert [path for path, found in damaged.items() if found] == [rotten]
        (wrong,) = damaged[rotten]
        differ = [a ^ b for a, b in zip(wrong, SOUND, strict=True) if a != b]
        assert [one.bit_count() for one in differ] == [1]
        assert reader.reads[rotten][-1] == SOUND
        assert world.node(NAME).incarnations == 1


def test_who_watches_reads_what_was_written_and_writing_ends_the_rot() -> None:
    with World(1) as world:
        reader = Reader(world)
        reader.start(NAME)
        world.run(0.1)
        disk = world.node(NAME).disk
        undo = disk.rot(CLOSED, 3)
        assert read_file(disk, CLOSED) == SOUND
        world.run(0.1)
        assert reader.reads[CLOSED][-1] != SOUND
        reader.rewrites = True
        world.run(0.1)
        assert reader.reads[CLOSED][-1] == SOUND
        assert undo() > 5


def test_a_cut_takes_the_rot_with_it() -> None:
    with World(1) as world:
        disk = world.node(NAME).disk
        file = disk.open("/file", create=True)
        file.append([SOUND])
        disk.rot("/file", 8 * (len(SOUND) - 1))
        file.truncate(len(SOUND) - 1)
        file.append([SOUND[-1:]])
        found: list[bytes] = []

        async def main(runtime: SimRuntime) -> None:
            found.append(read_file(runtime.files, "/file"))

        world.start(NAME, main)
        world.run(0.1)
        assert found == [SOUND]
