"""How a node logs in to others: brokers to each other, and every node to controllers.

The keys are `sasl.mechanism.inter.broker.protocol` and `sasl.mechanism.controller.protocol`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from raftctl.config.security import Jaas
from raftctl.errors import ErrorCode, KafkaError
from raftctl.security.sasl._documents import read_token
from raftctl.security.sasl._exchange import make_client
from raftctl.security.sasl._mechanism import OAUTHBEARER, SaslError

if TYPE_CHECKING:
    from raftctl.config.security import ListenerSecurity, MechanismSettings
    from raftctl.runtime.api import Runtime
    from raftctl.security.sasl._mechanism import ClientMechanism


class NodeLogin:
    """The client's side of the exchanges of one node, or of a command that calls controllers.

    A response is made on a worker: to derive the keys of SCRAM takes some milliseconds.
    """

    def __init__(self, settings: MechanismSettings, runtime: Runtime) -> None:
        self.mechanism = settings.name
        self._settings = settings
        self._runtime = runtime
        self._worker = runtime.worker("logins")

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


def node_login(security: ListenerSecurity, runtime: Runtime) -> NodeLogin | None:
    """Return how to log in to listeners of a name; None if they do not authenticate."""
    sasl = security.sasl
    if sasl is None or sasl.login is None:
        return None
    return NodeLogin(sasl.login, runtime)
