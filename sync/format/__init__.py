"""The segment: how events are written down for the road and read again.

Imports cbor2 and the standard library alone, so that anything can read a segment.
"""
