"""Convert the names of devices and nodes, as an operator types them, to XMPP addresses."""

from __future__ import annotations

from pathlib import Path

from edge.config import load
from edge.engine.addresses import pubsub_service


def gateway_domain(folder: Path) -> str:
    """Return the domain of the gateway in `folder`; raises `ConfigError`."""
    return load.load(folder).gateway.domain


def node_address(domain: str, node: str) -> str:
    """Return the address of a node: the publish-subscribe service with the node as resource."""
    return f"{pubsub_service(domain)}/{node}"


def recipient_address(domain: str, to: str) -> str:
    """Return the address of a recipient: `to` itself, or the JID of the device named `to`."""
    service = pubsub_service(domain)
    if "@" in to or to in (domain, service) or to.startswith(f"{service}/"):
        return to
    return f"{to}@{domain}"
