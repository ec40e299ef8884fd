"""Configs of listeners that change while the broker runs: checked, and taken up (KIP-226).

They override the broker's file, those of this broker before those of all. A change is checked
before it is forwarded, by the broker that has the files of the stores. What cannot be used all the
same, since a file has gone meanwhile, is reported once; the configs before it stay in force.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.config import make_config
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.metadata.configs.listeners import connection_overrides, dynamic_listener_key
from raftctl.metadata.records import BROKER_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from structlog.typing import FilteringBoundLogger

    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataImage
    from raftctl.security.tls import NodeTls


class ListenerConfigs:
    """One a broker."""

    def __init__(
        self,
        config: NodeConfig,
        tls: NodeTls,
        apply: Callable[[NodeConfig], None],
        log: FilteringBoundLogger,
    ) -> None:
        """`config` is the broker's file; `apply` takes it with the configs in force."""
        self._config = config
        self._tls = tls
        self._apply = apply
        self._log = log
        self._image: MetadataImage | None = None
        self._overrides: Mapping[str, str] = {}

    def publish(self, image: MetadataImage) -> None:
        """Take up the configs of a newer image."""
        former, self._image = self._image, image
        if former is not None and former.configs is image.configs:
            return
        overrides = self._known(connection_overrides(*self._stored(image)))
        if overrides == self._overrides:
            return
        self._overrides = overrides
        try:
            newest = self._updated(overrides)
        except ConfigError as error:
            self._log.error(
                "listener_configs_not_applied", reason=str(error), effect="the old ones stay"
            )
            return
        self._apply(newest)
        self._log.info("listener_configs_applied", keys=sorted(overrides))

    async def check(self, proposed: Mapping[str, str], *, one_broker: bool) -> None:
        """Refuse configs of this broker, or of all, that cannot be in force on this one.

        Raises KafkaError(INVALID_REQUEST), as Apache Kafka does, with the key and the reason.
        """
        of_all, own = ({}, {}) if self._image is None else self._stored(self._image)
        of_all, own = (of_all, proposed) if one_broker else (proposed, own)
        overrides = self._known(connection_overrides(of_all, own))
        if one_broker:
            overrides |= connection_overrides(own)
        try:
            newest = self._updated(overrides)
            self._check_effect(overrides)
            former = self._updated(self._overrides)
            for listener in self._config.broker_listeners:
                settings = newest.listener_security(listener.name).tls
                before = former.listener_security(listener.name).tls
                if settings is not None and before is not None and settings != before:
                    await self._tls.check(settings, before, listener.name)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _stored(self, image: MetadataImage) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """(configs of all brokers, of this broker)."""
        own = image.config(BROKER_RESOURCE, str(self._config.node_id))
        return image.config(BROKER_RESOURCE, ""), own

    def _known(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """Leave out the keys of listeners that are not of Kafka's protocol, or not here."""
        names = {listener.name for listener in self._config.broker_listeners}
        return {
            name: value
            for name, value in overrides.items()
            if dynamic_listener_key(name) is None or self._config.listener_of(name) in names
        }

    def _check_effect(self, overrides: Mapping[str, str]) -> None:
        """Raise ConfigError for a key of another listener, such as that of controllers."""
        for name in sorted(overrides.keys() - self._known(overrides).keys()):
            raise ConfigError(f"{name}: only listeners of the broker itself change while it runs")

    def _updated(self, overrides: Mapping[str, str]) -> NodeConfig:
        """Return the broker's configuration with these; ConfigError if they cannot be in force."""
        if not overrides:
            return self._config
        return make_config({**self._config.written, **overrides}, lambda _: None)
