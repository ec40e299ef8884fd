"""Figures of two peers in turns: medians, and ours divided by the other's."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.kafka.turns import Quantity, in_turns


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    values: tuple[float, ...]


QUANTITIES = {"speed": Quantity("MB/s", "goal", 1)}
OURS = Peer("raftctl", (3.0, 9.0, 6.0))
OTHER = Peer("kafka", (4.0, 2.0, 100.0))


def test_the_peers_take_turns_and_the_ratio_is_of_medians() -> None:
    asked = []

    def measure(peer: Peer, turn: int) -> dict[str, float]:
        asked.append((peer.name, turn))
        return {"speed": peer.values[turn]}

    figures = in_turns([OURS, OTHER], 3, measure, QUANTITIES)
    assert asked == [(name, turn) for turn in range(3) for name in ("raftctl", "kafka")]
    medians = {name: value["median"] for name, value in figures.items()}
    assert medians == {"speed_raftctl": 6.0, "speed_kafka": 4.0, "speed_ratio": 1.5}
    assert figures["speed_kafka"]["turns"] == [4.0, 2.0, 100.0]
    assert figures["speed_raftctl"]["unit"] == "MB/s"


def test_alone_or_beside_nothing_there_is_no_ratio() -> None:
    alone = in_turns([OURS], 1, lambda peer, turn: {"speed": peer.values[turn]}, QUANTITIES)
    assert set(alone) == {"speed_raftctl"}
    idle = Peer("kafka", (0.0,))
    figures = in_turns([OURS, idle], 1, lambda peer, turn: {"speed": peer.values[turn]}, QUANTITIES)
    assert set(figures) == {"speed_raftctl", "speed_kafka"}
