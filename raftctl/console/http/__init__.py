"""HTTP of the console: files, requests with their rights, tables, and the headers of all answers.

    Asked, answering     a request of the API with its fields and rights, and how it is answered
    nothing_here         answers what no route of the console takes
    Rights               what the requester may do
    Table                rows by window: filtered, sorted, cut
    PageFiles            the files of the page, with ETags
    protect              puts the security headers on every answer below /console

The package decides what each answer of the console has in common. It must not know what a view
shows, nor where its data comes from.

Invariants:

- A request that changes something has a header that no form and no foreign page can send.
- An answer has at most `LIMIT_MAX` rows, and rows are made for its window only.
- Only files that the package holds are served: a request's path is a key of a table, never a path
  of the disk.
- Text is never put into HTML: answers of the API are JSON, and no browser may guess otherwise.

Sources: RFC 9110; W3C Content Security Policy 3, Trusted Types; the Fetch standard (CORP, COOP).
"""

from raftctl.console.http._files import PageFiles
from raftctl.console.http._requests import API, PATH, Asked, answering, nothing_here, protect
from raftctl.console.http._rights import Rights
from raftctl.console.http._tables import LIMIT_MAX, Table, Window

__all__ = [
    "API",
    "LIMIT_MAX",
    "PATH",
    "Asked",
    "PageFiles",
    "Rights",
    "Table",
    "Window",
    "answering",
    "nothing_here",
    "protect",
]
