"""Refuse the commands that a gateway does not offer as a component of an XMPP server.

The server has the accounts and delivers the messages. A command that would have no effect on any
device is refused with the reason: by the command itself, and by the gateway in answer to a request
at the control socket. `docs/how-to/component.md` has this table, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from edge.config import load
from edge.config.load import Config
from edge.errors import ConfigError, SetupError

_LOGINS: Final = "manage passwords and certificates on its server"
_DELIVERY: Final = "its server delivers messages"
_USERS: Final = "its server delivers messages; send as one of its users, by --as"
_PUBSUB: Final = "it has no publish-subscribe service, so no nodes, queues and shared subscriptions"

NOT_OFFERED: Final[Mapping[str, str]] = {
    "device add --password": _LOGINS,
    "device add --certificate": _LOGINS,
    "device add --downgrade": _DELIVERY,
    "device passwd": _LOGINS,
    "device certificate": _LOGINS,
    "device downgrade": _DELIVERY,
    "send --to": _USERS,
    "send --node": _PUBSUB,
    "listen": _PUBSUB,
    "access": _PUBSUB,
    "node": _PUBSUB,
    "queue": _PUBSUB,
    "dead requeue": _DELIVERY,
}
"""The commands of `fieldpost`, groups of commands, or commands with an option that are refused, and
the end of the error's text. `send --to` the gateway itself is offered, as are `send` and `listen`
with `--as`, which log in to a server."""


def refuse(settings: Config, command: str) -> None:
    """Raise `SetupError` if the gateway is a component and does not offer `command`."""
    if settings.component is not None and command in NOT_OFFERED:
        raise SetupError(refusal(command))


def refusal(command: str) -> str:
    """Return the text that refuses a command of `NOT_OFFERED`."""
    return (
        f"`fieldpost {command}` is not offered, because the gateway is a component"
        f" (xmpp.component): {NOT_OFFERED[command]}"
    )


def refuse_command(folder: Path, words: str) -> None:
    """Raise `SetupError` as `refuse` does, for a command such as `queue show` or its group.

    If the configuration is wrong, this does nothing: the command reports that.
    """
    for command in {words, words.partition(" ")[0]} & NOT_OFFERED.keys():
        with suppress(ConfigError):
            refuse(load.load(folder), command)
