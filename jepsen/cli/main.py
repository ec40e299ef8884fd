"""The entry of `jepsen`: what came of it becomes an exit status.

Status 0: all valid. 1: something is invalid. 2: something is unknown, the rest valid. 254: bad
arguments, nothing was done. 255: the harness itself failed.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import typer

from jepsen.errors import ClusterError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger(__name__)

BAD_ARGUMENTS = 254
FAILED = 255
INTERRUPTED = 130


# Typer brings its own parser along and exports of its errors only the most special one.
_UsageError: type[typer.BadParameter] = typer.BadParameter.__bases__[0]


def main() -> None:
    """Runs the command line of this process."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str], app: typer.Typer | None = None) -> int:
    """Runs one command, of all if no `app` is named, and returns its exit status."""
    if app is None:
        from jepsen.cli.app import app as everything

        app = everything
    command = typer.main.get_command(app)
    try:
        status = command.main(list(arguments), prog_name="jepsen", standalone_mode=False)
    except _UsageError as error:
        return _fail(error.format_message(), BAD_ARGUMENTS)
    except InputError as error:
        return _fail(str(error), BAD_ARGUMENTS)
    except ClusterError as error:
        return _fail(str(error), FAILED)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception:
        logger.exception("jepsen: a failure of its own, which is no verdict")
        return FAILED
    return status if isinstance(status, int) else 0


def _fail(sentence: str, status: int) -> int:
    sys.stderr.write(f"jepsen: {sentence.rstrip()}\n")
    return status


if __name__ == "__main__":
    main()
