"""How this broker logs in to others: `sasl.mechanism.inter.broker.protocol`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from raftctl.config.security import Jaas
from raftctl.errors import ErrorCode, KafkaError
from raftctl.security.sasl import OAUTHBEARER, SaslError, make_client
from raftctl.security.sasl.tokens import read_token

if TYPE_CHECKING:
    from raftctl.config import NodeConfig
    from raftctl.config.security import MechanismSettings
    from raftctl.runtime.api import Runtime
    from raftctl.security.sasl import ClientMechanism


class BrokerLogin:
    """The client's side of the exchanges of one broker.

    A response is made on a worker: to derive the keys of SCRAM takes some milliseconds.
    """

    def __init__(self, settings: MechanismSettings, runtime: Runtime) -> None:
        self.mechanism = settings.name
        self._settings = settings
        self._runtime = runtime
        self._worker = runtime.worker("broker-logins")

    async def begin(self) -> ClientMechanism:
        """Start an exchange. KafkaError(SASL_AUTHENTICATION_FAILED) if its token cannot be read."""
        settings, token = self._settings, ""
        jaas = settings.jaas or Jaas("")
        if settings.name == OAUTHBEARER:
            url = settings.oauthbearer.token_endpoint_url or ""
            try:
                token = await self._worker.submit(
                    partial(read_token, url, jaas, self._runtime.files)
                )
            except (OSError, ValueError) as error:
                reason = f"the token cannot be read: {type(error).__name__}"
                raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, reason) from None
        return make_client(settings.name, jaas, self._runtime.uuid().hex, token)

    async def respond(self, mechanism: ClientMechanism, challenge: bytes) -> bytes | None:
        """Return the response to a challenge; None at the end.

        KafkaError(SASL_AUTHENTICATION_FAILED) if the other side does not prove what it must.
        """
        try:
            return await self._worker.submit(partial(mechanism.respond, challenge))
        except SaslError as error:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None

    def close(self) -> None:
        """End the worker."""
        self._worker.close()


def broker_login(config: NodeConfig, runtime: Runtime) -> BrokerLogin | None:
    """Return how to log in to the listener of brokers; None if it does not authenticate."""
    sasl = config.listener_security(config.inter_broker_listener).sasl
    if sasl is None or sasl.login is None:
        return None
    return BrokerLogin(sasl.login, runtime)
