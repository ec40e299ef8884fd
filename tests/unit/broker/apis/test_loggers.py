"""Levels of a broker's loggers as configs of BROKER_LOGGER (row O3, KIP-412)."""

from __future__ import annotations

from typing import Any

import pytest

from raftctl.errors import ErrorCode
from raftctl.loggers import LOGGERS, Level, LogLevels
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.security import Action
from tests.kit.authorizing import denying
from tests.unit.broker.apis.asking import ask
from tests.unit.broker.apis.controlled import ControlledBroker

pytestmark = pytest.mark.req("O3", "C9")

BROKER_LOGGER = 8
SET, DELETE, APPEND = 0, 1, 2
FETCHER = "broker.replication.fetcher"


@pytest.fixture
def broker() -> ControlledBroker:
    return ControlledBroker()


def resource(*changes: tuple[str, int, str | None], name: str = "1") -> dict[str, Any]:
    configs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in changes
    ]
    return {"resource_type": BROKER_LOGGER, "resource_name": name, "configs": configs}


async def altered(
    broker: ControlledBroker, *resources: dict[str, Any], validate_only: bool = False
) -> list[tuple[ErrorCode, str]]:
    """The outcome of each resource."""
    request = {"resources": [*resources], "validate_only": validate_only}
    answers = (await ask(broker, 44, 1, request))["responses"]
    return [(ErrorCode(one["error_code"]), one["error_message"] or "") for one in answers]


async def described(broker: ControlledBroker, *keys: str, name: str = "1") -> dict[str, Any]:
    one = {
        "resource_type": BROKER_LOGGER,
        "resource_name": name,
        "configuration_keys": list(keys) or None,
    }
    request = {"resources": [one], "include_synonyms": True, "include_documentation": False}
    (result,) = (await ask(broker, 32, 4, request))["results"]
    found: dict[str, Any] = result
    return found


def levels(result: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in result["configs"]}


async def test_every_logger_is_described_with_its_level(broker: ControlledBroker) -> None:
    result = await described(broker)
    assert levels(result) == dict.fromkeys(sorted(LOGGERS), "INFO")
    (entry,) = (await described(broker, "root"))["configs"]
    assert (entry["config_source"], entry["read_only"], entry["is_sensitive"]) == (6, False, False)
    assert list(entry["synonyms"]) == []


async def test_a_level_is_set_and_unset(broker: ControlledBroker) -> None:
    log = broker.log.bind(logger=FETCHER)
    log.debug("hidden")
    changes = (("broker.replication", SET, "DEBUG"), ("raftctl", SET, "WARN"))
    assert await altered(broker, resource(*changes)) == [(ErrorCode.NONE, "")]
    log.debug("shown")
    found = levels(await described(broker))
    assert (found[FETCHER], found["raftctl.rpc"], found["broker.log"]) == ("DEBUG", "WARN", "INFO")
    undo = ("broker.replication", DELETE, None)
    assert await altered(broker, resource(undo)) == [(ErrorCode.NONE, "")]
    log.debug("hidden")
    assert broker.events("hidden") == []
    assert len(broker.events("shown")) == 1
    changed = [(one["changed"], one["to"]) for one in broker.events("log_level_changed")]
    assert changed == [
        ("broker.replication", "DEBUG"),
        ("raftctl", "WARN"),
        ("broker.replication", "INFO"),
    ]


async def test_what_cannot_be_changes_nothing(broker: ControlledBroker) -> None:
    good = ("broker", SET, "DEBUG")
    cases = {
        ("brokre", SET, "DEBUG"): (ErrorCode.INVALID_CONFIG, "Logger brokre does not exist!"),
        ("root", DELETE, None): (ErrorCode.INVALID_REQUEST, "root logger is not allowed"),
        ("brokre", DELETE, None): (ErrorCode.INVALID_CONFIG, "Logger brokre does not exist!"),
        ("root", SET, "LOUD"): (ErrorCode.INVALID_CONFIG, "the log level of root to LOUD"),
        ("root", SET, "info"): (ErrorCode.INVALID_CONFIG, "DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
        ("root", APPEND, "INFO"): (ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed"),
        ("root", 9, "INFO"): (ErrorCode.INVALID_REQUEST, "Unknown operation type 9"),
        ("root", SET, None): (ErrorCode.INVALID_REQUEST, "Null value"),
        good: (ErrorCode.INVALID_REQUEST, "duplicate config keys"),
    }
    for case, (error, words) in cases.items():
        ((found, message),) = await altered(broker, resource(good, case))
        assert found is error, case
        assert words in message
    assert set(LogLevels.of(broker.log).all().values()) == {Level.INFO}


async def test_levels_belong_to_the_broker_that_is_asked(broker: ControlledBroker) -> None:
    change = ("root", SET, "DEBUG")
    for name, words in (("2", "Expected 1, but received 2"), ("x", "must be an integer"), ("", "")):
        ((error, message),) = await altered(broker, resource(change, name=name))
        assert error is ErrorCode.INVALID_REQUEST
        assert words in message
        refused = await described(broker, name=name)
        assert refused["error_code"] == ErrorCode.INVALID_REQUEST
    twice = await altered(broker, resource(change), resource(change))
    assert [error for error, _ in twice] == [ErrorCode.INVALID_REQUEST] * 2
    assert await altered(broker, resource(change), validate_only=True) == [(ErrorCode.NONE, "")]
    assert levels(await described(broker, "root")) == {"root": "INFO"}


async def test_configs_that_are_stored_are_altered_beside_them(broker: ControlledBroker) -> None:
    change = {"name": "log.retention.ms", "config_operation": SET, "value": "88"}
    stored = {"resource_type": 4, "resource_name": "", "configs": [change]}
    unknown = resource(("nobody", SET, "INFO"))
    outcomes = await altered(broker, unknown, stored, resource(("root", SET, "ERROR"), name="01"))
    assert [error for error, _ in outcomes] == [
        ErrorCode.INVALID_CONFIG,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert dict(broker.metadata.image.config(4, "")) == {"log.retention.ms": "88"}
    assert levels(await described(broker, "root")) == {"root": "ERROR"}


async def test_configs_as_a_whole_know_no_loggers(broker: ControlledBroker) -> None:
    one = {
        "resource_type": BROKER_LOGGER,
        "resource_name": "1",
        "configs": [{"name": "root", "value": "DEBUG"}],
    }
    request = {"resources": [one], "validate_only": False}
    (answer,) = (await ask(broker, 33, 2, request))["responses"]
    assert answer["error_code"] == ErrorCode.INVALID_REQUEST
    assert levels(await described(broker, "root")) == {"root": "INFO"}


async def test_who_may_not_alter_configs_of_the_cluster_changes_no_level() -> None:
    broker = ControlledBroker()
    broker.authorize_by(
        denying(Action(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME))
    )
    ((error, _),) = await altered(broker, resource(("root", SET, "DEBUG")))
    assert error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert levels(await described(broker, "root")) == {"root": "INFO"}


async def test_every_broker_is_listed_as_having_loggers(broker: ControlledBroker) -> None:
    answer = await ask(broker, 74, 1, {"resource_types": [BROKER_LOGGER]})
    found = [(one["resource_type"], one["resource_name"]) for one in answer["config_resources"]]
    assert found == [(BROKER_LOGGER, "1"), (BROKER_LOGGER, "2"), (BROKER_LOGGER, "3")]
