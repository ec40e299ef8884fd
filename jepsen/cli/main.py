"""The entry of `jepsen`: what came of it becomes an exit status.

Status 0: all valid. 1: something is invalid. 2: something is unknown, the rest valid. 130:
interrupted. 254: bad arguments, nothing was done. 255: the harness itself failed.
"""

from __future__ import annotations

import logging
import signal
import sys
from typing import TYPE_CHECKING

import typer

from jepsen.cli._output import INTERRUPTED
from jepsen.errors import ClusterError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger(__name__)

BAD_ARGUMENTS = 254
FAILED = 255
REPORTED_BY_CALLERS = ("aiokafka", "kafka")
"""Libraries that log every attempt that fails; what it means for a run is reported once."""


# Typer brings its own parser along and exports of its errors only the most special one.
_UsageError: type[typer.BadParameter] = typer.BadParameter.__bases__[0]


def main() -> None:
    """Run the command line of this process."""
    for name in REPORTED_BY_CALLERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As Ctrl-C: whatever was started is ended on the way out.
        signal.signal(number, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str], app: typer.Typer | None = None) -> int:
    """Run one command, of all if no `app` is named, and return its exit status."""
    try:
        if app is None:
            from jepsen.cli.commands import app as everything

            app = everything
        command = typer.main.get_command(app)
        status = command.main(list(arguments), prog_name="jepsen", standalone_mode=False)
    except _UsageError as error:
        return _fail(error.format_message(), BAD_ARGUMENTS)
    except InputError as error:
        return _fail(str(error), BAD_ARGUMENTS)
    except ClusterError as error:
        return _fail("; ".join([str(error), *getattr(error, "__notes__", ())]), FAILED)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except OSError as error:
        return _fail(_system_error(error), FAILED if error.filename is None else BAD_ARGUMENTS)
    except Exception:
        logger.exception("jepsen: internal error; this is no verdict")
        return FAILED
    return status if isinstance(status, int) else 0


def _system_error(error: OSError) -> str:
    """What the system refused, and where, in one line."""
    why = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return why
    return f"{error.filename}: {why}: choose another path, or change who may use this one"


def _fail(sentence: str, status: int) -> int:
    sys.stderr.write(f"jepsen: {sentence.rstrip()}\n")
    return status


if __name__ == "__main__":
    main()
