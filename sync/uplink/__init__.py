"""The gateway's way to the centre: events are sealed into segments, and segments are shipped.

What it needs of the store it declares as Protocols (`ports`); it knows no SQL and no XMPP.
"""

from sync.uplink.backoff import Backoff
from sync.uplink.batcher import BatchLimits, Seal, WaitUntil, decide
from sync.uplink.client import HttpsLimits
from sync.uplink.folder import FolderTransport, parse_folder
from sync.uplink.https import HttpsTransport
from sync.uplink.interfaces import (
    Backlog,
    BacklogUnavailable,
    Draft,
    Facts,
    GatewayState,
    Head,
    LaneState,
    Notice,
    Order,
    Tell,
    Transport,
    Waiting,
)
from sync.uplink.renewal import Renewal
from sync.uplink.responses import Conflict, Denied, Landed, Later, Outcome, Refused
from sync.uplink.scheduler import Turns
from sync.uplink.sealer import Sealer, header_of
from sync.uplink.uploader import Uploader
from sync.uplink.wakeup import Bell

__all__ = [
    "Backlog",
    "BacklogUnavailable",
    "Backoff",
    "BatchLimits",
    "Bell",
    "Conflict",
    "Denied",
    "Draft",
    "Facts",
    "FolderTransport",
    "GatewayState",
    "Head",
    "HttpsLimits",
    "HttpsTransport",
    "Landed",
    "LaneState",
    "Later",
    "Notice",
    "Order",
    "Outcome",
    "Refused",
    "Renewal",
    "Seal",
    "Sealer",
    "Tell",
    "Transport",
    "Turns",
    "Uploader",
    "WaitUntil",
    "Waiting",
    "decide",
    "header_of",
    "parse_folder",
]
