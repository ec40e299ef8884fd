"""Files without a name, in memory: OpenSSL reads private keys from files alone."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def anonymous_file(data: bytes) -> Iterator[str]:
    """Give the path of a file with that content; it is on no disk, and gone afterwards."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
