"""Errors are found wherever a response has them."""

from __future__ import annotations

from typing import Any

import pytest

from broker.apis._dispatch import errors_of

OF_PRODUCE = {
    "responses": [
        {"name": "a", "partition_responses": [{"index": 0, "error_code": 0}]},
        {
            "name": "b",
            "partition_responses": [{"index": 0, "error_code": 6}, {"index": 1, "error_code": 6}],
        },
    ],
    "throttle_time_ms": 0,
}


@pytest.mark.req("O1")
@pytest.mark.parametrize(
    ("answer", "errors"),
    [
        ({"error_code": 0, "member_id": "x"}, {}),
        ({"error_code": 16}, {16: 1}),
        (OF_PRODUCE, {6: 2}),
        ({"error_code": 0, "responses": ()}, {}),
        ({"error_code": 3, "responses": [{"partitions": [{"error_code": 1}]}]}, {3: 1, 1: 1}),
    ],
)
def test_errors_of_a_response_and_its_parts_are_counted(
    answer: dict[str, Any], errors: dict[int, int]
) -> None:
    assert errors_of(answer) == errors
