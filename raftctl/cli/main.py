"""The entry of `raftctl`: errors become one line and an exit status.

Status 0: done. 1: the operation failed. 2: bad input, nothing was changed. 130: interrupted.

`raftctl start` is what every node runs, so its plain form is recognised here before the libraries
of the other commands are imported: they would cost each node time and memory.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from raftctl.errors import ConfigError, DiskError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130


def main() -> None:
    """Runs the command line of this process."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit status."""
    try:
        return _dispatch(arguments)
    except ConfigError as error:
        return _fail(str(error), BAD_INPUT)
    except KafkaError as error:
        return _fail(f"{error.code.name}: {error.message}", FAILED)
    except DiskError as error:
        return _fail(str(error), FAILED)
    except BrokenPipeError:
        raise  # Nobody reads on, as below `head`: no fault of a file.
    except OSError as error:
        return _fail(_system_error(error), BAD_INPUT if error.filename is not None else FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def _dispatch(arguments: Sequence[str]) -> int:
    plain = plain_start(arguments)
    if plain is not None:
        from raftctl.cli._node_process import run_start

        run_start(*plain)
        return 0
    from raftctl.cli.app import run_app

    return run_app(arguments)


def plain_start(arguments: Sequence[str]) -> tuple[str, list[str]] | None:
    """The file and overrides of `start --config FILE [-o key=value]...`; None if it is more."""
    if arguments[:1] != ["start"] or len(arguments) % 2 == 0:
        return None
    path, overrides = None, []
    for option, value in zip(arguments[1::2], arguments[2::2], strict=True):
        if option == "--config" and path is None:
            path = value
        elif option in ("-o", "--override"):
            overrides.append(value)
        else:
            return None
    return None if path is None else (path, overrides)


def _system_error(error: OSError) -> str:
    """What the system refused, and where, in one line."""
    why = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return why
    return f"{error.filename}: {why}: choose another path, or change who may use this one"


def _fail(sentence: str, status: int) -> int:
    sys.stderr.write(f"raftctl: {sentence}\n")
    return status
