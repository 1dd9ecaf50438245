"""Divides the findings of a fleet into those of each gateway, and names the gateways' pages.

Draws nothing, writes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final

from sync.reports.gather import Findings, Rows
from sync.segment.identity import is_gateway

PAGES: Final = "gateways"
"""The folder of the gateways' pages, beside the fleet's."""


def page_name(gateway: str) -> str:
    """Give the file name of a gateway's page: its own name where that is one of a gateway.

    Any other could name another place than that folder; it gets a name that no gateway can have.
    """
    if is_gateway(gateway):
        return f"{gateway}.html"
    return f"_{hashlib.sha256(gateway.encode()).hexdigest()[:32]}.html"


def by_gateway(found: Findings) -> dict[str, Findings]:
    """Give each gateway's findings, by name: of every table and drawing the rows that are its own.

    What is of the fleet alone (totals, versions, files that were refused) is left out.
    """
    divided: dict[str, dict[str, Rows]] = {}
    names = [each.name for each in fields(found) if isinstance(getattr(found, each.name), list)]
    for name in names:
        owners = _OWNERS.get(name, _owner)
        for row in getattr(found, name):
            for gateway in owners(row):
                divided.setdefault(gateway, {}).setdefault(name, []).append(row)
    nothing: dict[str, Any] = {name: [] for name in names} | {"refused": {}}
    return {gateway: replace(found, **(nothing | own)) for gateway, own in sorted(divided.items())}


def _owner(row: dict[str, Any]) -> list[str]:
    gateway = row.get("gateway")
    return [gateway] if gateway else []


def _named(row: dict[str, Any]) -> list[str]:
    """Name the gateways of a refusal: those that are listed, with most of it."""
    return [name.strip() for name in (row["which"] or "").split(",") if name.strip()]


def _of_path(row: dict[str, Any]) -> list[str]:
    """Name the gateway in whose folder a refused file lay; none where that is no gateway's."""
    parts = row["path"].split("/")
    return [parts[1]] if len(parts) > 2 and is_gateway(parts[1]) else []


_OWNERS: Final[dict[str, Callable[[dict[str, Any]], list[str]]]] = {
    "refusals": _named,
    "quarantine": _of_path,
}
