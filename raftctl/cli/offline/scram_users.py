"""`raftctl storage format --add-scram`: users that a cluster begins with (KIP-900).

Controllers and brokers that log in to each other by SCRAM need a credential before anything can be
changed. The first active controller writes the records; only verifiers of the passwords are kept.
"""

from __future__ import annotations

import base64
import binascii
import re
from secrets import token_bytes

from raftctl.errors import ConfigError
from raftctl.metadata.records import UserScramCredentialRecord
from raftctl.security.sasl.scram import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_IDS,
    salted_password,
    scram_keys,
)

OPTION = "--add-scram"
FORM = "SCRAM-SHA-256=[name=alice,password=secret]"
_WHOLE = re.compile(r"([A-Z0-9-]+)=\[(.*)\]", re.DOTALL)
_FIELD = re.compile(r'([a-z]+)=(?:"([^"]*)"|([^,"]*))(?:,|$)', re.DOTALL)
_NAMES = ("name", "password", "salt", "iterations", "saltedpassword")
_SALT_BYTES = 32


def parse_scram_user(text: str) -> UserScramCredentialRecord:
    """Return the record of `MECHANISM=[name=USER,password=PASSWORD]`.

    `salt` and `saltedpassword` are Base64. A value with a comma stands in double quotes.
    ConfigError, which never has a value, if it is malformed.
    """
    match = _WHOLE.fullmatch(text)
    if match is None or match[1] not in HASHES:
        raise _problem(f"malformed: write {FORM}, or with {' or '.join(list(HASHES)[1:])}")
    digest, fields = HASHES[match[1]], _fields(match[2])
    if not fields.get("name"):
        raise _problem("name is missing")
    if ("password" in fields) == ("saltedpassword" in fields):
        raise _problem("give either password or saltedpassword")
    if "saltedpassword" in fields and "salt" not in fields:
        raise _problem("saltedpassword needs the salt that it was made with")
    salt = _base64("salt", fields["salt"]) if "salt" in fields else token_bytes(_SALT_BYTES)
    iterations = _iterations(fields.get("iterations", str(ITERATIONS_MIN)))
    if "saltedpassword" in fields:
        salted = _base64("saltedpassword", fields["saltedpassword"])
    else:
        salted = salted_password(digest, fields["password"], salt, iterations)
    if len(salted) != len(salted_password(digest, "", b"", 1)):
        raise _problem("saltedpassword is not as long as the mechanism's hash")
    keys = scram_keys(digest, salted)
    return UserScramCredentialRecord(
        fields["name"], SCRAM_IDS[match[1]], salt, keys.stored_key, keys.server_key, iterations
    )


def _fields(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _FIELD.match(text, position)
        if match is None or match[1] not in _NAMES or match[1] in found:
            raise _problem(f"malformed after {position} characters: write {FORM}")
        found[match[1]] = match[3] if match[2] is None else match[2]
        position = match.end()
    return found


def _iterations(text: str) -> int:
    if not text.isdecimal() or not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        raise _problem(f"iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return int(text)


def _base64(name: str, text: str) -> bytes:
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _problem(f"{name} is no Base64") from None
    if not found:
        raise _problem(f"{name} is empty")
    return found


def _problem(text: str) -> ConfigError:
    return ConfigError(f"{OPTION}: {text}")
