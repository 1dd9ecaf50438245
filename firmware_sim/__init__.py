"""The firmware library, `device`, and the simulator, whose devices use it.

The library is in the gateway's wheel; the rest is in the distribution `fieldpost-sim`.
"""
