"""All XML namespaces of the project."""

from __future__ import annotations

# RFC 6120 and RFC 6121
STREAMS = "http://etherx.jabber.org/streams"
CLIENT = "jabber:client"
TLS = "urn:ietf:params:xml:ns:xmpp-tls"
SASL = "urn:ietf:params:xml:ns:xmpp-sasl"
BIND = "urn:ietf:params:xml:ns:xmpp-bind"
SESSION = "urn:ietf:params:xml:ns:xmpp-session"
STREAM_ERRORS = "urn:ietf:params:xml:ns:xmpp-streams"
STANZA_ERRORS = "urn:ietf:params:xml:ns:xmpp-stanzas"
ROSTER = "jabber:iq:roster"
ROSTER_VERSIONING = "urn:xmpp:features:rosterver"
PRE_APPROVAL = "urn:xmpp:features:pre-approval"
XML = "http://www.w3.org/XML/1998/namespace"

# Extensible SASL (XEP-0388), Bind 2 (XEP-0386), stream management (XEP-0198), limits (XEP-0478)
SASL2 = "urn:xmpp:sasl:2"
BIND2 = "urn:xmpp:bind:0"
SM = "urn:xmpp:sm:3"
LIMITS = "urn:xmpp:stream-limits:0"

# Components (XEP-0114)
COMPONENT = "jabber:component:accept"

# Service discovery (XEP-0030), entity capabilities (XEP-0115), forms in their answers, ping
# (XEP-0199), version (XEP-0092), entity time (XEP-0202)
DISCO_INFO = "http://jabber.org/protocol/disco#info"
DISCO_ITEMS = "http://jabber.org/protocol/disco#items"
CAPS = "http://jabber.org/protocol/caps"
DATA_FORMS = "jabber:x:data"
PING = "urn:xmpp:ping"
VERSION = "jabber:iq:version"
TIME = "urn:xmpp:time"

# Change of password (XEP-0077), delayed delivery (XEP-0203), offline messages (XEP-0160) and chat
# states (XEP-0085), which are not stored
REGISTER = "jabber:iq:register"
DELAY = "urn:xmpp:delay"
OFFLINE = "msgoffline"
CHAT_STATES = "http://jabber.org/protocol/chatstates"

# Metadata that clients add to the contents of a message
ABOUT = (
    CHAT_STATES,
    DELAY,
    "urn:xmpp:sid:0",
    "urn:xmpp:receipts",
    "urn:xmpp:chat-markers:0",
    "urn:xmpp:hints",
)

# Quality of service: the specification's namespace, and two later ones of another implementation
QOS = "urn:xmpp:qos"
QOS_NF = "urn:nf:iot:qos:1.0"
QOS_IEEE = "urn:ieee:iot:qos:1.0"
QOS_ALL = (QOS, QOS_NF, QOS_IEEE)

# Publish-subscribe (XEP-0060), its queues (XEP-0254, which has two spellings of its namespace, and
# extensions by this project), result sets (XEP-0059), ad-hoc commands (XEP-0050), headers of
# notifications (XEP-0131)
PUBSUB = "http://jabber.org/protocol/pubsub"
PUBSUB_OWNER = "http://jabber.org/protocol/pubsub#owner"
PUBSUB_EVENT = "http://jabber.org/protocol/pubsub#event"
PUBSUB_ERRORS = "http://jabber.org/protocol/pubsub#errors"
QUEUEING = "urn:xmpp:pubsub:queueing:0"
QUEUEING_SHORT = "urn:xmpp:queueing:0"
REDELIVERED = "urn:x-fieldpost:queue"
CONTENT = "urn:x-fieldpost:content"
RSM = "http://jabber.org/protocol/rsm"
COMMANDS = "http://jabber.org/protocol/commands"
SHIM = "http://jabber.org/protocol/shim"

# Event logging (XEP-0337), sensor data (XEP-0323) and JSON containers (XEP-0335)
EVENTLOG = "urn:xmpp:eventlog"
SENSOR_DATA = "urn:xmpp:iot:sensordata"
JSON = "urn:xmpp:json:0"


def clark(namespace: str, local: str) -> str:
    """Return a name in Clark notation: `{namespace}local`."""
    return f"{{{namespace}}}{local}"


def namespace(name: str) -> str:
    """Return the namespace of a name in Clark notation, or "" if it has none."""
    return name[1:].partition("}")[0] if name.startswith("{") else ""
