"""The files of the page: read once from the package, served by name with an ETag."""

from __future__ import annotations

import hashlib
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

from raftctl.errors import ErrorCode, KafkaError
from raftctl.http_json import error_response

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

INDEX = "index.html"
_TYPES = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
"""Ending of a file to its content type; other files are not served."""


class _File(NamedTuple):
    content: bytes
    content_type: str
    etag: str
    """In quotes, as it stands in a header."""


class PageFiles:
    """The files of the folder `page` of a package."""

    def __init__(self, package: str) -> None:
        self._package = package

    @cached_property
    def _files(self) -> Mapping[str, _File]:
        """Each file by its path below the folder. Read when the first viewer comes."""
        return dict(_read(files(self._package).joinpath("page"), ""))

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(len(one.content) for one in self._files.values())

    async def answer(self, request: web.Request) -> web.Response:
        """Answer with the file that the path names; without a name it is the index."""
        found = self._files.get(request.match_info.get("file", INDEX))
        if found is None:
            return error_response(KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "there is no such file"))
        # The browser keeps a copy and asks whether it is still the one: a node that was upgraded
        # never works with half of an older page.
        headers = {"ETag": found.etag, "Cache-Control": "no-cache"}
        if found.etag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        return web.Response(
            body=found.content, content_type=found.content_type, charset="utf-8", headers=headers
        )


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, _File]]:
    for entry in folder.iterdir():
        content_type = _TYPES.get(entry.name.rpartition(".")[2])
        if entry.is_dir():
            yield from _read(entry, f"{prefix}{entry.name}/")
        elif content_type is not None:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            yield f"{prefix}{entry.name}", _File(content, content_type, etag)
