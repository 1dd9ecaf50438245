"""What a session was sent and its peer never got: back where it came from (XEP-0198, section 5).

Rows of a table are their feature's (`lost`); here are stanzas that were nowhere stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge.handlers.feature import House
    from edge.store.database import Transaction


def take_back(house: House, tx: Transaction, stanza: bytes) -> None:
    """Deal with one stanza (raw, stamped) as if its recipient had not been there."""
