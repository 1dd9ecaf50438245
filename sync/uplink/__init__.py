"""The gateway's uplink: seal events into segments and send them to the centre."""

from sync.common.backoff import Backoff
from sync.uplink.batcher import BatchLimits, Seal, WaitUntil, decide
from sync.uplink.folder_transport import FolderTransport, parse_folder
from sync.uplink.http_client import HttpsLimits
from sync.uplink.https_transport import HttpsTransport
from sync.uplink.interfaces import (
    Backlog,
    BacklogUnavailable,
    Draft,
    GatewayState,
    GatewayStateSource,
    HighWatermark,
    LaneState,
    Notice,
    SendNotice,
    SendOrder,
    Transport,
    WaitingSegment,
)
from sync.uplink.renewal import CertificateRenewal
from sync.uplink.responses import (
    AccessDenial,
    Acknowledgement,
    Conflict,
    Outcome,
    Rejection,
    TemporaryFailure,
)
from sync.uplink.scheduler import UploadScheduler
from sync.uplink.sealer import Sealer, build_header
from sync.uplink.uploader import Uploader
from sync.uplink.wakeup import Wakeup

__all__ = [
    "AccessDenial",
    "Acknowledgement",
    "Backlog",
    "BacklogUnavailable",
    "Backoff",
    "BatchLimits",
    "CertificateRenewal",
    "Conflict",
    "Draft",
    "FolderTransport",
    "GatewayState",
    "GatewayStateSource",
    "HighWatermark",
    "HttpsLimits",
    "HttpsTransport",
    "LaneState",
    "Notice",
    "Outcome",
    "Rejection",
    "Seal",
    "Sealer",
    "SendNotice",
    "SendOrder",
    "TemporaryFailure",
    "Transport",
    "UploadScheduler",
    "Uploader",
    "WaitUntil",
    "WaitingSegment",
    "Wakeup",
    "build_header",
    "decide",
    "parse_folder",
]
