"""How a key is defined: a field of a section, with its bounds and description."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from raftctl.integers import INT_MAX


def key_of(attribute: str) -> str:
    """`node_id` -> `node.id`."""
    return attribute.replace("_", ".")


def key(
    default: Any,
    description: str,
    *,
    at_least: int | None = None,
    at_most: int | None = None,
    example: str = "",
) -> Any:
    """Define a key; `...` as default makes it required. Bounds are inclusive."""
    limit = INT_MAX if at_least is not None and at_most is None else at_most
    return Field(
        default, description=description, ge=at_least, le=limit, examples=[example or None]
    )


def parsed_by(parser: Any) -> BeforeValidator:
    """Parse text; a value that is not text is taken as parsed."""
    return BeforeValidator(lambda value: parser(value) if isinstance(value, str) else value)


def _parse_flag(text: str) -> bool:
    flags = {"true": True, "false": False}
    if text.strip().lower() not in flags:
        raise ValueError(f"{text!r} is neither true nor false: write one of them")
    return flags[text.strip().lower()]


Flag = Annotated[bool, parsed_by(_parse_flag)]


class Section(BaseModel):
    """Group of keys. Frozen; unknown keys are refused; fields are set by key or by attribute."""

    model_config = ConfigDict(
        alias_generator=key_of, validate_by_name=True, frozen=True, extra="forbid"
    )
