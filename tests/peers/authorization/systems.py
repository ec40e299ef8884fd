"""Both systems with an authorizer, and a listener at which users log in."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tests.peers.authorization.cases import SUPER
from tests.peers.differential.systems import KAFKA_ONLY, Settings, listening

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.peers.differential.playing import System

INSIDE, USERS = "INSIDE", "USERS"
"""Listeners: without a protocol for the node itself, and with SASL PLAIN."""
SESSION_MS = "600000"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@contextlib.contextmanager
def both(directory: Path, jars: Path, users: Mapping[str, str]) -> Iterator[tuple[System, System]]:
    """(Apache Kafka, ours) as users with these passwords reach them."""
    with listening(directory, jars, settings(users)) as (kafka, ours):
        yield kafka[USERS], ours[USERS]


def settings(users: Mapping[str, str]) -> Settings:
    """What both are started with."""
    passwords = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    prefix = f"listener.name.{USERS.lower()}."
    return Settings(
        {INSIDE: "PLAINTEXT", USERS: "SASL_PLAINTEXT"},
        {
            "authorizer.class.name": AUTHORIZER,
            # The node is nobody in particular at listeners without a protocol.
            "super.users": f"User:{SUPER};User:ANONYMOUS",
            # Members that send nothing stay until the table is filled.
            "group.consumer.max.session.timeout.ms": SESSION_MS,
            "group.consumer.session.timeout.ms": SESSION_MS,
            "delegation.token.secret.key": "the same of both",
            f"{prefix}sasl.enabled.mechanisms": "PLAIN",
            f"{prefix}plain.sasl.jaas.config": f"{LOGIN} {passwords};",
        },
        KAFKA_ONLY,
    )
