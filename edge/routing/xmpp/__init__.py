"""Route stanzas to the handlers that features register, and answer them."""

from edge.routing.xmpp.hooks import Handler as Handler
from edge.routing.xmpp.hooks import XmppHooks as XmppHooks
