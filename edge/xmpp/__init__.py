"""The XMPP layer: parsing and building of stanzas, SASL and stream negotiation.

The package is pure: no sockets, clocks, database or rules of the broker.
"""

from typing import Final

PROTOCOL: Final = "xmpp"
"""The name under which the encoders and error mappings of XMPP are registered (`engine.hooks`)."""

CONTENT_TYPE: Final = ""
"""The content type of XML elements (`MessageBytes`)."""
