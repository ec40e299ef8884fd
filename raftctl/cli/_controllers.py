"""The controllers that commands ask: over HTTP for what is, over the RPC for operations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli import _arguments as arguments
from raftctl.cli._options import CommandConfigOption, Printer
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from raftctl.config.security import ClientSecurity
    from raftctl.http_security import HttpSecurity
    from raftctl.localcluster.status import ClusterStatus

TIMEOUT_S = 10.0
TimeoutOption = Annotated[
    float,
    typer.Option(metavar="SECONDS", help="Longest wait for an answer.", min=0.001, max=86_400),
]


@dataclass(frozen=True, kw_only=True)
class Controllers(Printer):
    """The controllers that a command asks, and for how long it waits for an answer."""

    controllers: Annotated[
        str,
        typer.Option(
            "--controllers",
            metavar="HOST:PORT,...",
            help="Controllers to ask.",
            callback=arguments.controllers,
            envvar=arguments.CONTROLLERS_VARIABLE,
            default_factory=arguments.local_controllers,
            show_default=arguments.ADDRESSES_DEFAULT,
        ),
    ]
    timeout: TimeoutOption = TIMEOUT_S
    command_config: CommandConfigOption = None

    @cached_property
    def client_security(self) -> ClientSecurity:
        """How to connect; ConfigError for what the file says and cannot be used."""
        from raftctl.cli.kafka.client_security import read_client_security

        return read_client_security(self.command_config)

    @cached_property
    def security(self) -> HttpSecurity:
        """How HTTP connects."""
        from raftctl.cli.kafka.client_security import to_http
        from raftctl.http_security import NO_SECURITY

        return NO_SECURITY if self.command_config is None else to_http(self.client_security)

    @property
    def addresses(self) -> list[str]:
        """The addresses; ConfigError for one that is not `host:port`."""
        return arguments.parse_addresses(self.controllers, "--controllers")

    def ask(self, timeout_s: float | None = None) -> ClusterStatus:
        """What the controllers say; KafkaError if none answers within this time or the option's."""
        from raftctl.localcluster.status import ask_controllers

        wait_s = self.timeout if timeout_s is None else timeout_s
        status = ask_controllers(self.addresses, wait_s, self.security)
        if status.best is None:
            if status.refusals:
                raise status.refusals[0]
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"no controller answers at {self.controllers}; is that where --controllers should "
                "point, and does --command-config name its protocol?",
            )
        return status

    def find(self) -> None:
        """Raise KafkaError if none answers; their status may be refused to who may use keys."""
        try:
            self.ask()
        except KafkaError as error:
            if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise

    def ask_leader(self) -> dict[str, Any]:
        """What the active controller says; KafkaError if there is none."""
        found = self.find_leader(self.timeout)
        if found is None:
            self.ask()  # if nobody answers, it says so
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no controller is active; ask again")
        return found[1]

    def find_leader(self, timeout_s: float) -> tuple[str, dict[str, Any]] | None:
        """The leader's address and status, found by these controllers or the voters they name."""
        from raftctl.localcluster.status import ask_controllers

        wait_s = min(timeout_s, TIMEOUT_S)
        asked = ask_controllers(self.addresses, wait_s, self.security)
        if asked.leader is None and asked.best is not None:
            voters = asked.best.get("voter_set", ())
            more = [f"{voter['host']}:{voter['port']}" for voter in voters if voter["port"]]
            known = list(dict.fromkeys([*self.addresses, *more]))
            asked = ask_controllers(known, wait_s, self.security)
        for address, status in asked.answers.items():
            if status is not None and status is asked.leader:
                return address, status
        return None
