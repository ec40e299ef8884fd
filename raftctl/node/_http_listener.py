"""The listener of one node for HTTP: what its security protocol and the rules make of it.

Controllers have RPC on it as well. A node that is only a broker has one by `http.listener`.

PLAINTEXT              everybody is ANONYMOUS; for controllers only keys and the console have rules
SSL                    connections are of their certificate
SASL_PLAINTEXT, _SSL   nodes log in over RPC, clients with each request
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import Operation
from raftctl.metadata.codec import unpack_records
from raftctl.metadata.records import UserScramCredentialRecord
from raftctl.node._http_access import (
    http_access,
    http_logins,
    identified,
    may,
    no_foreign_pages,
    no_logins,
    own_hosts,
)
from raftctl.node._logins import ControllerLogins, RpcLogin
from raftctl.security import Principal, Requester

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aiohttp.typedefs import Middleware

    from raftctl.config import NodeConfig
    from raftctl.config.addresses import Listener
    from raftctl.metadata.image import MetadataImage
    from raftctl.node._logins import FindScram
    from raftctl.runtime.api import Runtime
    from raftctl.security import Authorizer
    from raftctl.security.sasl import Login
    from raftctl.security.tls import NodeTls


class HttpListener:
    """What stands before the handlers of a listener."""

    def __init__(
        self,
        address: Listener,
        config: NodeConfig,
        runtime: Runtime,
        tls: NodeTls,
        authorizer: Authorizer | None,
        cluster_id: str,
        find_scram: FindScram,
    ) -> None:
        """ConfigError if what the configuration names cannot be used."""
        security = config.listener_security(address.name)
        log = runtime.log.bind(logger="raftctl.http", node_id=config.node_id, listener=address.name)
        self._authorizer = authorizer
        self._delay_s = config.connection_failed_authentication_delay_ms / 1000
        self.login_bytes_max = 0
        self.middlewares: list[Middleware] = [
            no_foreign_pages(own_hosts(config), is_tls=security.tls is not None)
        ]
        self.wrap: Callable[[asyncio.BaseProtocol], asyncio.BaseProtocol] | None = None
        self._logins: ControllerLogins | None = None
        if security.tls is not None:
            self.wrap = partial(identified, tls.listener(security.tls, address.name))
        if security.sasl is None:
            self.middlewares.append(no_logins)
        else:
            self.login_bytes_max = security.sasl.server_max_receive_size
            logins = ControllerLogins(security.sasl, find_scram, runtime, cluster_id)
            self._logins, is_tls = logins, security.tls is not None
            self.middlewares.append(http_logins(logins, log, is_tls=is_tls, delay_s=self._delay_s))
        # On a controllers' listener ANONYMOUS may be a node: to deny it would stop the cluster.
        nodes_are_anonymous = (
            address in config.controller_listeners and self.wrap is None and self._logins is None
        )
        if authorizer is not None and not nodes_are_anonymous:
            self.middlewares.append(http_access(authorizer, nodes_log_in=self._logins is not None))

    async def start(self) -> None:
        """Fetch what logins are verified with; ConfigError if it cannot be used."""
        if self._logins is not None:
            await self._logins.start()

    def close(self) -> None:
        """End what verifies logins."""
        if self._logins is not None:
            self._logins.close()

    @property
    def login(self) -> Callable[[str], RpcLogin] | None:
        """What begins the login of a node at a host; None if nodes do not log in."""
        logins = self._logins
        if logins is None:
            return None
        return lambda host: RpcLogin(logins, partial(self._admit, host), self._delay_s)

    def _admit(self, host: str, login: Login) -> None:
        """Raise KafkaError(CLUSTER_AUTHORIZATION_FAILED) for who may not act as a node."""
        requester = Requester(Principal.of_user(login.name), host)
        authorizer = self._authorizer
        if authorizer is not None and not may(authorizer, requester, Operation.CLUSTER_ACTION):
            why = f"{requester.principal} may not CLUSTER_ACTION the cluster"
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, why)


def scram_credentials(
    image: Callable[[], MetadataImage], first_records: tuple[bytes, int]
) -> FindScram:
    """Return what finds a credential of SCRAM: of the image, before there is one of the format."""
    formatted = {
        (record.user, record.mechanism): record
        for record in unpack_records(*first_records)
        if isinstance(record, UserScramCredentialRecord)
    }

    def find(user: str, mechanism: int) -> UserScramCredentialRecord | None:
        known = image()
        return (formatted if known.offset < 0 else known.scram).get((user, mechanism))

    return find
