"""Target: the parser of MQTT's packets, and their encoding.

The first byte of an input selects the version, the direction and the maximum size (`_SETUPS`), the
second where the rest is split in two.

- Nothing is raised; a fault is the last item.
- Splits make no difference.
- At most the maximum size of a packet and its header are kept between two calls.
- What is parsed and encoded again is parsed as the same.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import Final

from edge.mqtt.codec import PacketParser, encode
from edge.mqtt.packets import V5, V311, Connect, Fault, Packet
from tests.helpers.mqtt_packets import PACKETS

MAX_BYTES: Final = 2048

_SETUPS: Final = [*product((0, V5, V311), (True, False), (MAX_BYTES, 64))]
_HEADER: Final = 5
_EMPTY: Final = sys.getsizeof(bytearray())


def check(data: bytes) -> None:
    """Parse an input, whole and in two pieces, and encode what it has."""
    setup, cut, rest = data[:1], data[1:2], data[2:]
    version, from_client, max_bytes = _SETUPS[int.from_bytes(setup) % len(_SETUPS)]
    whole = PacketParser(max_bytes, version, from_client=from_client)
    split = PacketParser(max_bytes, version, from_client=from_client)
    at = int.from_bytes(cut)
    items = whole.feed(rest)
    first = split.feed(rest[:at])
    assert split.pending <= max_bytes + _HEADER
    assert first + split.feed(memoryview(rest)[at:]) == items
    assert split.version == whole.version
    assert whole.pending == split.pending <= max_bytes + _HEADER
    assert not any(isinstance(item, Fault) for item in items[:-1])
    for item in items:
        if not isinstance(item, Fault):
            _check_again(item, whole.version, from_client)


def _check_again(packet: Packet, version: int, from_client: bool) -> None:
    data = encode(packet, version)
    known = 0 if isinstance(packet, Connect) else version
    assert PacketParser(len(data), known, from_client=from_client).feed(data) == [packet]


def seeds() -> list[bytes]:
    """Return each packet with each setup that may parse it."""
    found = []
    for sent in PACKETS.values():
        version = 0 if isinstance(sent.packet, Connect) else sent.version
        data = encode(sent.packet, sent.version)
        for number, setup in enumerate(_SETUPS):
            if setup[:2] == (version, sent.from_client):
                found.append(bytes((number, len(data) // 2)) + data)
    return found
