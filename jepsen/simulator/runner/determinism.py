"""Takes chance and real time away from a whole interpreter, for one run of one seed.

A world decides everything our own code asks for. Libraries reach further: clocks, the global
random source, the operating system's entropy, hash order, the garbage collector's moments.
`prepare` replaces those, so it must run in a process of its own and before libraries are imported
that keep such things from their import on; `begin` then makes them functions of a seed, so that
nothing drawn while libraries were imported has a part in the run. `run_in_subprocess` is how tests
get such a process.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import random
import re
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from types import FrameType

PREPARED = {
    "PYTHONHASHSEED": "0",
    # aiokafka's compiled record builder asks the system for the time; its Python twin does not.
    "AIOKAFKA_NO_EXTENSIONS": "1",
}
"""The variables that must be in the environment before the interpreter starts."""
BAD_ARGUMENTS = 2
"""The exit status of a run that was refused; its output ends with the reason in a sentence."""
SUBPROCESS_TIMEOUT_S = 300.0
IMPORTED_AFTER = ("aiohttp", "aiokafka", "structlog")
# Classes of libraries whose objects are kept in sets that are iterated, and whose hash comes from
# an address: of the object itself, or of a None in it (which hashes by address before Python 3.12).
HASHED_BY_IDENTITY = (("aiohttp.client_proto", "ResponseHandler"),)
HASHED_WITH_NONE = (("aiokafka.structs", "BrokerMetadata"),)
CLOCKS_S = ("time", "monotonic", "perf_counter")
_COVERED = re.compile(r"^covered (.*)\n", re.MULTILINE)
_RAN = re.compile(r"^simulated ([0-9.]+) s, ([0-9]+) events$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of one seed in a process of its own."""

    seed: int
    ok: bool
    trace_hash: str
    """Empty for a run that did not come to its end."""
    output: str
    simulated_s: float = 0.0
    events: int = 0
    """The number of handles of the event loop that ran."""
    processor_s: float = field(default=0.0, compare=False)
    """The processor time of the run alone; 0 where it is not known."""
    covered: frozenset[str] = field(default=frozenset(), compare=False)
    """The lines that the run has reached, see `jepsen.simulator.coverage`."""
    refusal: str = ""
    """The reason why the run was refused, in a sentence."""

    @staticmethod
    def parse(seed: int, status: int, output: str) -> RunResult:
        """Return the result from the output of a run and the exit status of its process."""
        last = output.rstrip().rpartition("\n")[2]
        trace_hash = last.rpartition("trace ")[2] if "trace " in last else ""
        covered = _COVERED.search(output)
        reached = frozenset(covered[1].split(";")) if covered else frozenset[str]()
        output = _COVERED.sub("", output)
        ran = _RAN.search(output)
        simulated_s, events = (float(ran[1]), int(ran[2])) if ran else (0.0, 0)
        refusal = last if status == BAD_ARGUMENTS else ""
        return RunResult(
            seed,
            status == 0,
            trace_hash,
            output,
            simulated_s,
            events,
            covered=reached,
            refusal=refusal,
        )


def ran_line(simulated_s: float, events: int) -> str:
    """Return the line of a run's output that says how much happened in it."""
    return f"simulated {simulated_s:.3f} s, {events} events\n"


def covered_line(reached: Collection[str]) -> str:
    """Return the line of a run's output that says what it has reached."""
    return f"covered {';'.join(sorted(reached))}\n" if reached else ""


def is_prepared() -> bool:
    """Return True if this interpreter was started so that runs can be repeated."""
    return all(os.environ.get(name) == value for name, value in PREPARED.items())


def prepare() -> None:
    """Make this interpreter's clocks virtual and its random sources seeded ones, once."""
    if not is_prepared():
        raise RuntimeError(f"start Python with {PREPARED} in the environment")
    early = [name for name in IMPORTED_AFTER if name in sys.modules]
    if early:
        raise RuntimeError(f"imported before determinism was prepared: {', '.join(early)}")
    _replace_randomness()
    _replace_clocks()


def begin(seed: int) -> None:
    """Make everything random in this prepared interpreter a function of the seed from now on."""
    _entropy.seed(f"{seed}/process")
    random.seed(f"{seed}/global")


def quiet_collector() -> None:
    """Stop the garbage collector, whose moments depend on what was imported and compiled.

    The loop of a world runs it at fixed numbers of handles instead.
    """
    gc.collect()
    gc.freeze()
    gc.disable()


def stabilize_hashes() -> None:
    """Give the objects of known library classes hashes that do not depend on addresses, once
    imported.
    """
    for kind in _imported(HASHED_BY_IDENTITY):
        type.__setattr__(kind, "__hash__", _serial_hash())
    for kind in _imported(HASHED_WITH_NONE):
        type.__setattr__(kind, "__hash__", lambda self: hash(repr(self)))


def run_in_subprocess(
    target: str,
    seed: int,
    *,
    options: Sequence[str] = (),
    timeout_s: float | None = SUBPROCESS_TIMEOUT_S,
) -> RunResult:
    """Run the scenario `module:function` of one seed in an interpreter of its own.

    Ctrl-C kills that, and is raised here. `timeout_s`: None for a run that may take any time.
    """
    command = [
        sys.executable,
        "-m",
        "jepsen.simulator",
        "run",
        target,
        "--seed",
        str(seed),
        *options,
    ]
    finished = subprocess.run(
        command,
        env=environment(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        text=True,
        check=False,
        start_new_session=True,
    )
    return RunResult.parse(seed, finished.returncode, finished.stdout)


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a deterministic interpreter with the imports of this one."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**base, **PREPARED, "PYTHONPATH": path}


_entropy = random.Random("prepared")
"""Stands for the operating system's source of randomness."""


def _source() -> random.Random:
    """What is drawn from now: a source of their own for imports, which happen earlier or later."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if frame.f_code.co_name == "<module>" and name != "__main__":
            return _PlainRandom(f"import/{name}")
        frame = frame.f_back
    return _entropy


_PlainRandom = random.Random


def _replace_randomness() -> None:
    def entropy(size: int) -> bytes:
        return _source().randbytes(size)

    class SeededRandom(random.Random):
        """A `random.Random` that takes its seed from the run when it is given none."""

        def seed(self, a: Any = None, version: int = 2) -> None:
            """Seeds from the run where the standard library would ask the system."""
            super().seed(_source().getrandbits(64) if a is None else a, version)

    random.seed("prepared")
    replacements: list[tuple[object, str, object]] = [
        (os, "urandom", entropy),
        (random, "_urandom", entropy),
        (random, "Random", SeededRandom),
        (uuid, "uuid1", uuid.uuid4),
    ]
    for module, name, replacement in replacements:
        setattr(module, name, replacement)


def _replace_clocks() -> None:
    # Outside a world, and before it runs, time stands still at its start.
    from jepsen.simulator.kernel import EPOCH_MS, START_S, SimLoop, wall_ms
    from jepsen.simulator.kernel.process import current_process

    def monotonic() -> float:
        loop = asyncio._get_running_loop()
        return loop.time() if isinstance(loop, SimLoop) else START_S

    def wall() -> float:
        loop = asyncio._get_running_loop()
        if isinstance(loop, SimLoop):
            return wall_ms(loop.now_s, current_process.get()) / 1000
        return EPOCH_MS / 1000 + START_S

    def nanoseconds(clock: Callable[[], float]) -> Callable[[], int]:
        return lambda: round(clock() * 1_000_000_000)

    def sleep(seconds: float) -> NoReturn:
        raise RuntimeError(f"time.sleep({seconds}) would stop the whole world")

    patches: dict[str, object] = {"sleep": sleep}
    for name in CLOCKS_S:
        clock = wall if name == "time" else monotonic
        patches |= {name: clock, f"{name}_ns": nanoseconds(clock)}
    for name, replacement in patches.items():
        setattr(time, name, replacement)


def _imported(names: Sequence[tuple[str, str]]) -> Iterator[type]:
    for module_name, class_name in names:
        module = sys.modules.get(module_name)
        if module is not None:
            yield getattr(module, class_name)


def _serial_hash() -> Callable[[Any], int]:
    serials = itertools.count(1)

    def serial_hash(self: Any) -> int:
        number: int = self.__dict__.get("_sim_serial") or next(serials)
        self.__dict__["_sim_serial"] = number
        return number

    return serial_hash
