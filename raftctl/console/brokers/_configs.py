"""Configs, as the broker that has them in force describes them: DescribeConfigs of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raftctl.console.brokers._brokers import Brokers, check
from raftctl.errors import KafkaError
from raftctl.http_json import BadFieldError
from raftctl.metadata.configs.topic import ConfigType
from raftctl.metadata.records import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from raftctl.plugins import ANY_BROKER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raftctl.console.http import Asked
    from raftctl.security import Requester

RESOURCES = {
    "topic": TOPIC_RESOURCE,
    "broker": BROKER_RESOURCE,
    "client-metrics": 16,
    "group": GROUP_RESOURCE,
}
"""Type in a path to the number of the protocol."""
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "CLIENT_METRICS_CONFIG",
    8: "GROUP_CONFIG",
}
"""Where a value comes from, as Kafka's tools name it."""


class ConfigViews:
    """Answers about configs."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def configs(self, asked: Asked) -> dict[str, Any]:
        """Return the configs of a resource. KafkaError as the broker says, or as of `Brokers`."""
        asked.fields.end()
        kind, name = asked.named["type"], asked.named["name"]
        if kind not in RESOURCES:
            raise BadFieldError("type", f"must be one of {', '.join(RESOURCES)}")
        return {"configs": await self._describe(asked.requester, kind, name)}

    async def known(
        self, requester: Requester, kind: str, name: str
    ) -> list[dict[str, Any]] | None:
        """Return the same for a part of another view: None if it may not be seen, or is not known.

        A broker that does not run is asked for nothing.
        """
        if kind == "broker" and int(name) not in self._brokers.live:
            return None
        try:
            return await self._describe(requester, kind, name)
        except KafkaError:
            return None

    async def _describe(self, requester: Requester, kind: str, name: str) -> list[dict[str, Any]]:
        resource = {
            "resource_type": RESOURCES[kind],
            "resource_name": name,
            "configuration_keys": None,
        }
        body = {
            "resources": [resource],
            "include_synonyms": True,
            "include_documentation": True,
        }
        # Static keys of a broker stand in its file, which no other has read.
        of_one = kind == "broker" and name.isascii() and name.isdigit()
        broker_id = int(name) if of_one else ANY_BROKER
        answer = await self._brokers.ask(requester, "DESCRIBE_CONFIGS", body, broker_id)
        [result] = answer["results"]
        check(result["error_code"], result["error_message"])
        return sorted(map(_config, result["configs"]), key=lambda one: str(one["name"]))


def _config(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config as it is shown; a secret has no value, whatever the broker sends."""
    number = one["config_type"]
    return {
        "name": one["name"],
        "value": None if one["is_sensitive"] else one["value"],
        "source": SOURCES.get(one["config_source"]),
        "read_only": one["read_only"],
        "sensitive": one["is_sensitive"],
        "type": ConfigType(number).name if number in ConfigType._value2member_map_ else None,
        "documentation": one["documentation"],
        "synonyms": [
            {
                "name": each["name"],
                "value": None if one["is_sensitive"] else each["value"],
                "source": SOURCES.get(each["source"]),
            }
            for each in one["synonyms"]
        ],
    }
