"""Wall clocks of real processes, set wrong by libfaketime: it is loaded into each node before its
own libraries, and reads from a file of the node's how far its clock is off.

Only wall clocks are wrong; what measures durations (CLOCK_MONOTONIC) and the dates of files are as
the machine has them.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from jepsen.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

_IN_PACKAGE = "vendor/libfaketime/src/libfaketime.so.1"
_OF_SYSTEM = ("/usr/lib", "*/faketime/libfaketime.so.1")
_RIGHT = "+0"


def find_library() -> Path | None:
    """libfaketime as the package of that name has it (extra `clock`), else as the system does."""
    spec = find_spec("libfaketime")
    folders = () if spec is None else spec.submodule_search_locations or ()
    found = [Path(folder) / _IN_PACKAGE for folder in folders]
    folder, pattern = _OF_SYSTEM
    found += sorted(Path(folder).glob(pattern))
    return next((one for one in found if one.is_file()), None)


class Clocks:
    """The clocks of a cluster's nodes."""

    def __init__(self) -> None:
        """Raise InputError where libfaketime is missing."""
        library = find_library()
        if library is None:
            raise InputError(
                "--nemesis clock: the clocks of real processes need libfaketime: "
                "pip install '.[clock]' in a checkout, or your system's package libfaketime"
            )
        self._library = library
        self._files: dict[str, Path] = {}

    def variables(self, node: str, folder: Path) -> Mapping[str, str]:
        """Return the variables of a node whose clock can be set; after a restart it stays wrong."""
        file = folder / "clock"
        if node not in self._files:
            self._files[node] = file
            file.write_text(_RIGHT)
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",  # seconds until it looks into the file again
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, offsets_ms: Mapping[str, int]) -> None:
        """Let clocks show so much more, or less, within a second, and all others the time."""
        for node, file in self._files.items():
            by_ms = offsets_ms.get(node)
            file.write_text(_RIGHT if by_ms is None else f"{by_ms / 1000:+.3f}")
