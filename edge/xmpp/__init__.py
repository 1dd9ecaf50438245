"""XMPP bytes to stanzas and back: parsing, building, addresses, SASL, stream negotiation and stream
management.

Nothing here knows a socket, a clock, a database or a rule of the broker: bytes and values go in,
values and bytes come out.
"""
