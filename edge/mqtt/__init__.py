"""MQTT 3.1.1 and 5.0 on the wire, without I/O: packets, their bytes, and the codes in them."""

from __future__ import annotations

from typing import Final

PROTOCOL: Final = "mqtt"
"""The name of the protocol, by which encoders and error mappings are registered."""
