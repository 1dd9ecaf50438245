from __future__ import annotations

import contextlib
import ssl
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.server.tls_client_hello import ClientHello, Incomplete

RECORD = 5


def hello(*alpn: str, name: str = "gw.example") -> bytes:
    """Return the ClientHello of OpenSSL's client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def offered_protocols(data: bytes) -> list[bytes]:
    received = ClientHello()
    received.data += data
    return received.offered_protocols()


def in_records(message: bytes, size: int) -> bytes:
    body = message[RECORD:]
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(message[:3] + len(part).to_bytes(2, "big") + part for part in parts)


@pytest.mark.parametrize("alpn", [(), ("xmpp-client",), ("h2", "http/1.1"), ("x", "xmpp-client")])
@pytest.mark.parametrize("size", [1, 3, 100, 100_000])
def test_protocols_are_found_in_any_split_into_records(alpn: tuple[str, ...], size: int) -> None:
    message = in_records(hello(*alpn), size)
    assert offered_protocols(message) == [name.encode() for name in alpn]
    assert offered_protocols(message + b"more") == [name.encode() for name in alpn]


@pytest.mark.parametrize("size", [7, 100_000])
def test_a_part_of_a_message_is_incomplete(size: int) -> None:
    message, received = in_records(hello("h2"), size), ClientHello()
    for byte in message:
        with pytest.raises(Incomplete):
            received.offered_protocols()
        received.data.append(byte)
    assert received.offered_protocols() == [b"h2"]


@pytest.mark.parametrize("record", [b"", b"\x01", b"\x01\x00\xff\xff"], ids=["empty", "1", "4"])
def test_work_for_a_byte_does_not_depend_on_the_bytes_before(record: bytes) -> None:
    """Otherwise, a peer that sends small records byte by byte occupies the processor."""
    received, calls = ClientHello(), Counter[str]()
    data = (b"\x16\x03\x01" + len(record).to_bytes(2, "big") + record) * 300
    sys.setprofile(lambda _frame, event, _argument: calls.update((event,)))
    try:
        for byte in data:
            received.data.append(byte)
            with contextlib.suppress(Incomplete):
                received.offered_protocols()
    finally:
        sys.setprofile(None)
    assert calls["c_call"] < 20 * len(data)


@given(st.binary(max_size=300))
def test_other_data_raises_only_incomplete(data: bytes) -> None:
    with contextlib.suppress(Incomplete):
        assert isinstance(offered_protocols(data), list)


@given(st.integers(RECORD, 600), st.binary(min_size=1, max_size=8))
def test_a_damaged_message_raises_only_incomplete(at: int, damage: bytes) -> None:
    message = bytearray(hello("h2", "http/1.1"))
    message[at : at + len(damage)] = damage
    with contextlib.suppress(Incomplete):
        assert isinstance(offered_protocols(bytes(message)), list)
