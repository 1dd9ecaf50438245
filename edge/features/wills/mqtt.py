"""The wills of clients: a part of CONNECT (MQTT 5.0, section 3.1.3.2)."""

from __future__ import annotations

from typing import Final

from edge.engine.dispatch.hooks import Context, Hooks
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.wills import service
from edge.features.wills.service import WillError
from edge.mqtt import PROTOCOL
from edge.mqtt.packets import Connect, Disconnect, Property, Will
from edge.mqtt.reasons import Reason
from edge.routing.mqtt import MqttHooks, publications

REASONS: Final = {
    service.Reason.LIMIT_EXCEEDED: Reason.QUOTA_EXCEEDED,
    service.Reason.UNFIT: Reason.IMPLEMENTATION_SPECIFIC_ERROR,
}
"""The reason code for each reason of `WillError`."""


def set_will(context: Context, tx: Transaction, sender: Sender, connect: Connect) -> None:
    """Set the will of a session that begins, and end that of an earlier one."""
    will = None if connect.will is None else _will(connect, connect.will)
    service.begin(context, tx, sender, will, clean=connect.clean)


def _will(connect: Connect, will: Will) -> service.Will:
    attributes = publications.attributes(will.qos, will.retain, will.properties)
    # the end of the session publishes it, too
    delay = min(will.properties.get(Property.WILL_DELAY, 0), connect.session_expiry)
    return service.Will(will.topic, will.payload, attributes, float(delay))


def leave(_context: Context, tx: Transaction, sender: Sender, packet: Disconnect) -> None:
    """Remove the will of a client that disconnects, unless it asks to publish it."""
    if packet.reason == Reason.SUCCESS:
        service.discard(tx, sender)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    mqtt = hooks.of(MqttHooks)
    mqtt.on_connect.append(set_will)
    mqtt.on_disconnect.append(leave)
    hooks.error_mapping(PROTOCOL, WillError, lambda error: REASONS[error.reason])
