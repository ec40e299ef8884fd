"""What clients are verified with: the configuration, the newest image, and an issuer's keys."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from raftctl.security.delegation_tokens import TokenSecret, token_credential
from raftctl.security.sasl import (
    OAUTHBEARER,
    PLAIN,
    Credentials,
    make_server,
    plain_passwords,
)
from raftctl.security.sasl.scram import SCRAM_IDS, ScramCredential, stand_in_secret
from raftctl.security.sasl.tokens import TokenIssuer

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.config import NodeConfig
    from raftctl.config.security import SaslSettings
    from raftctl.metadata.image import MetadataImage
    from raftctl.runtime.api import Runtime
    from raftctl.security.sasl import Login, ServerMechanism

TOKEN_KEYS_MAX = 1_024
"""Delegation tokens whose keys are kept, by mechanism: to derive them takes some milliseconds. The
time shows who does it that there is a token of this id, which nobody guesses."""


class Verifiers:
    """Those of one listener. `begin` starts an exchange with one client."""

    def __init__(
        self,
        config: NodeConfig,
        settings: SaslSettings,
        image: Callable[[], MetadataImage],
        runtime: Runtime,
        cluster_id: str,
    ) -> None:
        """`settings` are those of the listener; `image` returns the newest one.

        ConfigError if OAUTHBEARER is enabled and its library is not installed.
        """
        self._image = image
        self._runtime = runtime
        secret = TokenSecret.of(config)
        self._token_keys = None if secret is None else lru_cache(TOKEN_KEYS_MAX)(secret.scram_keys)
        """Mechanism and id of a delegation token to the salt and the keys of its login."""
        self._issuer: TokenIssuer | None = None
        if (bearer := settings.mechanisms.get(OAUTHBEARER)) is not None:
            self._issuer = TokenIssuer(bearer.oauthbearer, runtime)
        plain = settings.mechanisms.get(PLAIN)
        self._credentials = Credentials(
            plain_passwords(None if plain is None else plain.jaas),
            self._find_scram,
            stand_in_secret(
                config.listener_security(config.inter_broker_listener).sasl, cluster_id
            ),
            self._validate_token,
        )

    def begin(self, mechanism: str) -> ServerMechanism:
        """Return the server's side of an exchange."""
        if mechanism == OAUTHBEARER and self._issuer is not None:
            self._issuer.refresh_if_old()
        return make_server(mechanism, self._credentials, self._runtime.uuid().hex)

    async def start(self) -> None:
        """Fetch the keys of the issuer, so that the first client need not wait for them.

        ConfigError if they are in a file that has none. A server that cannot be reached may be
        there later: until then nobody logs in with a token.
        """
        if self._issuer is not None:
            await self._issuer.start()

    async def refresh_keys(self) -> None:
        """Fetch the keys of the issuer again, unless that was tried a moment ago."""
        if self._issuer is not None:
            await self._issuer.refresh()

    def close(self) -> None:
        """End the worker that fetches keys."""
        if self._issuer is not None:
            self._issuer.close()

    def _find_scram(self, mechanism: str, user: str, by_token: bool) -> ScramCredential | None:
        if by_token:
            return self._find_token(mechanism, user)
        record = self._image().scram.get((user, SCRAM_IDS[mechanism]))
        return None if record is None else ScramCredential.of(record)

    def _find_token(self, mechanism: str, token_id: str) -> ScramCredential | None:
        token = self._image().tokens.get(token_id)
        if token is None or self._token_keys is None:
            return None
        return token_credential(token, *self._token_keys(mechanism, token_id))

    def has_token(self, token_id: str) -> bool:
        """Return whether a delegation token still exists; it may have expired."""
        return token_id in self._image().tokens

    def _validate_token(self, token: str, now_ms: int) -> Login:
        assert self._issuer is not None, "OAUTHBEARER is enabled with an issuer"
        return self._issuer.validate(token, now_ms)
