"""Building of the elements and errors of ad-hoc commands (XEP-0050)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from edge.xmpp import serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import COMMANDS

Row = TypeVar("Row", bound=tuple[str, ...])

EXECUTING: Final = "executing"
COMPLETED: Final = "completed"
CANCELED: Final = "canceled"

ACTIONS: Final = frozenset({"execute", "complete", "cancel", "prev", "next"})
"""The actions that a request may name (XEP-0050, section 2.4); the default is `execute`."""

ONE_STAGE: Final = serialize.tag("actions", {"execute": "complete"}, serialize.tag("complete"))
"""The `<actions/>` of a command with only one form: it allows `complete`; `cancel` is always
allowed."""

TABLE_CHARACTERS: Final = 16 * 1024
"""Maximum characters in the table of an answer, so that the answer is not too large for a client;
further rows are left out."""


def answer(node: str, session: str, status: str, content: bytes = b"") -> bytes:
    """Build the `<command/>` of an answer, with the command's node, session id and status."""
    attrs = {"node": node, "sessionid": session, "status": status}
    return serialize.tag("command", attrs, content, xmlns=COMMANDS)


def note(type: str, text: str) -> bytes:
    """Build a note for people; `type` is info, warn or error (XEP-0050, section 2.4)."""
    return serialize.tag("note", {"type": type}, serialize.escape(text))


def refusal(condition: str, specific: str = "", text: str = "") -> StanzaError:
    """Build the error of a refused request (XEP-0050, section 4.4).

    `specific` is a condition of ad-hoc commands, such as `bad-sessionid`. The error repeats the
    request, in which clients look for the session id.
    """
    application = serialize.tag(specific, xmlns=COMMANDS) if specific else b""
    return StanzaError(condition, text, application=application, echo=True)


def limit_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows of a table from the first on, up to `TABLE_CHARACTERS` characters in all."""
    room = TABLE_CHARACTERS
    for row in rows:
        room -= sum(map(len, row))
        if room < 0:
            return
        yield row
