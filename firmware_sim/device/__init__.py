"""A library for firmware: send and receive with quality of service, publish, and work on queues.

The names in `__all__` are the public interface; docs/how-to/integrate-firmware.md is its guide.
"""

from firmware_sim.device.device import Device
from firmware_sim.device.errors import (
    CannotDo,
    DeviceStopped,
    FirmwareError,
    InboxError,
    JobsError,
    MessageRefused,
    NoAnswer,
    NotSent,
    OutboxError,
    OutboxFull,
    RequestRefused,
)
from firmware_sim.device.inbox import Inbox, InboxCounter
from firmware_sim.device.jobs import Job, JobCounter, JobStore
from firmware_sim.device.limits import (
    InboxLimits,
    OutboxLimits,
    ReconnectPolicy,
    SendPolicy,
    WorkLimits,
)
from firmware_sim.device.messages import normalize, with_id
from firmware_sim.device.outbox import OutboxRecord
from firmware_sim.device.publisher import Publisher
from firmware_sim.device.pubsub import ItemEvent, ItemEventKind
from firmware_sim.device.receive_options import ReceivedMessage, ReceiveOptions
from firmware_sim.device.sender_loop import DeliveryStep
from firmware_sim.device.sender_rules import Level, State
from firmware_sim.device.worker import Worker

__all__ = [
    "CannotDo",
    "DeliveryStep",
    "Device",
    "DeviceStopped",
    "FirmwareError",
    "Inbox",
    "InboxCounter",
    "InboxError",
    "InboxLimits",
    "ItemEvent",
    "ItemEventKind",
    "Job",
    "JobCounter",
    "JobStore",
    "JobsError",
    "Level",
    "MessageRefused",
    "NoAnswer",
    "NotSent",
    "OutboxError",
    "OutboxFull",
    "OutboxLimits",
    "OutboxRecord",
    "Publisher",
    "ReceiveOptions",
    "ReceivedMessage",
    "ReconnectPolicy",
    "RequestRefused",
    "SendPolicy",
    "State",
    "WorkLimits",
    "Worker",
    "normalize",
    "with_id",
]
