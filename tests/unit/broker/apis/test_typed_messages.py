"""Handlers are annotated with the messages of the api that dispatch gives them (decision 21)."""

from __future__ import annotations

import inspect
import re

import pytest

from broker.apis._dispatch import APIS
from broker.protocol._schema import load
from broker.protocol.versions import SERVED, ApiKey


@pytest.mark.parametrize("key", APIS, ids=lambda key: ApiKey(key).name)
@pytest.mark.parametrize("role", ["handle", "refuse"])
def test_a_handler_is_of_the_api_that_it_serves(key: int, role: str) -> None:
    name = load(key, SERVED[key][-1], "request").name
    function = getattr(APIS[key], role)
    parameters = list(inspect.signature(function).parameters.values())
    assert re.search(rf"\bwire\.{name}\b", str(parameters[1].annotation)), function
