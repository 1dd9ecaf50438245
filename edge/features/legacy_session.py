"""Answer the obsolete session request (RFC 3921, section 3), because old clients wait for it."""

from __future__ import annotations

from edge.engine.dispatch.hooks import Context, Hooks
from edge.routing.xmpp import XmppHooks
from edge.xmpp import serialize
from edge.xmpp.namespaces import SESSION, clark
from edge.xmpp.stanza import Stanza


def establish(_context: Context, stanza: Stanza) -> bytes:
    """Confirm the session, which already exists since resource binding."""
    return serialize.iq_result(stanza.attrs["id"])


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    xmpp = hooks.of(XmppHooks)
    xmpp.add(xmpp.server_iqs, ("set", clark(SESSION, "session")), establish)
