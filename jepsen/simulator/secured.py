"""A simulated cluster whose brokers and clients log in, and whose nodes enforce rules.

Brokers know each other by SCRAM, and their listener is SASL_PLAINTEXT: TLS cannot be simulated.
What controllers serve has no login here, so who is anonymous there may do everything. The users of
brokers and of the operator are on the disks of the first controllers (KIP-900).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jepsen.environments import Security
from jepsen.environments.access import ITERATIONS, MECHANISM, OPERATOR, ClusterAccess, Passwords
from raftctl.metadata.records import UserScramCredentialRecord
from raftctl.security import ANONYMOUS
from raftctl.security.sasl.scram import HASHES, SCRAM_IDS, salted_password, scram_keys

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

BROKER = "broker"
"""The user of brokers."""
RULES = {
    "authorizer.class.name": "standard",
    "super.users": f"User:{BROKER};User:{OPERATOR};{ANONYMOUS}",
}
"""Keys of all nodes."""
_OWN = "listener.name.plaintext"
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PASSWORD_BITS = 64
_SALT = b"of simulated users"


class SecuredUsers:
    """The users that a cluster begins with, and what brokers are configured with to know them."""

    def __init__(self, rng: random.Random) -> None:
        self.passwords = Passwords(lambda: f"{rng.getrandbits(_PASSWORD_BITS):x}")
        for user in (BROKER, OPERATOR):
            self.passwords.take(user, self.passwords.drawn())

    @property
    def broker_keys(self) -> dict[str, str]:
        """Keys of brokers alone."""
        protocol = Security.SASL_PLAINTEXT
        own = f'username="{BROKER}" password="{self.passwords.newest(BROKER)}"'
        return {
            "listener.security.protocol.map": f"PLAINTEXT:{protocol},CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            f"{_OWN}.{MECHANISM.lower()}.sasl.jaas.config": f"{_MODULE} required {own};",
        }

    @property
    def records(self) -> Sequence[UserScramCredentialRecord]:
        """The credentials that the first controllers are formatted with."""
        return [self._record(user) for user in (BROKER, OPERATOR)]

    def _record(self, user: str) -> UserScramCredentialRecord:
        digest = HASHES[MECHANISM]
        salted = salted_password(digest, self.passwords.newest(user), _SALT, ITERATIONS)
        keys = scram_keys(digest, salted)
        number = SCRAM_IDS[MECHANISM]
        return UserScramCredentialRecord(user, number, _SALT, *keys, ITERATIONS)

    def access(self, bootstrap_servers: str) -> ClusterAccess:
        """Return what changes users and rules of the cluster with these brokers."""
        return ClusterAccess(bootstrap_servers, Security.SASL_PLAINTEXT, self.passwords)
