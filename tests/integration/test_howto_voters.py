"""The page about voters, run as it is written, from the first quorum to its recovery."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from raftctl.cli.offline.storage import random_uuid_text
from raftctl.localcluster.ports import free_ports
from tests.howto_pages import ROOT, Reader, Step, blocks, steps_to_run
from tests.integration.clusters import wait_until
from tests.integration.test_howto_pages import Outcome, check

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs" / "how-to" / "change-voters.md"
SERVERS = "controller.quorum.bootstrap.servers"
NODES = (1, 2, 3, 4)
DIRECTORIES = {
    1: "G1I6BlKVTIugzB6kR5yQ0A",
    2: "Dawfba3kQfKGsvnrs_4dAQ",
    3: "E1pZitjqRm6wlHzb-5T3eQ",
}
"""The ids that the page has for the first voters."""
REFUSED = Outcome(2, "nothing was changed: give --i-understand-data-loss")


@dataclass
class Machines:
    """The page's four machines: folders and ports of this one."""

    reader: Reader

    @classmethod
    def made(cls, folder: Path) -> Machines:
        """Machines without a disk yet, in a new folder."""
        folder.mkdir()
        ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
        writes = {
            ":Dawfba3kQfKGsvnrs_4dAQ,...": f":{DIRECTORIES[2]},3@10.0.0.3:9093:{DIRECTORIES[3]}",
            "--cluster-id ID": f"--cluster-id {random_uuid_text()}",
            "--controllers ...": "--controllers 10.0.0.3:9093",
            "--controller-directory-id OLD": f"--controller-directory-id {DIRECTORIES[2]}",
            **{f"10.0.0.{one}:9093": f"127.0.0.1:{port}" for one, port in ports.items()},
        }
        return cls(Reader(folder, writes))

    def disk(self, node: int) -> Path:
        """What is /var/lib/raftctl there."""
        return self.reader.folder / f"disk-{node}"

    def configure(self, node: int, *, static: bool = False) -> None:
        """Writes the page's first file for the node."""
        text = "\n".join(next(blocks(PAGE)).lines)
        for said, own in (
            ("node.id=1", f"node.id={node}"),
            ("listeners=CONTROLLER://10.0.0.1", f"listeners=CONTROLLER://10.0.0.{node}"),
            ("/var/lib/raftctl", str(self.disk(node))),
        ):
            assert said in text
            text = text.replace(said, own)
        if static:
            voters = ",".join(f"{one}@10.0.0.{one}:9093" for one in NODES[:3])
            text = re.sub(rf"{SERVERS}=.*", f"controller.quorum.voters={voters}", text)
        (self.reader.folder / f"{node}.properties").write_text(self.reader.written(text))

    def types(self, text: str) -> str:
        """A command that is not on the page, which must succeed."""
        done = self.reader.run(text)
        assert done.status == 0, f"{text}\n{done.output}"
        return done.output

    def start(self, node: int) -> None:
        self.types(f"raftctl start --config {node}.properties 2>> {node}.log &")

    def wait_for_leader(self, at: int) -> None:
        """Waits until this controller knows who leads."""
        asked = f"raftctl quorum describe --status --controllers 10.0.0.{at}:9093"
        wait_until(lambda: self.reader.run(asked).status == 0, f"a leader, told by {at}")

    def status(self, at: int) -> dict[str, object]:
        told = self.types(
            f"raftctl quorum describe --status --controllers 10.0.0.{at}:9093 --output json"
        )
        found: dict[str, object] = json.loads(told)
        return found

    def voters(self, at: int) -> list[int]:
        voters = self.status(at)["CurrentVoters"]
        assert isinstance(voters, list)
        return sorted(one["id"] for one in voters)

    def stop(self, *nodes: int) -> None:
        """As SIGTERM to the machines' processes would."""
        for node in nodes:
            lock = (self.disk(node) / ".lock").read_text().strip()
            self.types(f"kill {lock}; while kill -0 {lock} 2>/dev/null; do sleep 0.05; done")


def section(title: str) -> list[Step]:
    found = [step for step in steps_to_run(PAGE) if step.section == title]
    assert found, title
    return found


@pytest.mark.req("Q7", "Q8", "A1")
@pytest.mark.timeout(300)
def test_the_page_of_voters(tmp_path: Path) -> None:
    machines = Machines.made(tmp_path / "dynamic")
    try:
        begin(machines, Machines.made(tmp_path / "alone"))
        grow(machines)
        configured = Machines.made(tmp_path / "configured")
        try:
            from_configured_voters(configured)
        finally:
            configured.reader.close()
        shrink(machines)
        replace_a_disk(machines)
        recover(machines)
    finally:
        machines.reader.close()
    done = ["Begin", "Grow", "From configured voters", "Shrink", "Replace a disk"]
    done.append("When the majority is lost")
    assert {step.section for step in steps_to_run(PAGE)} == {*done}


def begin(machines: Machines, alone: Machines) -> None:
    standalone, several = section("Begin")
    alone.configure(1)
    check(standalone, alone.reader.run(standalone.command))
    for node in NODES[:3]:
        machines.configure(node)
        own = several.command.replace("1.properties", f"{node}.properties")
        check(several, machines.reader.run(own))
        machines.start(node)
    machines.wait_for_leader(1)
    assert machines.voters(1) == [1, 2, 3]


def grow(machines: Machines) -> None:
    machines.configure(4)
    for step in section("Grow"):
        check(step, machines.reader.run(step.command))
    assert machines.voters(2) == [1, 2, 3, 4]


def from_configured_voters(machines: Machines) -> None:
    for node in NODES[:3]:
        machines.configure(node, static=True)
        machines.types(f"raftctl storage format --config {node}.properties --cluster-id ID")
        machines.start(node)
    machines.configure(4)
    for step in section("From configured voters"):
        check(step, machines.reader.run(step.command))
    assert machines.voters(2) == [1, 2, 3, 4]
    for node in NODES[:3]:
        machines.configure(node)
        machines.stop(node)
        machines.start(node)
        machines.wait_for_leader(node)
    assert machines.voters(1) == [1, 2, 3, 4]


def shrink(machines: Machines) -> None:
    for step in section("Shrink"):
        check(step, machines.reader.run(step.command))
    assert machines.voters(2) == [2, 3, 4]
    machines.types("raftctl quorum transfer --controllers ... --to 3")


def replace_a_disk(machines: Machines) -> None:
    removed, *rest = section("Replace a disk")
    check(removed, machines.reader.run(removed.command))
    machines.stop(2)
    shutil.rmtree(machines.disk(2))
    for step in rest:
        check(step, machines.reader.run(step.command))
    assert machines.voters(3) == [2, 3, 4]


def recover(machines: Machines) -> None:
    """The disks of 3 and 4 are lost; that of 2 is left."""
    machines.stop(1, 2, 3, 4)
    machines.reader.writes |= {"/var/lib/raftctl": str(machines.disk(2))}
    looked, recovered = section("When the majority is lost")
    check(looked, machines.reader.run(looked.command), REFUSED)
    check(recovered, machines.reader.run(recovered.command))
    machines.start(2)
    machines.wait_for_leader(2)
    assert machines.voters(2) == [2]
    for node in (3, 4):
        shutil.rmtree(machines.disk(node))
        file = f"--config {node}.properties"
        machines.types(f"raftctl storage format {file} --cluster-id ID --no-initial-controllers")
        machines.start(node)
        machines.types(f"raftctl quorum add-voter --controllers 10.0.0.2:9093 {file}")
    assert machines.voters(4) == [2, 3, 4]
