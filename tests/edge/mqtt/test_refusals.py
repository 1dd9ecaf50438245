"""Each violation of the protocol with the reason code that the specification has for it."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from edge.mqtt.codec import PacketParser
from edge.mqtt.packets import V5, V311, Fault
from edge.mqtt.reasons import Reason
from tests.helpers.mqtt_packets import feed_all, in_bytes, in_two

MALFORMED = Reason.MALFORMED_PACKET
ERROR = Reason.PROTOCOL_ERROR
CONNECT = "0004 4d515454"


class Refusal(NamedTuple):
    """Bytes that are refused: the first byte and the rest after the length."""

    first: int
    body: str
    reason: Reason
    text: str
    version: int = V5
    from_client: bool = True

    @property
    def data(self) -> bytes:
        """The whole packet."""
        body = bytes.fromhex(self.body)
        assert len(body) < 128
        return bytes((self.first, len(body))) + body


REFUSALS: dict[str, Refusal] = {
    # The fixed header (section 2.1).
    "type 0": Refusal(0x00, "", MALFORMED, "type 0 is reserved"),
    "type 15 in 3.1.1": Refusal(0xF0, "", MALFORMED, "type 15 is reserved", V311),
    "not CONNECT first": Refusal(0xC0, "", ERROR, "first packet", 0),
    "PUBLISH first": Refusal(0x30, "0001 61 00", ERROR, "first packet", 0),
    "an answer first": Refusal(0x40, "0001", ERROR, "first packet", 0),
    "two CONNECT": Refusal(0x10, f"{CONNECT} 05 02 0000 00 0000", ERROR, "sent before"),
    "flags of CONNECT": Refusal(0x11, f"{CONNECT} 05 02 0000 00 0000", MALFORMED, "header", 0),
    "flags of PUBACK": Refusal(0x41, "0001", MALFORMED, "PUBACK: the flags of the header"),
    "flags of PUBREC": Refusal(0x58, "0001", MALFORMED, "flags of the header"),
    "flags of PUBREL": Refusal(0x60, "0001", MALFORMED, "flags of the header are 0, not 2"),
    "flags of PUBREL in 3.1.1": Refusal(0x60, "0001", MALFORMED, "header", V311),
    "flags of PUBCOMP": Refusal(0x72, "0001", MALFORMED, "flags of the header"),
    "flags of SUBSCRIBE": Refusal(0x80, "0001 00 0001 61 00", MALFORMED, "flags of the header"),
    "flags of UNSUBSCRIBE": Refusal(0xA0, "0001 00 0001 61", MALFORMED, "flags of the header"),
    "flags of SUBSCRIBE in 3.1.1": Refusal(0x80, "0001 0001 61 00", MALFORMED, "header", V311),
    "flags of UNSUBSCRIBE in 3.1.1": Refusal(0xA3, "0001 0001 61", MALFORMED, "header", V311),
    "flags of PINGREQ": Refusal(0xC1, "", MALFORMED, "flags of the header"),
    "flags of DISCONNECT": Refusal(0xE1, "", MALFORMED, "flags of the header"),
    "flags of AUTH": Refusal(0xF1, "", MALFORMED, "flags of the header"),
    "flags of CONNACK": Refusal(0x21, "0000", MALFORMED, "flags", V311, False),
    "CONNACK from a client": Refusal(0x20, "0000 00", ERROR, "this side"),
    "SUBACK from a client": Refusal(0x90, "0001 00 00", ERROR, "this side"),
    "UNSUBACK from a client": Refusal(0xB0, "0001 00 00", ERROR, "this side"),
    "PINGRESP from a client": Refusal(0xD0, "", ERROR, "this side"),
    "CONNECT from a server": Refusal(0x10, "", ERROR, "this side", V5, False),
    "SUBSCRIBE from a server": Refusal(0x82, "", ERROR, "this side", V5, False),
    "UNSUBSCRIBE from a server": Refusal(0xA2, "", ERROR, "this side", V5, False),
    "PINGREQ from a server": Refusal(0xC0, "", ERROR, "this side", V5, False),
    # CONNECT (section 3.1).
    "CONNECT without a body": Refusal(0x10, "", MALFORMED, "CONNECT: it ends within a field", 0),
    "the reserved flag": Refusal(
        0x10, f"{CONNECT} 04 03 0000 0001 63", MALFORMED, "reserved flag", 0
    ),
    "will QoS without a will": Refusal(
        0x10, f"{CONNECT} 05 0a 0000 00 0001 63", MALFORMED, "flags of the will", 0
    ),
    "will retain without a will": Refusal(
        0x10, f"{CONNECT} 04 22 0000 0001 63", MALFORMED, "flags of the will", 0
    ),
    "will QoS 3": Refusal(
        0x10, f"{CONNECT} 05 1e 0000 00 0001 63 00 0001 61 0000", MALFORMED, "flags of the will", 0
    ),
    "a password without a user in 3.1.1": Refusal(
        0x10, f"{CONNECT} 04 42 0000 0001 63 0000", MALFORMED, "password without a user name", 0
    ),
    "a will without a topic": Refusal(
        0x10, f"{CONNECT} 04 06 0000 0001 63 0000 0000", Reason.TOPIC_NAME_INVALID, "is empty", 0
    ),
    "a will with a wildcard": Refusal(
        0x10, f"{CONNECT} 04 06 0000 0001 63 0001 23 0000", Reason.TOPIC_NAME_INVALID, "wildcard", 0
    ),
    "bytes after CONNECT": Refusal(
        0x10, f"{CONNECT} 04 02 0000 0001 63 00", MALFORMED, "after its end", 0
    ),
    "a user name that is missing": Refusal(
        0x10, f"{CONNECT} 04 82 0000 0001 63", MALFORMED, "ends within", 0
    ),
    "a client identifier that is not UTF-8": Refusal(
        0x10, f"{CONNECT} 04 02 0000 0001 ff", MALFORMED, "UTF-8", 0
    ),
    "a user name that is not UTF-8": Refusal(
        0x10, f"{CONNECT} 04 82 0000 0001 63 0001 ff", MALFORMED, "UTF-8", 0
    ),
    "a will's topic that is not UTF-8": Refusal(
        0x10, f"{CONNECT} 04 06 0000 0001 63 0001 ff 0000", MALFORMED, "UTF-8", 0
    ),
    # CONNACK (section 3.2).
    "reserved flags of CONNACK": Refusal(0x20, "0200 00", MALFORMED, "reserved", V5, False),
    "a reason that CONNACK has not": Refusal(0x20, "0018 00", ERROR, "0x18", V5, False),
    "a return code of 6": Refusal(0x20, "0006", ERROR, "return code 6", V311, False),
    "a session and a refusal": Refusal(0x20, "0187 00", ERROR, "refuses", V5, False),
    # PUBLISH (section 3.3).
    "QoS 3": Refusal(0x36, "0001 61 0001 00", MALFORMED, "PUBLISH: QoS 3"),
    "QoS 3 in 3.1.1": Refusal(0x36, "0001 61 0001", MALFORMED, "QoS 3", V311),
    "DUP at QoS 0": Refusal(0x38, "0001 61 00", MALFORMED, "DUP at QoS 0"),
    "PUBLISH without a body": Refusal(0x30, "", MALFORMED, "PUBLISH: it ends within a field"),
    "PUBLISH of one byte": Refusal(0x30, "00", MALFORMED, "ends within"),
    "a topic that is cut": Refusal(0x30, "0002 61", MALFORMED, "ends within"),
    "an identifier that is cut": Refusal(0x32, "0001 61 00", MALFORMED, "ends within"),
    "no properties": Refusal(0x30, "0001 61", MALFORMED, "ends within"),
    "PUBLISH with the identifier 0": Refusal(0x32, "0001 61 0000 00", ERROR, "identifier is 0"),
    "+ in a topic": Refusal(0x30, "0003 612f2b 00", Reason.TOPIC_NAME_INVALID, "wildcard"),
    "# in a topic": Refusal(0x30, "0001 23", Reason.TOPIC_NAME_INVALID, "wildcard", V311),
    "neither topic nor alias": Refusal(0x30, "0000 00", ERROR, "neither a topic nor"),
    "no topic in 3.1.1": Refusal(0x30, "0000", ERROR, "neither a topic nor", V311),
    "U+0000 in a topic": Refusal(0x30, "0001 00 00", MALFORMED, "U+0000"),
    "a surrogate in a topic": Refusal(0x30, "0003 eda080 00", MALFORMED, "UTF-8"),
    "an overlong form in a topic": Refusal(0x30, "0002 c080 00", MALFORMED, "UTF-8"),
    "a cut character in a topic": Refusal(0x30, "0001 c3 00", MALFORMED, "UTF-8"),
    "a character beyond Unicode": Refusal(0x30, "0004 f4908080 00", MALFORMED, "UTF-8"),
    "alias 0": Refusal(
        0x30, "0001 61 03 23 0000", Reason.TOPIC_ALIAS_INVALID, "topic alias must not be 0"
    ),
    "a subscription identifier from a client": Refusal(
        0x30, "0001 61 02 0b01", ERROR, "must not send a subscription identifier"
    ),
    "subscription identifier 0": Refusal(
        0x30, "0001 61 02 0b00", ERROR, "subscription id must not be 0", V5, False
    ),
    "a wildcard in the response topic": Refusal(
        0x30, "0001 61 04 08 0001 23", ERROR, "response topic contains a wildcard"
    ),
    "payload format 2": Refusal(0x30, "0001 61 02 0102", ERROR, "payload format must not be 2"),
    "a response topic that is not UTF-8": Refusal(
        0x30, "0001 61 04 08 0001 ff", MALFORMED, "UTF-8"
    ),
    "a content type that is not UTF-8": Refusal(0x30, "0001 61 04 03 0001 ff", MALFORMED, "UTF-8"),
    # Properties (section 2.2.2).
    "a pair that is not UTF-8": Refusal(0x30, "0001 61 07 26 0001 61 0001 ff", MALFORMED, "UTF-8"),
    "an unknown property": Refusal(0x30, "0001 61 02 7e00", MALFORMED, "property 0x7e"),
    "a property of another packet": Refusal(
        0x30, "0001 61 05 11 00000001", MALFORMED, "property 0x11"
    ),
    "an identifier of two bytes": Refusal(0x30, "0001 61 03 8100 01", MALFORMED, "property 0x81"),
    "a property twice": Refusal(0x30, "0001 61 04 0101 0101", ERROR, "more than once"),
    "two subscription identifiers": Refusal(
        0x82, "0001 04 0b01 0b02 0001 61 00", ERROR, "subscription id is there more than once"
    ),
    "properties longer than the packet": Refusal(0x30, "0001 61 05 0101", MALFORMED, "longer than"),
    "a property that is cut": Refusal(0x30, "0001 61 03 02 0000 31", MALFORMED, "ends within"),
    "a pair that is cut": Refusal(0x30, "0001 61 04 26 0001 61", MALFORMED, "ends within"),
    "a length of properties that is not minimal": Refusal(
        0x30, "0001 61 8000", MALFORMED, "shortest form"
    ),
    "a length of properties of five bytes": Refusal(
        0x30, "0001 61 80808080 01", MALFORMED, "more than four bytes"
    ),
    "a length of properties that is cut": Refusal(0x30, "0001 61 80", MALFORMED, "ends within"),
    "receive maximum 0": Refusal(
        0x10, f"{CONNECT} 05 02 0000 03 21 0000 0000", ERROR, "receive maximum must not be 0", 0
    ),
    "maximum packet size 0": Refusal(
        0x10, f"{CONNECT} 05 02 0000 05 27 00000000 0000", ERROR, "packet size must not be 0", 0
    ),
    "problem information 2": Refusal(
        0x10, f"{CONNECT} 05 02 0000 02 1702 0000", ERROR, "information must not be 2", 0
    ),
    "response information 255": Refusal(
        0x10, f"{CONNECT} 05 02 0000 02 19ff 0000", ERROR, "information must not be 255", 0
    ),
    "authentication data without a method": Refusal(
        0x10, f"{CONNECT} 05 02 0000 04 16 0001 61 0000", ERROR, "without a method", 0
    ),
    "a will's property in CONNECT": Refusal(
        0x10, f"{CONNECT} 05 02 0000 05 18 00000001 0000", MALFORMED, "property 0x18", 0
    ),
    "maximum QoS 2": Refusal(0x20, "0000 02 2402", ERROR, "maximum qos must not be 2", V5, False),
    "retain available 2": Refusal(0x20, "0000 02 2502", ERROR, "must not be 2", V5, False),
    "wildcard subscriptions 2": Refusal(0x20, "0000 02 2802", ERROR, "must not be 2", V5, False),
    "subscription identifiers 2": Refusal(0x20, "0000 02 2902", ERROR, "must not be 2", V5, False),
    "shared subscriptions 2": Refusal(0x20, "0000 02 2a02", ERROR, "must not be 2", V5, False),
    # PUBACK, PUBREC, PUBREL, PUBCOMP (sections 3.4 to 3.7).
    "PUBACK with the identifier 0": Refusal(0x40, "0000", ERROR, "PUBACK: the packet identifier"),
    "PUBREC with the identifier 0": Refusal(0x50, "0000", ERROR, "identifier is 0", V311),
    "PUBREL with the identifier 0": Refusal(0x62, "0000 00", ERROR, "identifier is 0"),
    "PUBCOMP with the identifier 0": Refusal(0x70, "0000", ERROR, "identifier is 0"),
    "PUBACK of one byte": Refusal(0x40, "00", MALFORMED, "ends within"),
    "a reason that PUBACK has not": Refusal(0x40, "0001 92", ERROR, "reason code 0x92"),
    "a reason that PUBREL has not": Refusal(0x62, "0001 10", ERROR, "reason code 0x10"),
    "bytes after PUBACK": Refusal(0x40, "0001 00 00 00", MALFORMED, "after its end"),
    "a reason in 3.1.1": Refusal(0x40, "0001 00", MALFORMED, "after its end", V311),
    # SUBSCRIBE and UNSUBSCRIBE (sections 3.8 and 3.10).
    "SUBSCRIBE with the identifier 0": Refusal(0x82, "0000 00 0001 61 00", ERROR, "identifier"),
    "SUBSCRIBE without filters": Refusal(0x82, "0001 00", ERROR, "no topic filter"),
    "SUBSCRIBE without filters in 3.1.1": Refusal(0x82, "0001", ERROR, "no topic filter", V311),
    "a filter without options": Refusal(0x82, "0001 00 0001 61", MALFORMED, "ends within"),
    "a filter that is not UTF-8": Refusal(0x82, "0001 00 0001 ff 00", MALFORMED, "UTF-8"),
    "reserved options": Refusal(0x82, "0001 00 0001 61 40", MALFORMED, "reserved bits"),
    "options in 3.1.1": Refusal(0x82, "0001 0001 61 04", MALFORMED, "reserved bits", V311),
    "SUBSCRIBE at QoS 3": Refusal(0x82, "0001 00 0001 61 03", ERROR, "is 3"),
    "retain handling 3": Refusal(0x82, "0001 00 0001 61 30", ERROR, "is 3"),
    "no local for a share": Refusal(
        0x82, "0001 00 000a 2473686172652f732f23 04", ERROR, "no local for a shared subscription"
    ),
    "UNSUBSCRIBE with the identifier 0": Refusal(0xA2, "0000 00 0001 61", ERROR, "identifier is 0"),
    "UNSUBSCRIBE without filters": Refusal(0xA2, "0001 00", ERROR, "no topic filter"),
    "a filter to unsubscribe that is not UTF-8": Refusal(
        0xA2, "0001 00 0001 ff", MALFORMED, "UTF-8"
    ),
    "a filter to unsubscribe that is cut": Refusal(0xA2, "0001 00 0002 61", MALFORMED, "ends"),
    # SUBACK and UNSUBACK (sections 3.9 and 3.11).
    "SUBACK without reasons": Refusal(0x90, "0001 00", ERROR, "no reason codes", V5, False),
    "a reason that SUBACK has not": Refusal(0x90, "0001 00 03", ERROR, "0x03", V5, False),
    "a return code that SUBACK has not": Refusal(0x90, "0001 87", ERROR, "0x87", V311, False),
    "a reason that UNSUBACK has not": Refusal(0xB0, "0001 00 01", ERROR, "0x01", V5, False),
    "reasons of UNSUBACK in 3.1.1": Refusal(0xB0, "0001 00", MALFORMED, "after", V311, False),
    # PINGREQ, PINGRESP, DISCONNECT and AUTH (sections 3.12 to 3.15).
    "bytes after PINGREQ": Refusal(0xC0, "00", MALFORMED, "after its end"),
    "bytes after PINGRESP": Refusal(0xD0, "00", MALFORMED, "after its end", V5, False),
    "a reason of DISCONNECT in 3.1.1": Refusal(0xE0, "00", MALFORMED, "after its end", V311),
    "DISCONNECT of a 3.1.1 server": Refusal(0xE0, "", ERROR, "3.1.1", V311, False),
    "a server's reason from a client": Refusal(0xE0, "8e", ERROR, "reason code 0x8e"),
    "a client's reason from a server": Refusal(0xE0, "04", ERROR, "0x04", V5, False),
    "a server reference from a client": Refusal(0xE0, "00 04 1c 0001 61", ERROR, "other side"),
    "a session expiry from a server": Refusal(
        0xE0, "00 05 11 00000001", ERROR, "other side", V5, False
    ),
    "bytes after DISCONNECT": Refusal(0xE0, "00 00 00", MALFORMED, "after its end"),
    "a client's AUTH without a reason": Refusal(0xF0, "", ERROR, "reason code 0x00"),
    "a server's AUTH with a client's reason": Refusal(
        0xF0, "19 04 15 0001 53", ERROR, "0x19", V5, False
    ),
    "AUTH without a method": Refusal(0xF0, "18 00", ERROR, "no authentication method"),
    "AUTH with nothing but a reason": Refusal(0xF0, "18", ERROR, "no authentication method"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_violations_have_the_reason_of_the_specification_at_every_split(name: str) -> None:
    refusal = REFUSALS[name]
    for pieces in (*in_two(refusal.data), in_bytes(refusal.data)):
        parser = PacketParser(1000, refusal.version, from_client=refusal.from_client)
        (fault,) = feed_all(parser, (*pieces, b"\xc0\0"))
        assert isinstance(fault, Fault)
        assert fault.reason is refusal.reason, fault.text
        assert refusal.text in fault.text


@pytest.mark.parametrize("header", ["c08080808001", "30808080ff01", "108000", "c0808000"])
def test_lengths_that_are_too_long_or_not_minimal_are_malformed(header: str) -> None:
    data = bytes.fromhex(header)
    for pieces in (*in_two(data), in_bytes(data)):
        (fault,) = feed_all(PacketParser(2**28, V5), pieces)
        assert isinstance(fault, Fault)
        assert fault.reason is MALFORMED
