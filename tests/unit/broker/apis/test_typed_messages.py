"""Handlers are annotated with the messages of the api that dispatch gives them (decision 21)."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.apis._dispatch import APIS
from broker.apis.handler import _refusal
from broker.protocol._schema import load
from broker.protocol.codec import Request, decode_response, encode_response
from broker.protocol.versions import SERVED, ApiKey
from raftctl.errors import ErrorCode, KafkaError
from tests.unit.broker.protocol.strategies import messages_of

FROM_TABLES = [key for key, api in APIS.items() if api.refuse.__module__ == _refusal.__name__]
"""Apis whose refusals are made from the field tables of their responses."""


@pytest.mark.parametrize("key", APIS, ids=lambda key: ApiKey(key).name)
@pytest.mark.parametrize("role", ["handle", "refuse"])
def test_a_handler_is_of_the_api_that_it_serves(key: int, role: str) -> None:
    name = load(key, SERVED[key][-1], "request").name
    function = getattr(APIS[key], role)
    if role == "refuse" and key in FROM_TABLES:
        return
    parameters = list(inspect.signature(function).parameters.values())
    assert re.search(rf"\bwire\.{name}\b", str(parameters[1].annotation)), function


@pytest.mark.parametrize("key", FROM_TABLES, ids=lambda key: ApiKey(key).name)
@given(st.data())
@settings(max_examples=10, deadline=None)
def test_a_refusal_from_a_table_fits_each_version(key: int, data: st.DataObject) -> None:
    context: Any = None
    for version in SERVED[key]:
        body = data.draw(messages_of(key, version, "request"))
        request = Request(key, version, 7, "client", body)
        refusal = KafkaError(ErrorCode.NOT_COORDINATOR, "why")
        refused: Any = APIS[key].refuse(context, request, refusal)
        pieces: list[Any] = encode_response(key, version, 7, refused)
        payload = b"".join(pieces)[4:]
        _, found = decode_response(key, version, payload)
        assert set(_codes(found)) <= {ErrorCode.NOT_COORDINATOR}
        if APIS[key].refuse is _refusal.refuse and "error_code" in found:
            assert found["error_code"] == ErrorCode.NOT_COORDINATOR


def _codes(message: Any) -> list[int]:
    if isinstance(message, list):
        return [code for one in message for code in _codes(one)]
    if not isinstance(message, dict):
        return []
    own = [message["error_code"]] if "error_code" in message else []
    return own + [code for value in message.values() for code in _codes(value)]
