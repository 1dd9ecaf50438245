"""The firmware library, `device`, and the simulator, whose devices use it.

The library is the distribution `fieldpost-device`; the rest is `fieldpost-sim`.
"""
