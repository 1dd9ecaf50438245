"""The type of a new event, in a module that is not compiled, because msgspec decodes the type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class NewEvent(NamedTuple):
    """An event without a number yet; docs/reference/segment-format.md describes the fields."""

    kind: str
    source: str | None = None
    topic: str | None = None
    name: str | None = None
    value: float | None = None
    unit: str | None = None
    level: str | None = None
    text: str | None = None
    qos: int | None = None
    latency_ms: int | None = None
    tags: Mapping[str, str] | None = None
