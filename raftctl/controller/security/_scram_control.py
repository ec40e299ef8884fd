"""SCRAM credentials (row C12): stored and server keys, from which no password can be read.

The client sends the salted password. It is not stored, since it would suffice to log in. The two
derived keys only serve to verify a client and to prove the server's identity.

Sources: RFC 5802, KIP-554.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

from raftctl.controller._result import admin_result
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.features import SECURITY_LEVEL, require_level
from raftctl.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from raftctl.metadata.requests.admin import ItemOutcome
from raftctl.security.sasl.scram import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_IDS,
    scram_keys,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raftctl.controller._result import ControllerResult
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Record
    from raftctl.metadata.requests.security import AlterScramRequest, ScramUpsertion

_DIGESTS: Mapping[int, str] = {SCRAM_IDS[name]: digest for name, digest in HASHES.items()}
SALT_BYTES_MAX = 1_024


def alter_scram(image: MetadataImage, request: AlterScramRequest) -> ControllerResult:
    """Change the credentials of each user; those of one user all or none.

    Errors of a user: UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM, RESOURCE_NOT_FOUND,
    DUPLICATE_RESOURCE if a credential is named twice; UNSUPPORTED_VERSION below the
    `metadata.version` that knows credentials.
    """
    records: list[Record] = []
    outcomes = []
    for user in request.users():
        try:
            require_level(image, SECURITY_LEVEL)
            records += _alter(image, request, user)
        except KafkaError as error:
            outcomes.append(ItemOutcome(error.code, error.message))
            continue
        outcomes.append(ItemOutcome())
    return admin_result(records, outcomes)


def _alter(image: MetadataImage, request: AlterScramRequest, user: str) -> list[Record]:
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The user's name is empty")
    deletions = [deletion for deletion in request.deletions if deletion.user == user]
    upsertions = [upsertion for upsertion in request.upsertions if upsertion.user == user]
    named = Counter(deletion.mechanism for deletion in deletions)
    named.update(upsertion.mechanism for upsertion in upsertions)
    for mechanism in named:
        if mechanism not in _DIGESTS:
            message = f"mechanism must be 1 (SHA-256) or 2 (SHA-512), not {mechanism}"
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, message)
        if named[mechanism] > 1:
            raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, "A credential is named twice")
    records: list[Record] = []
    for deletion in deletions:
        if (user, deletion.mechanism) not in image.scram:
            message = "The user has no credential of this mechanism"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
        records.append(RemoveUserScramCredentialRecord(user, deletion.mechanism))
    return records + [_credential(upsertion) for upsertion in upsertions]


def _credential(upsertion: ScramUpsertion) -> UserScramCredentialRecord:
    """Return the record with the two keys derived from the salted password (RFC 5802 §3).

    Raises KafkaError(UNACCEPTABLE_CREDENTIAL) for iterations, salt or password out of bounds.
    """
    problem = None
    if not ITERATIONS_MIN <= upsertion.iterations <= ITERATIONS_MAX:
        problem = (
            f"iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}, not {upsertion.iterations}"
        )
    elif not 0 < len(upsertion.salt) <= SALT_BYTES_MAX:
        problem = f"The salt must be 1 to {SALT_BYTES_MAX} bytes long"
    elif len(upsertion.salted_password) != hashlib.new(_DIGESTS[upsertion.mechanism]).digest_size:
        problem = "The salted password is not as long as the mechanism's hash"
    if problem is not None:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)
    # Every node keeps the record on its disk, in snapshots and logs, long after it was replaced.
    keys = scram_keys(_DIGESTS[upsertion.mechanism], upsertion.salted_password)
    return UserScramCredentialRecord(
        upsertion.user,
        upsertion.mechanism,
        upsertion.salt,
        keys.stored_key,
        keys.server_key,
        upsertion.iterations,
    )
