"""The elements of ad-hoc commands (XEP-0050): what is answered, and its errors.

Which commands there are, and what they do, is not known here.
"""

from __future__ import annotations

from typing import Final

from edge.xmpp import serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import COMMANDS

EXECUTING: Final = "executing"
COMPLETED: Final = "completed"
CANCELED: Final = "canceled"

ACTIONS: Final = frozenset({"execute", "complete", "cancel", "prev", "next"})
"""What may be asked for (section 2.4); without a word it is the first."""

ONE_STAGE: Final = serialize.tag("actions", {"execute": "complete"}, serialize.tag("complete"))
"""What may follow the one form of a command: that it is completed, or cancelled."""


def answer(node: str, session: str, status: str, content: bytes = b"") -> bytes:
    """Make the `<command/>` that answers: of which command, in which session, how it stands."""
    attrs = {"node": node, "sessionid": session, "status": status}
    return serialize.tag("command", attrs, content, xmlns=COMMANDS)


def note(type: str, text: str) -> bytes:
    """Make a note for people; `type` is info, warn or error (section 2.4)."""
    return serialize.tag("note", {"type": type}, serialize.escape(text))


def refusal(condition: str, specific: str = "", text: str = "") -> StanzaError:
    """Make the error of a refused request (section 4.4), as `bad-request` with `bad-payload`.

    It repeats the request: clients find the session there.
    """
    application = serialize.tag(specific, xmlns=COMMANDS) if specific else b""
    return StanzaError(condition, text, application=application, echo=True)
