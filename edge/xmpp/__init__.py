"""The XMPP layer: parsing and building of stanzas, addresses, SASL and stream negotiation.

The package is pure: no sockets, clocks, database or rules of the broker.
"""
