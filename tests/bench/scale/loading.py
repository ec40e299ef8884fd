"""`python -m tests.bench.scale.loading FILE.checkpoint`: loads a snapshot as a starting node does.

Prints JSON: seconds to read and check the file, seconds to make the image, resident MiB at the end.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from time import perf_counter

from raftctl.loader import image_of
from raftctl.runtime.real import RealRuntime, make_collector
from raftctl.storage.snapshots import SnapshotStore


def resident_mib(pid: int | str = "self") -> float:
    """Of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return round(int(re.findall(r"VmRSS:\s+(\d+) kB", text)[0]) / 1024, 1)


def processor_s(pid: int) -> float:
    """The seconds that a process has used of processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = map(int, fields[11:13])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Loads the snapshot that the command line names."""
    make_collector().start()
    path = Path(sys.argv[1])
    runtime = RealRuntime(log_level="error")
    store = SnapshotStore(runtime.files, str(path.parent))
    snapshot_id = store.find(path.name)
    if snapshot_id is None:
        raise SystemExit(f"{path} is no snapshot")
    began = perf_counter()
    snapshot = store.read(snapshot_id)
    read_s = perf_counter() - began
    image = image_of(snapshot)
    figures = {
        "mib": round(path.stat().st_size / 2**20, 1),
        "topics_loaded": len(image.topics.topics),
        "read_s": round(read_s, 2),
        "load_s": round(perf_counter() - began, 2),
        "rss_mib": resident_mib(),
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    runtime.close()


if __name__ == "__main__":
    main()
