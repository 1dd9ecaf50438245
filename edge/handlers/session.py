"""The legacy session request (RFC 3921, section 3): old clients wait for its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge.handlers.feature import Feature
from edge.wire import serialize
from edge.wire.namespaces import SESSION, clark

if TYPE_CHECKING:
    from edge.handlers.feature import House
    from edge.wire.stanza import Stanza


def establish(_house: House, stanza: Stanza) -> bytes:
    """Say yes: binding has established all there is."""
    return serialize.iq_result(stanza.attrs["id"])


FEATURE = Feature(here={("iq", "set", clark(SESSION, "session")): establish})
