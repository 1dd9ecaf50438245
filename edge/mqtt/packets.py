"""The control packets of MQTT as values (MQTT 5.0, section 3; MQTT 3.1.1, section 3).

One type serves both versions: what 3.1.1 does not have keeps its default. `codec` turns packets
into bytes and back.

They are structs of msgspec, and not compiled, so that `batches` can pass what clients send from one
process to another without code for each type. Their tags are the numbers of the packets' types.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated, Any, Final, NoReturn, TypeAlias

from msgspec import Meta, Struct

from edge.mqtt.fields import MAX_TEXT
from edge.mqtt.reasons import Reason

V311: Final = 4
"""The protocol level of MQTT 3.1.1."""

V5: Final = 5
"""The protocol version of MQTT 5.0."""

VERSION_NAMES: Final = {V311: "3.1.1", V5: "5.0"}
"""The names of the versions for people."""

NEVER: Final = 0xFFFF_FFFF
"""The session expiry interval of a session that does not expire (section 3.1.2.11.2)."""

MAX_ID: Final = 65_535
"""The highest packet identifier; 0 is none."""

MAX_PACKET: Final = 268_435_460
"""The largest packet, in bytes with its fixed header (MQTT 5.0, section 2.1.4)."""


class Property(IntEnum):
    """The identifiers of properties (MQTT 5.0, section 2.2.2.2)."""

    PAYLOAD_FORMAT = 0x01
    MESSAGE_EXPIRY = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_ID = 0x0B
    SESSION_EXPIRY = 0x11
    ASSIGNED_CLIENT_ID = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_SUBSCRIPTIONS = 0x28
    SUBSCRIPTION_IDS = 0x29
    SHARED_SUBSCRIPTIONS = 0x2A


Properties: TypeAlias = Mapping[Property, Any]
"""The properties of a packet. Values are `int`, `str` or `bytes`, as the property has them; that of
`USER` is a tuple of pairs of texts, and that of `SUBSCRIPTION_ID` a tuple of numbers."""


class _NoProperties(dict[Property, Any]):
    """An empty dictionary, which msgspec encodes as such, and which many packets can share."""

    __slots__ = ()

    def __setitem__(self, *_args: object) -> NoReturn:
        raise TypeError("these properties are shared")

    __ior__ = setdefault = update = __setitem__


NO_PROPERTIES: Final[Properties] = _NoProperties()

Id: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_ID)]
Qos: TypeAlias = Annotated[int, Meta(ge=0, le=2)]
Code: TypeAlias = Annotated[int, Meta(ge=0, le=0xFF)]
Text: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT)]
Binary: TypeAlias = Annotated[bytes, Meta(max_length=MAX_TEXT)]


class _Packet(Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    pass


class Will(_Packet, frozen=True):
    """The message that the server publishes for a client that is lost."""

    topic: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
    payload: Binary
    qos: Qos = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


class Connect(_Packet, frozen=True, tag=1):
    """A client's request for a session. `keep_alive` is in seconds; 0 is none."""

    client_id: Text
    version: Annotated[int, Meta(ge=V311, le=V5)] = V5
    clean: bool = True
    keep_alive: Annotated[int, Meta(ge=0, le=0xFFFF)] = 0
    user_name: Text | None = None
    password: Binary | None = None
    will: Will | None = None
    properties: Properties = NO_PROPERTIES

    @property
    def session_expiry(self) -> int:
        """Return the seconds for which the client asks to keep its session (section 3.1.2.11.2);
        one of 3.1.1 asks to keep it forever unless it is clean (MQTT 3.1.1, section 3.1.2.4)."""
        if self.version == V5:
            return int(self.properties.get(Property.SESSION_EXPIRY, 0))
        return 0 if self.clean else NEVER


class ConnAck(_Packet, frozen=True, tag=2):
    """The answer to `Connect`. For 3.1.1, the codec sends the return code nearest to `reason`."""

    session_present: bool
    reason: Reason = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


class Publish(_Packet, frozen=True, tag=3):
    """An application message. `id` is 0 at QoS 0; `topic` is empty if an alias stands for it."""

    topic: Text
    payload: bytes
    qos: Qos = 0
    retain: bool = False
    dup: bool = False
    id: Annotated[int, Meta(ge=0, le=MAX_ID)] = 0
    properties: Properties = NO_PROPERTIES


class PubAck(_Packet, frozen=True, tag=4):
    """The acknowledgement of a message at QoS 1."""

    id: Id
    reason: Code = 0
    properties: Properties = NO_PROPERTIES


class PubRec(_Packet, frozen=True, tag=5):
    """The first answer to a message at QoS 2: it was received."""

    id: Id
    reason: Code = 0
    properties: Properties = NO_PROPERTIES


class PubRel(_Packet, frozen=True, tag=6):
    """The release of a message at QoS 2 by its sender."""

    id: Id
    reason: Code = 0
    properties: Properties = NO_PROPERTIES


class PubComp(_Packet, frozen=True, tag=7):
    """The last answer to a message at QoS 2."""

    id: Id
    reason: Code = 0
    properties: Properties = NO_PROPERTIES


class Subscription(_Packet, frozen=True):
    """A filter with its options; `retain_handling` is 0, 1 or 2."""

    filter: Text
    qos: Qos = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: Annotated[int, Meta(ge=0, le=2)] = 0


class Subscribe(_Packet, frozen=True, tag=8):
    """A request to subscribe to filters."""

    id: Id
    subscriptions: Annotated[tuple[Subscription, ...], Meta(min_length=1)]
    properties: Properties = NO_PROPERTIES


class SubAck(_Packet, frozen=True, tag=9):
    """The answer to `Subscribe`, with a reason for each filter."""

    id: Id
    reasons: tuple[Code, ...]
    properties: Properties = NO_PROPERTIES


class Unsubscribe(_Packet, frozen=True, tag=10):
    """A request to end subscriptions."""

    id: Id
    filters: Annotated[tuple[Text, ...], Meta(min_length=1)]
    properties: Properties = NO_PROPERTIES


class UnsubAck(_Packet, frozen=True, tag=11):
    """The answer to `Unsubscribe`, with a reason for each filter, which 3.1.1 does not send."""

    id: Id
    reasons: tuple[Code, ...]
    properties: Properties = NO_PROPERTIES


class PingReq(_Packet, frozen=True, tag=12):
    """A sign of life of the client."""


class PingResp(_Packet, frozen=True, tag=13):
    """The answer to `PingReq`."""


class Disconnect(_Packet, frozen=True, tag=14):
    """The end of a connection; 3.1.1 has it without a reason, and from the client alone."""

    reason: Code = 0
    properties: Properties = NO_PROPERTIES


class Auth(_Packet, frozen=True, tag=15):
    """A step of an exchange that authenticates the client (MQTT 5.0, section 4.12)."""

    reason: Code = 0
    properties: Properties = NO_PROPERTIES


class Fault(_Packet, frozen=True, tag=0):
    """A violation of the protocol, which ends the connection: the reason, a text for people, and
    the version of the answer; that is 0 if the first packet does not tell it."""

    reason: Reason
    text: Text
    version: Annotated[int, Meta(ge=0, le=V5)] = 0


Input: TypeAlias = (
    Connect
    | Publish
    | PubAck
    | PubRec
    | PubRel
    | PubComp
    | Subscribe
    | Unsubscribe
    | PingReq
    | Disconnect
    | Auth
    | Fault
)
"""An item that the parser of a client's bytes returns."""

Packet: TypeAlias = (
    Connect
    | ConnAck
    | Publish
    | PubAck
    | PubRec
    | PubRel
    | PubComp
    | Subscribe
    | SubAck
    | Unsubscribe
    | UnsubAck
    | PingReq
    | PingResp
    | Disconnect
    | Auth
)
